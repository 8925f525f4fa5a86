//! The command line: commands, options and how their values are read.

mod hub;
mod serve;
mod settings;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use demask::{Device, GpuLayers};
use demask_gguf::Gguf;

pub(crate) use hub::{DoctorArgs, ListArgs, PullArgs, QuantizeArgs, RmArgs, SetupArgs};
pub(crate) use serve::{Log, ServeArgs};
pub(crate) use settings::{RecipeArgs, RecipeChoice, SettingsArgs, list_recipes};
use values::{DeviceChoice, count, device, gpu_layers, positive, range, recipe, shape, threads};
pub(crate) use values::{number as read_number, recipe as read_recipe, seed as read_seed};

use crate::failure::{Misuse, closest};
use crate::model_ref::{Consent, ModelRef, read_whole};
use crate::output;

/// Run diffusion language models on your own machine
#[derive(Parser)]
#[command(
    name = "demask",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    long_about = "Run diffusion language models on your own machine.\n\n\
        A diffusion language model doesn't write left to right: it starts from a canvas of open positions and decides, \
        step by step, those it is surest of. demask reads GGUF files and runs on the CPU or on an NVIDIA GPU. It comes \
        with a small model, so that it answers without a download.",
    after_help = "Examples:\n  \
        demask run \"List the planets separated by commas.\"\n  \
        demask run -m model.gguf -f question.txt --verbose\n  \
        demask chat --recipe fast\n  \
        demask infill \"The capital of [[]] is Copenhagen.\"\n  \
        demask eval assets/heldout.jsonl --recipe exact,fast\n  \
        demask inspect model.gguf\n  \
        demask pull llada && demask run -m llada \"Explain tides.\"\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong use, 3 needs a yes, 130 stopped with Ctrl-C."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Chat(ChatArgs),
    Infill(InfillArgs),
    Eval(EvalArgs),
    Pull(PullArgs),
    List(ListArgs),
    Rm(RmArgs),
    Setup(SetupArgs),
    Doctor(DoctorArgs),
    Quantize(QuantizeArgs),
    Serve(ServeArgs),
    Tokenize(TokenizeArgs),
    Inspect(InspectArgs),
    Logits(LogitsArgs),
    Bench(BenchArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Whether `name` is a command.
pub(crate) fn is_command(name: &str) -> bool {
    Command::has_subcommand(name)
}

/// The command that was most likely meant.
pub(crate) fn closest_command(name: &str) -> Option<String> {
    let program = Cli::command();
    closest(name, program.get_subcommands().map(clap::Command::get_name)).map(str::to_owned)
}

/// Answer a prompt
#[derive(Args)]
#[command(
    long_about = "Answer a prompt.\n\n\
        The answer goes to stdout, everything else to stderr. On a terminal the canvas is drawn while it fills; in a pipe \
        the text appears from the left as soon as it can't change any more. Ctrl-C stops after the current step and keeps \
        what is final.\n\n\
        The prompt is the argument, then the files of -f, then stdin if it is a pipe or a file, joined with newlines. One \
        newline at the end of a file or of stdin is left out; with --no-chat every byte counts. A prompt that begins with a \
        dash goes behind `--`.",
    after_help = "Examples:\n  \
        demask run \"Name the months.\"\n  \
        demask run -m llada-8b-q4_k_m.gguf --steps 64 -n 128 \"Explain tides.\"\n  \
        git diff | demask run \"Write a commit message for this change:\"\n  \
        demask run --json --seed 7 --temperature 0.5 \"Name a colour.\" | jq .text"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Open positions on the canvas: the longest answer
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = count, allow_negative_numbers = true, help_heading = "Decoding")]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Talk with a model
#[derive(Args)]
#[command(
    long_about = "Talk with a model, over many turns.\n\n\
        On a terminal lines are edited, remembered and completed, and the canvas is drawn above the prompt while it fills. A \
        line that begins with a slash is a command: `/help` lists them. Alt-Enter begins a new line; so does Enter between \
        two `\"\"\"`. Ctrl-C stops an answer; twice at the prompt it leaves.\n\n\
        The model sees the whole conversation as long as it fits its context with --max-tokens positions left for the answer. \
        When it doesn't, the oldest turns are dropped, which is told; the instructions of --system stay.\n\n\
        Where stdin is a pipe or a file every line is a message, answers go to stdout and everything else to stderr; the exit \
        code tells whether all of them were answered.",
    after_help = "Examples:\n  \
        demask chat\n  \
        demask chat -m llada-8b-q4_k_m.gguf --recipe fast --system \"Answer in one sentence.\"\n  \
        printf 'What is 2 + 3?\\n/retry\\n' | demask chat --temperature 0.5"
)]
pub(crate) struct ChatArgs {
    /// Instructions that precede the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<OsString>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Open positions per answer: the longest one
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = count, allow_negative_numbers = true, help_heading = "Decoding")]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Draw the canvas on the terminal while it fills
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN", help_heading = "Output")]
    pub(crate) live: Live,
    /// Print settings, timings and counts of every answer on stderr
    #[arg(short, long, help_heading = "Output")]
    pub(crate) verbose: bool,
    /// Keep no file of the lines that were entered
    #[arg(long, help_heading = "Output")]
    pub(crate) no_history: bool,
}

