//! What is told about a run: the object of `--json`, the lines of `--verbose`.

use std::time::Duration;

use demask::diffusion::Settings;
use demask::{Device, EndPolicy, Finish, Generation, Model, Request};
use demask_gguf::Gguf;
use serde::Serialize;

use crate::output::say;

/// How long things took.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// Opening the file and loading the weights.
    pub(crate) load: Duration,
    /// The whole denoising loop.
    pub(crate) generate: Duration,
    /// Each denoising step.
    pub(crate) steps: Vec<Duration>,
}

/// The object of `--json`. Its fields are an interface: new ones may come, none goes or changes its meaning.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    /// Version of the program.
    version: &'static str,
    /// Name of the model.
    model: String,
    /// Its architecture.
    architecture: &'static str,
    /// The tensor types that hold most of its weights, such as `Q8_0`.
    quantisation: String,
    /// Where it ran.
    device: String,
    /// Threads.
    threads: usize,
    /// Seed of all random numbers.
    seed: u64,
    /// The request, with the defaults filled in.
    request: RequestReport,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Positions of the canvas.
    canvas: usize,
    /// Denoising steps that ran.
    steps: usize,
    /// Forward passes (network function evaluations).
    nfe: usize,
    /// Rows pushed through all layers.
    rows: usize,
    /// Tokens of the answer before its end token.
    visible_tokens: usize,
    /// `rows / visible_tokens`; null for an empty answer.
    rows_per_visible_token: Option<f64>,
    /// Visible tokens per second of the denoising loop.
    visible_tokens_per_s: Option<f64>,
    /// Seconds to open the file and load the weights.
    load_s: f64,
    /// Seconds from the start of the denoising loop to the end of its first step; null if none ran.
    first_step_s: Option<f64>,
    /// Seconds of the denoising loop.
    generate_s: f64,
    /// Mean of `step_ms`; null if no step ran.
    ms_per_step: Option<f64>,
    /// Milliseconds of each step.
    step_ms: Vec<f64>,
    /// The most memory that the process used; null where the system doesn't say.
    peak_rss_bytes: Option<u64>,
    /// `stop`: an end token ends the answer; `length`: the canvas is full; `interrupted`.
    finish: &'static str,
    /// Whether the run ended before its last step because the answer was final.
    stopped_early: bool,
    /// Ids of the visible tokens.
    tokens: Vec<u32>,
    /// The answer.
    text: String,
}

/// A request with its defaults filled in.
#[derive(Debug, Serialize)]
struct RequestReport {
    max_tokens: usize,
    steps: usize,
    block_length: usize,
    unmask: &'static str,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    alg_temp: f64,
    cfg_scale: f64,
    eos: EndPolicy,
    full_logits: bool,
}

impl RunReport {
    /// Sums up a run.
    pub(crate) fn new(
        model: &Model,
        device: &Device,
        request: &Request,
        settings: &Settings,
        generation: &Generation,
        timings: &Timings,
    ) -> RunReport {
        let canvas = &generation.canvas;
        let tokens = model.answer_tokens(canvas);
        let visible = tokens.len();
        let asked = canvas.asked_range();
        let ended = canvas.tokens().get(asked.start + visible).is_some_and(|&token| model.tokenizer().is_end(token));
        let Device::Cpu(cpu) = device;
        let seconds = timings.generate.as_secs_f64();
        let step_ms: Vec<f64> = timings.steps.iter().map(|step| rounded(step.as_secs_f64() * 1e3, 3)).collect();
        let per_visible = |value: f64| (visible > 0).then_some(value);
        RunReport {
            version: env!("CARGO_PKG_VERSION"),
            model: model.spec().name.clone(),
            architecture: model.spec().architecture,
            quantisation: quantisation(model.gguf()),
            device: device.describe(),
            threads: cpu.threads(),
            seed: request.seed,
            request: RequestReport {
                max_tokens: request.max_tokens,
                steps: settings.steps,
                block_length: settings.block_length,
                unmask: settings.unmask.name(),
                temperature: request.temperature,
                top_p: request.top_p,
                top_k: request.top_k,
                alg_temp: request.alg_temp,
                cfg_scale: request.cfg_scale,
                eos: request.eos,
                full_logits: request.full_logits,
            },
            prompt_tokens: asked.start,
            canvas: canvas.len(),
            steps: generation.statistics.steps,
            nfe: generation.statistics.nfe,
            rows: generation.statistics.rows,
            visible_tokens: visible,
            rows_per_visible_token: per_visible(generation.statistics.rows as f64 / visible as f64)
                .map(|r| rounded(r, 2)),
            visible_tokens_per_s: per_visible(rounded(visible as f64 / seconds, 2)).filter(|_| seconds > 0.0),
            load_s: rounded(timings.load.as_secs_f64(), 6),
            first_step_s: timings.steps.first().map(|step| rounded(step.as_secs_f64(), 6)),
            generate_s: rounded(seconds, 6),
            ms_per_step: (!step_ms.is_empty()).then(|| rounded(step_ms.iter().sum::<f64>() / step_ms.len() as f64, 3)),
            step_ms,
            peak_rss_bytes: peak_rss(),
            finish: match generation.finish {
                Finish::Interrupted => "interrupted",
                _ if ended => "stop",
                _ => "length",
            },
            stopped_early: generation.finish == Finish::EndToken,
            tokens: tokens.to_vec(),
            text: model.answer_text(canvas),
        }
    }

