//! `demask serve`: the API and the page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use demask::diffusion::{Curve, Denoising};
use demask::{Canvas, Device, Error, MaskPredictor, Model, ModelFile, Request};
use demask_server::{Ending, Limits, Options, Runner, ServeError};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{load_model, read_model};
use crate::args::{Log, ServeArgs};
use crate::curves;
use crate::failure::{Advised, Ended, Misuse};
use crate::output;

/// The environment's API key, so that it isn't seen in a list of processes.
const KEY: &str = "DEMASK_API_KEY";

/// Runs the command. Everything that can be refused is refused before the weights are loaded.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let options = options(args)?;
    demask_server::check(&options).map_err(refused)?;
    let file = read_model(args.model.open()?)?;
    // Without a template no conversation can be answered: better said now than to every client.
    file.chat_prompt(&[demask::Message::new(demask::Role::User, "hi")])?;
    let device = args.device.open()?;
    let model = load_model(file, &device)?;
    log(args.log, args.verbose);
    if !options.address.ip().is_loopback() {
        output::line("warning", "others can reach this server; what they send and get is not encrypted");
    }
    let place = device.describe();
    tell_only_places_of_panics();
    let ending = demask_server::serve(options, Arc::new(Served { model, device }), |server| {
        let address = server.local_addr();
        output::line("note", &format!("serving {} on {place}", server.model()));
        output::line("note", &format!("listening on http://{address} (API at http://{address}/v1; Ctrl-C stops)"));
    });
    match ending.map_err(refused)? {
        Ending::Finished => Ok(()),
        Ending::Stopped => Err(Ended::Interrupted.into()),
    }
}

/// A model whose curve is the one that `run` and `chat` go by.
struct Served {
    model: Model,
    device: Device,
}

impl Runner for Served {
    fn file(&self) -> &ModelFile {
        &self.model
    }

    fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error> {
        self.model.start(canvas, request)
    }

    fn curve(&self, positions: usize) -> Result<Curve, Error> {
        curves::of(&self.model, &self.device, positions)
    }
}

fn options(args: &ServeArgs) -> Result<Options> {
    let host = match args.host.as_str() {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| {
            Misuse::new(
                format!("--host {host} can't be used: it must be an IP address or localhost"),
                "0.0.0.0 is every IPv4 address of this machine",
            )
        })?,
    };
    let from_environment = || match std::env::var(KEY) {
        Ok(key) => Ok(Some(key)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Misuse::new(format!("{KEY} is not UTF-8"), "an API key is printable ASCII"))
        }
    };
    let api_key = match &args.api_key {
        Some(key) => Some(key.clone()),
        None => from_environment()?,
    };
    let limits = Limits {
        parallel: args.parallel,
        queue: args.queue,
        max_tokens: args.max_tokens,
        body: args.max_body(),
        time: Duration::from_secs(args.timeout),
        ..Limits::default()
    };
    let address = SocketAddr::new(host, args.port);
    Ok(Options { address, api_key, cors: args.cors.clone(), alias: args.alias.clone(), limits })
}

fn refused(error: ServeError) -> anyhow::Error {
    let hint = error.hint().unwrap_or_else(|| "see `demask serve --help`".to_owned());
    match error {
        ServeError::NoKey { .. } | ServeError::Key { .. } | ServeError::Origin { .. } => {
            Misuse::new(error.to_string(), hint).into()
        }
        _ => Advised::new(error.to_string(), hint).into(),
    }
}

/// The message of a panic may quote what clients say, which is in no log.
fn tell_only_places_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
        output::line("error", &format!("a panic{place}, which is a bug"));
    }));
}

/// Log lines go to stderr. What requests say is in none of them.
fn log(form: Log, verbose: bool) {
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let ours = Targets::new().with_target("demask_server", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    let logs = tracing_subscriber::registry().with(ours);
    match form {
        Log::Text => logs.with(lines).init(),
        Log::Json => logs.with(lines.json()).init(),
        Log::Off => {}
    }
}