/// Fill blanks in a text
#[derive(Args)]
#[command(
    long_about = "Fill blanks in a text.\n\n\
        `[[N]]` marks a blank of N open positions, `[[]]` one of 4; the rest of the text is fixed. The model gets the text as \
        it is, without its chat template. A blank may end up shorter than it is long: end tokens in it are left out. A \
        backslash in front makes a marker plain text: `\\[[3]]` stands for `[[3]]`. Other brackets need none.\n\n\
        The whole text goes to stdout, everything else to stderr. The text is the argument, then the files of -f, then stdin \
        if it is a pipe or a file, joined with newlines; one newline at the end of a file or of stdin is left out.",
    after_help = "Examples:\n  \
        demask infill \"The capital of [[]] is Copenhagen.\"\n  \
        demask infill \"16 + 31 = [[4]]\" --recipe fast\n  \
        demask infill --json \"All that [[4]] is not [[4]].\" | jq .blanks"
)]
pub(crate) struct InfillArgs {
    /// The text, with blanks marked `[[]]` or `[[N]]`
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<OsString>,
    /// Add the text of FILE
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Measure quality beside speed, over prompts with known answers
#[derive(Args)]
#[command(
    long_about = "Measure quality beside speed, over prompts with known answers.\n\n\
        Every prompt is answered with every recipe in turn, so that recipes are compared item by item and on the same \
        machine at the same time. A Markdown table goes to stdout: accuracy with its 95 % interval, the work it took, and each \
        recipe against the first. A recipe's settings may be changed: `fast:threshold=0.8`.\n\n\
        FILE holds a JSON object per line: `prompt` and `answer`; or `question` and `answer`, where the last number counts if \
        the answer ends in `#### NUMBER` (GSM8K); or `text` with blanks as `demask infill` takes them, and `answer`, the whole \
        text. `id` and `task` are optional. Answers are equal if they are after trimming, with runs of white space as one \
        space.\n\n\
        Ctrl-C keeps what is done. With --out, the same command goes on where it stopped.",
    after_help = "Examples:\n  \
        demask eval assets/heldout.jsonl --recipe exact,fast --limit 100\n  \
        demask eval gsm8k.jsonl -m model.gguf -n 256 --out gsm8k.json --plot gsm8k.svg\n  \
        demask eval assets/heldout.jsonl --recipe exact,fast,fast:threshold=0.8,fast:threshold=0.7"
)]
pub(crate) struct EvalArgs {
    /// Prompts and answers, a JSON object per line
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Open positions on the canvas: the longest answer
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = count, allow_negative_numbers = true, help_heading = "Decoding")]
    pub(crate) max_tokens: usize,
    /// Recipes to compare, the first being the measure; `list` shows them [default: exact]
    #[arg(long = "recipe", value_name = "NAMES", value_delimiter = ',', value_parser = recipe, help_heading = "Decoding")]
    pub(crate) recipes: Vec<RecipeChoice>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Use N items only, drawn from the whole file: always the same ones, and more of them with a larger N
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true, help_heading = "Items")]
    pub(crate) limit: Option<usize>,
    /// Keep every result in FILE (JSON); a file that is there already is continued
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
    /// Draw accuracy against rows per visible token into FILE (SVG)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// What is shown of a run.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ViewArgs {
    /// Draw the canvas on the terminal while it fills
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(crate) live: Live,
    /// Print one JSON object instead of the text
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every edit to FILE as JSON lines; `demask inspect FILE` replays them
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print settings, timings and counts on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print a line per denoising step on stderr
    #[arg(long)]
    pub(crate) dump_step_stats: bool,
}

