//! What is told about a run: the object of `--json`, the lines of `--verbose`.

use std::sync::Arc;
use std::time::Duration;

use demask::diffusion::Settings;
use demask::{Device, EndPolicy, Finish, Generation, Model, ModelSpec, Request};
use demask_compute::{Split, Stopwatch};
use demask_gguf::Gguf;
use serde::Serialize;

use crate::cmd::auto::AutoReport;
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
    /// How many of them used no stale keys and values.
    pub(crate) refreshed: usize,
    /// What `--recipe auto` measured and chose.
    pub(crate) auto: Option<AutoReport>,
    /// Runs while the model does.
    pub(crate) stopwatch: Option<Arc<Stopwatch>>,
    /// Where the time of the denoising loop's forward passes went.
    pub(crate) split: Option<Split>,
}

/// What a run wrote.
pub(crate) struct Written {
    /// Tokens that were given.
    pub(crate) given: usize,
    /// The tokens that a reader sees of it.
    pub(crate) tokens: Vec<u32>,
    /// Whether an end token ends it.
    pub(crate) ended: bool,
    /// The text.
    pub(crate) text: String,
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
    /// What `--recipe auto` measured and chose; null for other recipes.
    auto: Option<AutoReport>,
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
    /// Whether keys and values were never stale, so that the text is that of `--cache none`.
    cache_exact: bool,
    /// Steps without stale keys and values.
    refreshed_steps: usize,
    /// Positions decided; one that was opened again counts twice.
    commits: usize,
    /// Positions opened again.
    remasks: usize,
    /// `commits / steps`; null if no step ran.
    commits_per_step: Option<f64>,
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
    /// Where `ms_per_step` goes; null if no step ran, or where the device doesn't tell.
    split_ms_per_step: Option<SplitReport>,
    /// Milliseconds of each step.
    step_ms: Vec<f64>,
    /// The most memory that the process used; null where the system doesn't say.
    peak_rss_bytes: Option<u64>,
    /// The most GPU memory that was held; left out without a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_gpu_bytes: Option<u64>,
    /// `stop`: an end token ends the answer; `length`: the canvas is full; `interrupted`.
    finish: &'static str,
    /// Whether the run ended before its last step because the answer was final.
    stopped_early: bool,
    /// Ids of the visible tokens.
    tokens: Vec<u32>,
    /// The answer.
    text: String,
    /// Whether the number of steps was set beforehand.
    #[serde(skip)]
    scheduled: bool,
}

/// Where the time of a step goes, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct SplitReport {
    /// Products with the layers' weights.
    linear: f64,
    /// Attention, with rotations and the store of keys and values.
    attention: f64,
    /// Logits or row statistics.
    head: f64,
    /// Guesses, the unmasker, the cache policy: what isn't the forward pass.
    sampling: f64,
    /// Embeddings, norms, activations.
    other: f64,
}

impl SplitReport {
    fn new(timings: &Timings) -> Option<SplitReport> {
        let split = timings.split.filter(|_| !timings.steps.is_empty())?;
        let steps: Duration = timings.steps.iter().sum();
        let mean = |sum: Duration| rounded(sum.as_secs_f64() * 1e3 / timings.steps.len() as f64, 3);
        Some(SplitReport {
            linear: mean(split.linear),
            attention: mean(split.attention),
            head: mean(split.head),
            sampling: mean(steps.saturating_sub(split.total())),
            other: mean(split.other),
        })
    }
}

/// A request with its defaults filled in; null where the unmasker or the cache has no use for it.
#[derive(Debug, Serialize)]
pub(crate) struct RequestReport {
    max_tokens: usize,
    recipe: &'static str,
    steps: usize,
    block_length: usize,
    unmask: &'static str,
    threshold: Option<f64>,
    low: Option<f64>,
    factor: Option<f64>,
    entropy: Option<f64>,
    add: Option<f64>,
    activate: Option<f64>,
    back: Option<f64>,
    cache: &'static str,
    refresh: Option<usize>,
    refresh_drift: Option<f64>,
    window: Option<usize>,
    freeze_prompt: bool,
    dirty_rows: usize,
    delay: Option<usize>,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    alg_temp: f64,
    eps: f64,
    cfg_scale: f64,
    banned: Vec<u32>,
    no_repeat: usize,
    eos: EndPolicy,
    full_logits: bool,
}

