//! The options of `demask serve`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::values::{count, positive};
use super::{DeviceArgs, ModelArgs};

/// Serve a model over HTTP: an API that OpenAI's clients speak, and a page that shows the canvas
#[derive(Args)]
#[command(
    long_about = "Serve a model over HTTP.\n\n\
        `/v1/chat/completions`, `/v1/completions` and `/v1/models` are what OpenAI's clients expect; every option of `run` is \
        a field of a request, with `_` for `-` and the same default. `/api/denoise` streams every edit of the canvas, and the \
        page at `/` draws it. `/openapi.json` describes all of it, `/metrics` is for Prometheus.\n\n\
        Requests take turns on the model, a denoising step each; a text depends on its own request alone. A client that \
        leaves takes its run with it. Only this machine can reach the server, unless --host says otherwise, which needs an \
        API key. The first Ctrl-C finishes what runs, a second one stops at once. Logs go to stderr and hold no text of \
        requests.",
    after_help = "Examples:\n  \
        demask serve\n  \
        demask serve -m llada-8b-q4_k_m.gguf --port 9000 --parallel 2\n  \
        DEMASK_API_KEY=... demask serve --host 0.0.0.0\n  \
        curl http://127.0.0.1:8033/v1/chat/completions -H 'Content-Type: application/json' \\\n    \
        -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Name the months.\"}]}'"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Address to listen on; one that others can reach needs an API key
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Network")]
    pub(crate) host: String,
    /// Port to listen on; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value = "8033", help_heading = "Network")]
    pub(crate) port: u16,
    /// What clients must send as `Authorization: Bearer KEY` [env: DEMASK_API_KEY]
    #[arg(long, value_name = "KEY", help_heading = "Network")]
    pub(crate) api_key: Option<String>,
    /// Let pages of ORIGIN use the server: http://localhost:3000, or * for all; may be given several times
    #[arg(long, value_name = "ORIGIN", help_heading = "Network")]
    pub(crate) cors: Vec<String>,
    /// Name of the model in requests and answers [default: its own]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Network")]
    pub(crate) alias: Option<String>,
    /// Runs that take turns on the model; each holds the keys and values of its canvas
    #[arg(long, value_name = "N", default_value = "4", value_parser = positive, allow_negative_numbers = true, help_heading = "Limits")]
    pub(crate) parallel: usize,
    /// Runs that wait for their turn; with more, clients are told to come back
    #[arg(long, value_name = "N", default_value = "64", value_parser = count, allow_negative_numbers = true, help_heading = "Limits")]
    pub(crate) queue: usize,
    /// Most open positions of a request
    #[arg(long, value_name = "N", default_value = "4096", value_parser = positive, allow_negative_numbers = true, help_heading = "Limits")]
    pub(crate) max_tokens: usize,
    /// Seconds from a request's arrival to the end of its answer
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u64).range(1..=31_536_000), help_heading = "Limits")]
    pub(crate) timeout: u64,
    /// Most bytes of a request's body
    #[arg(long, value_name = "BYTES", default_value = "2097152", value_parser = clap::value_parser!(u32).range(1..=1 << 30), help_heading = "Limits")]
    max_body: u32,
    /// Form of the log lines on stderr
    #[arg(long, value_enum, default_value = "text", value_name = "FORM", help_heading = "Output")]
    pub(crate) log: Log,
    /// Log more: connections that break off
    #[arg(short, long, help_heading = "Output")]
    pub(crate) verbose: bool,
}

impl ServeArgs {
    /// Most bytes of a request's body.
    pub(crate) fn max_body(&self) -> usize {
        self.max_body as usize
    }
}

/// Form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    Text,
    Json,
    Off,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    /// The options of `run` under "Decoding" are the fields of the server's requests.
    #[test]
    fn every_decoding_option_is_a_field_of_requests() {
        let command = crate::args::Cli::command();
        let run = command.find_subcommand("run").expect("run is a command");
        let decoding = run.get_arguments().filter(|arg| arg.get_help_heading() == Some("Decoding"));
        let options: BTreeSet<String> =
            decoding.filter_map(|arg| arg.get_long()).map(|name| name.replace('-', "_")).collect();
        let fields: BTreeSet<String> = demask_server::setting_names().into_iter().map(str::to_owned).collect();
        assert_eq!(options, fields);
    }

    /// What isn't given on the command line is what isn't given in a request.
    #[test]
    fn both_have_the_same_defaults() {
        use clap::Parser as _;
        let cli = crate::args::Cli::try_parse_from(["demask", "run", "hi"]).expect("valid");
        let crate::args::Command::Run(args) = cli.command else { panic!("run was asked for") };
        let request = args.settings.request(args.recipe.recipe().expect("no list"), args.max_tokens);
        assert_eq!(request, demask::Request::default());
    }
}