/// Where a prompt comes from and what becomes of it.
#[derive(Args)]
pub(crate) struct PromptArgs {
    /// The prompt
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<OsString>,
    /// Add the text of FILE to the prompt
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Instructions that precede the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "no_chat")]
    pub(crate) system: Option<OsString>,
    /// Give the model the text as it is, without its chat template
    #[arg(long)]
    pub(crate) no_chat: bool,
}

#[derive(Args)]
pub(crate) struct ModelArgs {
    /// The model: a path to a GGUF file (any part of a split one), `owner/repo[:QUANT]` on the hub, a short name such as
    /// `llada`, or `embedded` for the one inside the program [default: the one `demask setup` chose, else the embedded model]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<OsString>,
    /// If the model isn't here, download it without asking
    #[arg(short = 'y', long)]
    yes: bool,
    /// Ask no server for the model; HF_HUB_OFFLINE=1 does the same
    #[arg(long, conflicts_with = "yes")]
    offline: bool,
    /// Read the model's file at once instead of mapping it into memory: for slow network drives
    #[arg(long)]
    no_mmap: bool,
}

impl ModelArgs {
    /// What was asked for.
    pub(crate) fn reference(&self) -> ModelRef {
        ModelRef::new(self.model.as_deref(), Consent { yes: self.yes, offline: self.offline })
    }

    /// Opens what was asked for.
    pub(crate) fn open(&self) -> Result<Gguf> {
        self.held(self.reference().open()?)
    }

    /// The same, without a word about a default.
    pub(crate) fn open_quietly(&self) -> Result<Gguf> {
        match self.reference() {
            ModelRef::Embedded => Ok(crate::embedded::open()?),
            named => self.held(named.open()?),
        }
    }

    /// An open file in the way that was asked for.
    fn held(&self, gguf: Gguf) -> Result<Gguf> {
        match gguf.path() {
            Some(path) if self.no_mmap => read_whole(&gguf, path),
            _ => Ok(gguf),
        }
    }
}

#[derive(Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Where the model runs: `cpu`, `gpu` or `gpu:N`, or `auto` to choose
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    device: DeviceChoice,
    /// Layers on the GPU, the rest on the CPU; `auto` puts there what fits
    #[arg(long, value_name = "N", default_value = "auto", value_parser = gpu_layers)]
    gpu_layers: GpuLayers,
    /// Threads [default: the physical cores this process may use]
    #[arg(short, long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    threads: Option<usize>,
}

impl DeviceArgs {
    /// Makes the device ready.
    pub(crate) fn open(&self) -> anyhow::Result<Device> {
        let logical = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(threads) = self.threads.filter(|&threads| threads > logical) {
            output::line(
                "warning",
                &format!("{threads} threads share {logical} cores; more threads than cores are slower"),
            );
        }
        match self.device {
            DeviceChoice::Auto => Ok(Device::auto(self.gpu_layers, self.threads)?),
            DeviceChoice::Gpu(index) => Ok(Device::gpu(index, self.gpu_layers, self.threads)?),
            DeviceChoice::Cpu if self.gpu_layers != GpuLayers::Auto => {
                Err(Misuse::new("`--gpu-layers` and `--device cpu` contradict each other", "leave one of them out")
                    .into())
            }
            DeviceChoice::Cpu => Ok(Device::cpu(self.threads)?),
        }
    }
}

/// When to draw the canvas.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Live {
    /// If stdout and stderr are terminals.
    Auto,
    Always,
    Never,
}