    /// Prints the lines of `--verbose` on stderr.
    pub(crate) fn print(&self) {
        let row = |name: &str, value: String| say(&format!("{name:<22}{value}"));
        let optional = |value: Option<f64>, unit: &str| value.map_or("-".to_owned(), |value| format!("{value}{unit}"));
        let request = &self.request;
        row("model", format!("{} ({})", self.model, self.architecture));
        row("quantisation", self.quantisation.clone());
        row("device", self.device.clone());
        row("threads", self.threads.to_string());
        row("seed", self.seed.to_string());
        row("prompt", format!("{} tokens", self.prompt_tokens));
        row("canvas", format!("{} positions, {} of them open", self.canvas, request.max_tokens));
        let (length, unmask) = (request.block_length, request.unmask);
        row("steps", format!("{} of {}, blocks of {length}, {unmask}", self.steps, request.steps));
        row("load", format!("{:.1} ms", self.load_s * 1e3));
        row("first step", optional(self.first_step_s.map(|s| rounded(s * 1e3, 1)), " ms"));
        row("step", optional(self.ms_per_step.map(|ms| rounded(ms, 2)), " ms"));
        row("generation", format!("{:.1} ms", self.generate_s * 1e3));
        row("forward passes (NFE)", self.nfe.to_string());
        row("rows", self.rows.to_string());
        row(
            "visible tokens",
            format!("{}, {} per second", self.visible_tokens, optional(self.visible_tokens_per_s, "")),
        );
        row("rows per token (R)", optional(self.rows_per_visible_token, ""));
        let mib = self.peak_rss_bytes.map(|bytes| rounded(bytes as f64 / f64::from(1 << 20), 1));
        row("peak memory", optional(mib, " MiB"));
        row("finish", format!("{}{}", self.finish, if self.stopped_early { " (before the last step)" } else { "" }));
    }

    /// Whether the model ended its answer before it began.
    pub(crate) fn is_empty(&self) -> bool {
        self.visible_tokens == 0
    }

    /// The answer.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Positions that were decided, of those that were open.
    pub(crate) fn max_tokens(&self) -> usize {
        self.request.max_tokens
    }
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The tensor types that hold at least a tenth of the model's bytes, the largest first.
fn quantisation(gguf: &Gguf) -> String {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for tensor in gguf.tensors() {
        match sums.iter_mut().find(|(name, _)| *name == tensor.ty.name()) {
            Some((_, sum)) => *sum += tensor.byte_len(),
            None => sums.push((tensor.ty.name(), tensor.byte_len())),
        }
    }
    let all: u64 = sums.iter().map(|(_, sum)| sum).sum();
    sums.retain(|(_, sum)| sum * 10 >= all);
    sums.sort_by_key(|&(_, sum)| std::cmp::Reverse(sum));
    sums.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" + ")
}

/// The peak resident set, as Linux tells it.
pub(crate) fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
