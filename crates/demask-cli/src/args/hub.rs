//! Commands around models on disk: pull, list, rm, setup, doctor, quantize.

use std::path::PathBuf;

use clap::Args;

use super::values::threads;
use crate::cmd::quantize::Target;
use crate::model_ref::Consent;

/// Whether something may be downloaded.
#[derive(Args)]
pub(crate) struct ConsentArgs {
    /// Download without asking
    #[arg(short = 'y', long)]
    yes: bool,
    /// Ask no server; HF_HUB_OFFLINE=1 does the same
    #[arg(long, conflicts_with = "yes")]
    offline: bool,
}

impl ConsentArgs {
    pub(crate) fn consent(&self) -> Consent {
        Consent { yes: self.yes, offline: self.offline }
    }
}

/// Download a model into the Hugging Face cache
#[derive(Args)]
#[command(
    long_about = "Download a model into the Hugging Face cache, where the other tools of the hub find it too.\n\n\
        MODEL is `owner/repo`, `owner/repo:QUANT`, `owner/repo@revision:QUANT`, or a short name (`demask list --known`). \
        Without QUANT that is Q4_K_M, else Q8_0, else the first GGUF file; all parts of a split model come together. A \
        download that broke off goes on where it stopped. What is here already is checked against the hub's SHA-256 once.\n\n\
        The path of the model goes to stdout. HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, HTTPS_PROXY and \
        NO_PROXY are honoured. Without a terminal to ask on, nothing is downloaded unless --yes is given: exit code 3.",
    after_help = "Examples:\n  \
        demask pull llada\n  \
        demask pull mradermacher/LLaDA-8B-Instruct-GGUF:Q8_0 --yes\n  \
        HF_ENDPOINT=https://hub.example demask pull dream"
)]
pub(crate) struct PullArgs {
    /// The model
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) consent: ConsentArgs,
    /// Print one JSON object instead of the path
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the models on this machine
#[derive(Args)]
#[command(
    long_about = "Show the models in the Hugging Face cache: the name that -m takes, size, date and path. The one that \
        `demask setup` has chosen is marked with a star.",
    after_help = "Examples:\n  \
        demask list\n  \
        demask list --known\n  \
        demask list --json | jq -r '.[].model'"
)]
pub(crate) struct ListArgs {
    /// Show the short names of models that can be downloaded
    #[arg(long)]
    pub(crate) known: bool,
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Delete a model from this machine
#[derive(Args)]
#[command(
    long_about = "Delete a model from the Hugging Face cache: of a name with a quantisation that one, of a name without all of \
        the repository. Files that another model needs stay. Asks first; without a terminal to ask on it needs --yes.",
    after_help = "Examples:\n  \
        demask rm mradermacher/LLaDA-8B-Instruct-GGUF:Q8_0\n  \
        demask rm dream --yes\n  \
        demask rm --unfinished"
)]
pub(crate) struct RmArgs {
    /// The model
    #[arg(value_name = "MODEL", required_unless_present = "unfinished")]
    pub(crate) model: Option<String>,
    /// Delete downloads that broke off
    #[arg(long, conflicts_with = "model")]
    pub(crate) unfinished: bool,
    /// Delete without asking
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

/// Make this machine ready: check it, fetch a model, try it
#[derive(Args)]
#[command(
    long_about = "Make this machine ready: look at processor, memory and disk, download a model that fits (after a yes), answer \
        a prompt of 16 tokens with it, and remember it as the model of commands without -m.\n\n\
        Without --model that is the model of the last setup, else `llada`, or the small one inside the program where that \
        doesn't fit the memory; `--model embedded` goes back to the small one. Without a terminal to ask on, and without --yes, nothing is downloaded: exit code 3.",
    after_help = "Examples:\n  \
        demask setup\n  \
        demask setup --yes --model dream\n  \
        demask setup --model embedded"
)]
pub(crate) struct SetupArgs {
    /// The model: a path, `owner/repo[:QUANT]`, a short name, or `embedded`
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) consent: ConsentArgs,
}

/// Report what is right and wrong on this machine, with the command that mends it
#[derive(Args)]
#[command(
    long_about = "Report what is right and wrong on this machine: processor, threads, memory, disk, the model cache, the default \
        model, the environment. Nothing is changed and nobody is asked. Every line that is not ok names the command that mends \
        it. Files whose hash isn't remembered are read once more, which takes seconds per gigabyte; --quick leaves that out.\n\n\
        Exit code 0 if nothing is broken (warnings don't count), else 1.",
    after_help = "Examples:\n  \
        demask doctor\n  \
        demask doctor --quick\n  \
        demask doctor --json | jq '.checks[] | select(.state != \"ok\")'"
)]
pub(crate) struct DoctorArgs {
    /// Leave files unread whose hash isn't remembered
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a model smaller: fewer bits per weight
#[derive(Args)]
#[command(
    long_about = "Make a model smaller: a GGUF file with F32, F16, BF16 or Q8_0 weights into one with fewer bits per weight. The \
        types are mixed as llama.cpp mixes them under the same names: the tensors that matter most get more bits.\n\n\
        The output has its name once it is whole; Ctrl-C leaves nothing. A split model becomes one file.",
    after_help = "Examples:\n  \
        demask quantize llada-8b-f16.gguf llada-8b-q4_k_m.gguf --type Q4_K_M\n  \
        demask quantize dream-bf16-00001-of-00003.gguf dream-q6_k.gguf --type Q6_K --threads 8"
)]
pub(crate) struct QuantizeArgs {
    /// The model to read (any part of a split one)
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Q4_K_M, Q5_K_M, Q6_K or Q8_0
    #[arg(long = "type", value_name = "TYPE", value_parser = Target::read)]
    pub(crate) ty: Target,
    /// Write over OUT without asking
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Threads [default: the physical cores this process may use]
    #[arg(short, long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
}