impl RequestReport {
    /// A request and the settings that it became.
    pub(crate) fn new(spec: &ModelSpec, request: &Request, settings: &Settings) -> RequestReport {
        let (numbers, cache) = (&settings.numbers, &settings.cache);
        // What the library refuses when it is given is what this run has no use for.
        let used = |value: f64, set: fn(&mut Request, f64)| {
            let mut given = request.clone();
            set(&mut given, value);
            given.settings(spec, Vec::new(), request.max_tokens).is_ok().then_some(value)
        };
        let delay = used(cache.delay as f64, |request, n| request.delay = Some(n as usize)).map(|_| cache.delay);
        RequestReport {
            max_tokens: request.max_tokens,
            recipe: request.recipe.name(),
            steps: settings.steps,
            block_length: settings.block_length,
            unmask: settings.unmask.name(),
            threshold: used(numbers.threshold, |request, n| request.threshold = Some(n)),
            low: used(numbers.low, |request, n| request.low = Some(n)),
            factor: used(numbers.factor, |request, n| request.factor = Some(n)),
            entropy: used(numbers.entropy, |request, n| request.entropy = Some(n)),
            add: used(numbers.add, |request, n| request.add = Some(n)),
            activate: used(numbers.activate, |request, n| request.activate = Some(n)),
            back: used(numbers.back, |request, n| request.back = Some(n)),
            cache: cache.policy.name(),
            refresh: cache.refresh,
            refresh_drift: cache.refresh_drift,
            window: cache.window,
            freeze_prompt: cache.freeze_prompt,
            dirty_rows: cache.dirty_rows,
            delay,
            temperature: request.temperature,
            top_p: request.top_p,
            top_k: request.top_k,
            alg_temp: request.alg_temp,
            eps: request.eps,
            cfg_scale: request.cfg_scale,
            banned: request.banned.clone(),
            no_repeat: request.no_repeat,
            eos: request.eos,
            full_logits: request.full_logits,
        }
    }

    /// The numbers that the unmasker decides by, as they would be given.
    fn numbers(&self) -> String {
        let numbers = [
            ("threshold", self.threshold),
            ("low", self.low),
            ("factor", self.factor),
            ("entropy", self.entropy),
            ("add", self.add),
            ("activate", self.activate),
            ("back", self.back),
        ];
        numbers.iter().filter_map(|(name, number)| number.map(|number| format!(", {name} {number}"))).collect()
    }

    /// What the cache is composed with.
    fn cache(&self) -> String {
        let counts = [("refresh", self.refresh), ("window", self.window), ("delay", self.delay)];
        let mut text = self.cache.to_owned();
        for (name, count) in counts {
            text.extend(count.map(|count| format!(", {name} {count}")));
        }
        text.extend(self.refresh_drift.map(|drift| format!(", refresh drift {drift}")));
        if self.dirty_rows > 0 {
            text.push_str(&format!(", dirty rows {}", self.dirty_rows));
        }
        if self.freeze_prompt {
            text.push_str(", frozen prompt");
        }
        text
    }
}

