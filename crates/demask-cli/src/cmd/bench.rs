//! `demask bench`: what this machine reaches, in matrix products and in forward passes.

use std::time::{Duration, Instant};

use anyhow::Result;
use demask::diffusion::Curve;
use demask::model::{Output, Plan, Prediction};
use demask::{Device, Model, ModelFile, Recipe, Request};
use demask_compute::quant::QUANT_TYPES;
use demask_compute::{Cpu, bench};
use demask_gguf::TensorInfo;
use serde::Serialize;

use super::auto::AutoReport;
use super::{load_model, read_model};
use crate::args::BenchArgs;
use crate::curves;
use crate::failure::Misuse;
use crate::output::Out;
use crate::report::peak_rss;

/// The canvas for which bench tells what `--recipe auto` chooses: tokens of the prompt, open positions.
const AUTO_CANVAS: (usize, usize) = (150, 128);

/// Everything that was measured.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    threads: usize,
    isa: &'static str,
    limits: Vec<Limit>,
    products: Vec<Product>,
    forward: Option<Forward>,
}

/// What a loop of one instruction pattern reaches on all threads.
#[derive(Serialize)]
struct Limit {
    name: &'static str,
    gmacs: f64,
}

/// A matrix product `[rows, k] x [n, k]`.
#[derive(Serialize)]
struct Product {
    ty: &'static str,
    n: usize,
    k: usize,
    rows: usize,
    /// 10^9 multiply-accumulates per second.
    gmacs: f64,
    /// Part of the limit of its instructions; none for types without a measured limit.
    share: Option<f64>,
    pack_seconds: f64,
}

/// Forward passes of a model.
#[derive(Serialize)]
struct Forward {
    model: String,
    architecture: &'static str,
    load_seconds: f64,
    /// Copying the file's tensors once into fresh memory on as many threads.
    copy_seconds: f64,
    passes: Vec<Pass>,
    /// What `--recipe auto` makes of them behind a prompt of 150 tokens with 128 open positions; null for a single row count.
    auto: Option<AutoReport>,
    peak_rss_bytes: Option<u64>,
}

/// Forward passes with `rows` rows, row statistics for the last `wanted`.
#[derive(Serialize)]
struct Pass {
    rows: usize,
    wanted: usize,
    best_seconds: f64,
    median_seconds: f64,
    seconds: Vec<f64>,
}

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let file = read_model(args.model.open()?)?;
    let context = file.spec().context;
    if let Some(rows) = args.rows.iter().find(|&&rows| rows > context) {
        let message = format!("--rows {rows} can't be used: the model's context has {context} positions");
        return Err(Misuse::new(message, format!("use row counts up to {context}")).into());
    }
    let device = args.device.open()?;
    let cpu = device.processor();
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        threads: cpu.threads(),
        isa: cpu.isa(),
        limits: Vec::new(),
        products: Vec::new(),
        forward: None,
    };
    if !args.forward_only {
        let budget = Duration::from_millis(args.budget_ms);
        report.limits = bench::peaks(cpu, budget).into_iter().map(|(name, gmacs)| Limit { name, gmacs }).collect();
        for row in QUANT_TYPES {
            for &(n, k) in &args.shapes {
                // A shape whose rows aren't whole quant blocks doesn't exist for this type.
                if row.ty.row_bytes(k).is_none() {
                    continue;
                }
                let found = bench::product(cpu, row.ty, args.product_rows, n, k, budget)?;
                let share = found.limit.map(|limit| found.gmacs / limit);
                let (gmacs, pack_seconds) = (found.gmacs, found.pack_seconds);
                report.products.push(Product {
                    ty: row.name,
                    n,
                    k,
                    rows: args.product_rows,
                    gmacs,
                    share,
                    pack_seconds,
                });
            }
        }
    }
    // Loading checks this too, but the copy comes first.
    let largest = file.gguf().tensors().iter().map(TensorInfo::byte_len).max().unwrap_or(0);
    if let Some(available) = device.memory_available().filter(|&available| available < largest) {
        let (file, needed) = (file.gguf().name().to_owned(), file.memory_needed());
        return Err(demask::Error::Memory { file, needed, available }.into());
    }
    let copy_seconds = time_copy(cpu, &file);
    let start = Instant::now();
    let model = load_model(file, &device)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let passes: Vec<Pass> = args.rows.iter().map(|&rows| time_forward(&model, rows, args)).collect::<Result<_>>()?;
    let auto = auto(&model, &device, &passes);
    let (name, architecture) = (model.spec().name.clone(), model.spec().architecture);
    let peak_rss_bytes = peak_rss();
    let forward = Forward { model: name, architecture, load_seconds, copy_seconds, passes, auto, peak_rss_bytes };
    report.forward = Some(forward);

    let mut out = Out::stdout();
    if args.json {
        out.json(&report)?;
    } else {
        out.text(&table(&report))?;
    }
    out.flush()
}