/// Print the token ids of a prompt
#[derive(Args)]
#[command(
    long_about = "Print the token ids of a prompt, as `demask run` would give them to the model.\n\n\
        The prompt is put into the model's chat template; with --no-chat its text is taken as it is. Names of special tokens \
        in a prompt are text; with --special they are the tokens. Works with any GGUF file that holds a byte-level BPE tokenizer.",
    after_help = "Examples:\n  \
        demask tokenize \"Hello\"\n  \
        demask tokenize --no-chat -m model.gguf -f text.txt\n  \
        demask tokenize --no-chat --special \"<|eot_id|>\""
)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Take names of special tokens in the text as those tokens; only with --no-chat, as a chat template writes its own
    #[arg(long, requires = "no_chat")]
    pub(crate) special: bool,
    /// Print one JSON object: ids, and the text of each
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what a GGUF file holds, or replay a trace
#[derive(Args)]
#[command(
    long_about = "Show what a GGUF file holds: its metadata (long values shortened), a count per tensor type, and every tensor \
        with type and shape. Works on any GGUF file. Given a trace that `demask run --trace` wrote, show the text after each step, or \
        draw it.",
    after_help = "Examples:\n  \
        demask inspect model.gguf\n  \
        demask inspect --json model.gguf | jq '.tensors[].name'\n  \
        demask run --trace run.jsonl \"Name the months.\" && demask inspect run.jsonl\n  \
        demask inspect run.jsonl --svg run.svg"
)]
pub(crate) struct InspectArgs {
    /// A GGUF file (any part of a split model), or a trace
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// For a trace: the model that ran
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw a trace into FILE: a film of the canvas filling (SVG)
    #[arg(long, value_name = "FILE", conflicts_with = "json", help_heading = "Pictures of a trace")]
    pub(crate) svg: Option<PathBuf>,
    /// Draw only the canvas after N steps
    #[arg(long, value_name = "N", requires = "svg", value_parser = count, allow_negative_numbers = true, help_heading = "Pictures of a trace")]
    pub(crate) step: Option<usize>,
    /// A line above the canvas
    #[arg(long, value_name = "TEXT", requires = "svg", help_heading = "Pictures of a trace")]
    pub(crate) title: Option<String>,
}

/// Write the logits of one forward pass
#[derive(Args)]
#[command(
    long_about = "Write the logits of one forward pass over a canvas: [positions, vocabulary] little-endian 32-bit floats, row \
        by row, without a header. Row p is what the model computes at position p; for models with shifted logits (Dream) it \
        scores position p + 1.",
    after_help = "Examples:\n  \
        demask logits --tokens 1,2,3 --out logits.f32\n  \
        demask logits -n 8 --rows 14-21 \"Name the months.\" --out logits.f32"
)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Token ids of the canvas, instead of a prompt: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["prompt", "files", "system", "no_chat"])]
    pub(crate) tokens: Vec<u32>,
    /// Open positions behind the prompt
    #[arg(short = 'n', long, value_name = "N", default_value = "0", value_parser = count, allow_negative_numbers = true)]
    pub(crate) max_tokens: usize,
    /// Positions whose logits are written: 0,4-7 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    pub(crate) rows: Vec<(usize, usize)>,
    /// Write to FILE [default: stdout, unless it is a terminal]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Measure this machine: matrix products and forward passes
#[derive(Args)]
#[command(
    long_about = "Measure this machine: the limits of its instructions, matrix products of every weight type as a share of \
        them, and forward passes of a model at several row counts. Times are the best and the median of several runs; on a \
        shared machine compare ratios, not times.",
    after_help = "Examples:\n  \
        demask bench\n  \
        demask bench -m model.gguf --forward-only --rows 148 --repeat 5\n  \
        demask bench --json > bench.json"
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Rows of the forward passes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "32,64,148,256", value_parser = positive)]
    pub(crate) rows: Vec<usize>,
    /// Rows of each forward pass that are scored
    #[arg(long, value_name = "N", default_value = "32", value_parser = positive)]
    pub(crate) wanted: usize,
    /// Forward passes per row count
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    pub(crate) repeat: usize,
    /// Leave the limits and the matrix products out
    #[arg(long)]
    pub(crate) forward_only: bool,
    /// Matrices of the products: NxK
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4096x4096", value_parser = shape)]
    pub(crate) shapes: Vec<(usize, usize)>,
    /// Activation rows of the products
    #[arg(long, value_name = "N", default_value = "148", value_parser = positive)]
    pub(crate) product_rows: usize,
    /// Milliseconds per product
    #[arg(long, value_name = "MS", default_value = "400", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(crate) budget_ms: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the completion script of a shell
#[derive(Args)]
#[command(
    long_about = "Print the completion script of a shell: save it where the shell looks for such scripts.",
    after_help = "Examples:\n  \
        demask completions bash > ~/.local/share/bash-completion/completions/demask\n  \
        demask completions zsh > ~/.zfunc/_demask\n  \
        demask completions fish > ~/.config/fish/completions/demask.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page
#[derive(Args)]
#[command(
    long_about = "Print the manual page of the program or of a command, for `man`.",
    after_help = "Examples:\n  \
        demask man | man -l -\n  \
        demask man run | man -l -\n  \
        demask man --out ~/.local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// The command
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands into FOLDER
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) out: Option<PathBuf>,
}