impl RunReport {
    /// Sums up a run.
    pub(crate) fn new(
        model: &Model,
        device: &Device,
        request: &Request,
        settings: &Settings,
        generation: &Generation,
        written: Written,
        timings: &Timings,
    ) -> RunReport {
        let (canvas, statistics) = (&generation.canvas, &generation.statistics);
        let visible = written.tokens.len();
        let seconds = timings.generate.as_secs_f64();
        let step_ms: Vec<f64> = timings.steps.iter().map(|step| rounded(step.as_secs_f64() * 1e3, 3)).collect();
        let per_visible = |value: f64| (visible > 0).then_some(value);
        RunReport {
            version: env!("CARGO_PKG_VERSION"),
            model: model.spec().name.clone(),
            architecture: model.spec().architecture,
            quantisation: quantisation(model.gguf()),
            device: model.place().to_owned(),
            threads: device.processor().threads(),
            seed: request.seed,
            request: RequestReport::new(model.spec(), request, settings),
            auto: timings.auto.clone(),
            prompt_tokens: written.given,
            canvas: canvas.len(),
            steps: statistics.steps,
            nfe: statistics.nfe,
            rows: statistics.rows,
            cache_exact: settings.cache.is_exact(),
            refreshed_steps: timings.refreshed,
            commits: statistics.commits,
            remasks: statistics.remasks,
            commits_per_step: statistics.commits_per_step().map(|commits| rounded(commits, 3)),
            visible_tokens: visible,
            rows_per_visible_token: per_visible(rounded(statistics.rows as f64 / visible as f64, 2)),
            visible_tokens_per_s: per_visible(rounded(visible as f64 / seconds, 2)).filter(|_| seconds > 0.0),
            load_s: rounded(timings.load.as_secs_f64(), 6),
            first_step_s: timings.steps.first().map(|step| rounded(step.as_secs_f64(), 6)),
            generate_s: rounded(seconds, 6),
            ms_per_step: (!step_ms.is_empty()).then(|| rounded(step_ms.iter().sum::<f64>() / step_ms.len() as f64, 3)),
            split_ms_per_step: SplitReport::new(timings),
            step_ms,
            peak_rss_bytes: peak_rss(),
            peak_gpu_bytes: model.peak_gpu_bytes(),
            finish: match generation.finish {
                Finish::Interrupted => "interrupted",
                _ if written.ended => "stop",
                _ => "length",
            },
            stopped_early: generation.finish == Finish::EndToken,
            tokens: written.tokens,
            text: written.text,
            scheduled: settings.unmask.is_scheduled(),
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
        row("recipe", request.recipe.to_owned());
        if let Some(auto) = &self.auto {
            row("auto", auto.line());
        }
        row("unmasker", format!("{}{}", request.unmask, request.numbers()));
        let exact = if self.cache_exact { "exact" } else { "approximate: the text may differ from --cache none" };
        row("cache", format!("{} ({exact})", request.cache()));
        let of = if self.scheduled { format!(" of {}", request.steps) } else { String::new() };
        let (length, refreshed) = (request.block_length, self.refreshed_steps);
        row("steps", format!("{}{of}, blocks of {length}, {refreshed} refreshed", self.steps));
        row("commits per step", optional(self.commits_per_step, ""));
        row("load", format!("{:.1} ms", self.load_s * 1e3));
        row("first step", optional(self.first_step_s.map(|s| rounded(s * 1e3, 1)), " ms"));
        row("step", optional(self.ms_per_step.map(|ms| rounded(ms, 2)), " ms"));
        if let Some(split) = &self.split_ms_per_step {
            let parts = [
                ("linear", split.linear),
                ("attention", split.attention),
                ("head", split.head),
                ("sampling", split.sampling),
                ("other", split.other),
            ];
            let parts = parts.map(|(name, ms)| format!("{name} {}", rounded(ms, 2)));
            row("of it", format!("{} ms", parts.join(", ")));
        }
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
        if let Some(bytes) = self.peak_gpu_bytes {
            row("peak GPU memory", format!("{} MiB", rounded(bytes as f64 / f64::from(1 << 20), 1)));
        }
        row("finish", format!("{}{}", self.finish, if self.stopped_early { " (before the last step)" } else { "" }));
    }

    /// Whether the model ended its answer before it began.
    pub(crate) fn is_empty(&self) -> bool {
        self.visible_tokens == 0
    }
}

pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The tensor types that hold at least a tenth of the model's bytes, the largest first.
pub(crate) fn quantisation(gguf: &Gguf) -> String {
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