/// What `--recipe auto` makes of the passes, which are kept as the curve that it goes by.
fn auto(model: &Model, device: &Device, passes: &[Pass]) -> Option<AutoReport> {
    let (given, open) = AUTO_CANVAS;
    let mut points: Vec<(usize, f64)> = passes.iter().map(|pass| (pass.rows, pass.best_seconds)).collect();
    points.sort_by_key(|point| point.0);
    points.dedup_by_key(|point| point.0);
    let curve = Curve::new(points).filter(|curve| curve.points().len() > 1)?;
    curves::keep(model, device, &curve);
    let request = Request { recipe: Recipe::Auto, max_tokens: open, ..Request::default() };
    Some(AutoReport::new(&curve, &request.tuned(&curve, model.spec(), given, open).1))
}

/// Seconds for copying a model's tensors once into fresh memory, one after the other. The better of two: the first one may
/// wait for memory that the system has to find.
fn time_copy(cpu: &Cpu, file: &ModelFile) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let mut seconds = 0.0;
        for tensor in file.gguf().tensors() {
            let bytes = file.gguf().bytes(tensor);
            seconds += bench::copy(cpu, &bytes);
            // Pages that this has mapped would make loading look better.
            bytes.release(0..bytes.len());
        }
        best = best.min(seconds);
    }
    best
}

/// Times forward passes over a canvas of `rows` positions, all run, the last ones scored.
fn time_forward(model: &Model, rows: usize, args: &BenchArgs) -> Result<Pass> {
    let wanted = args.wanted.min(rows);
    let canvas = model.canvas(&[], rows)?;
    let mut predictor = model.predictor(&canvas, 0.0);
    let all: Vec<u32> = (0..rows as u32).collect();
    let excluded = [model.spec().mask_token];
    let output = Output::Statistics { excluded: &excluded };
    let plan = Plan { rows: &all, wanted: &all[rows - wanted..], output };
    let mut prediction = Prediction::default();
    let mut seconds = Vec::with_capacity(args.repeat);
    for _ in 0..args.repeat {
        let start = Instant::now();
        predictor.predict(canvas.tokens(), &plan, &mut prediction)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    Ok(Pass { rows, wanted, best_seconds: sorted[0], median_seconds: sorted[sorted.len() / 2], seconds })
}

fn table(report: &Report) -> String {
    let mut lines = vec![format!("{} threads, {}", report.threads, report.isa)];
    if !report.limits.is_empty() {
        lines.push(format!("\n{:44} {:>9}", "limit of the instructions", "GMAC/s"));
        lines.extend(report.limits.iter().map(|limit| format!("{:44} {:>9.1}", limit.name, limit.gmacs)));
    }
    if !report.products.is_empty() {
        lines.push(format!("\n{:8} {:>7} {:>7} {:>5} {:>9} {:>9}", "product", "n", "k", "rows", "GMAC/s", "of limit"));
        lines.extend(report.products.iter().map(|p| {
            let share = p.share.map_or_else(String::new, |share| format!("{:>8.0}%", share * 100.0));
            format!("{:8} {:>7} {:>7} {:>5} {:>9.1} {share}", p.ty, p.n, p.k, p.rows, p.gmacs)
        }));
    }
    if let Some(forward) = &report.forward {
        let (load, copy) = (forward.load_seconds, forward.copy_seconds);
        lines.push(format!("\n{}: loaded in {load:.2} s, {:.1} times a copy of the file", forward.model, load / copy));
        lines.push(format!("{:>7} {:>7} {:>12} {:>12} {:>9}", "rows", "scored", "best ms", "median ms", "rows/s"));
        lines.extend(forward.passes.iter().map(|pass| {
            let (best, median) = (pass.best_seconds * 1e3, pass.median_seconds * 1e3);
            let rate = pass.rows as f64 / pass.median_seconds;
            format!("{:>7} {:>7} {best:>12.2} {median:>12.2} {rate:>9.1}", pass.rows, pass.wanted)
        }));
        if let Some(auto) = &forward.auto {
            let (given, open) = AUTO_CANVAS;
            lines.push(format!("--recipe auto behind {given} tokens, {open} open: {}", auto.line()));
        }
        if let Some(bytes) = forward.peak_rss_bytes {
            lines.push(format!("peak memory {:.1} MiB", bytes as f64 / (1 << 20) as f64));
        }
    }
    lines.join("\n") + "\n"
}
