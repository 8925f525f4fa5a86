//! What a recipe costs on a model with random weights: real rows through the real forward pass, with a scripted confidence.
//!
//! ```text
//! cargo run --release -p demask --example scripted_confidence -- MODEL RECIPE [STEPS]
//! ```
//!
//! Random weights are sure of nothing, so a threshold would decide one position per step whatever the recipe. Here every
//! forward pass is computed as it is, and only the confidences of its guesses are replaced: in each step as many of the
//! leftmost open positions are sure as make 2.8 positions per step over the run (what Fast-dLLM's threshold rule reaches
//! with LLaDA-8B). Guesses become one plain token, so that no end token ends the answer. The canvas is a prompt of 150
//! tokens and 256 open positions in blocks of 32. Prints one JSON object; `bench/decode.py` reads it.
#![allow(clippy::print_stdout, reason = "its only output")]

use std::ops::ControlFlow;
use std::time::Instant;

use demask::diffusion::generate;
use demask::model::{FaultWatch, Plan, Prediction};
use demask::{Device, Error, MaskPredictor, ModelFile, ModelSpec, Recipe, Request};

const PROMPT: usize = 150;
const OPEN: usize = 256;
const BLOCK: usize = 32;
/// Positions that a step decides.
const COMMITS: f64 = 2.8;
/// A token that ends nothing.
const PLAIN: u32 = 7;

/// A model whose guesses are as sure as the script says.
struct Scripted {
    model: Box<dyn MaskPredictor>,
    steps: usize,
    decided: usize,
}

impl MaskPredictor for Scripted {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn predict(&mut self, tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        self.model.predict(tokens, plan, out)?;
        self.steps += 1;
        let due = (self.steps as f64 * COMMITS) as usize;
        // A block's last step has few positions left; later steps make up for it.
        let sure = (due - self.decided.min(due)).clamp(1, out.statistics.len().max(1));
        self.decided += sure;
        for (index, row) in out.statistics.iter_mut().enumerate() {
            row.token = PLAIN;
            row.probability = if index < sure { 0.99 } else { 0.01 };
        }
        Ok(())
    }

    fn row_values(&self, out: &mut Vec<f32>) -> Result<(), Error> {
        self.model.row_values(out)
    }

    fn fault_watch(&mut self) -> Option<&mut FaultWatch> {
        self.model.fault_watch()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, recipe, rest @ ..] = &arguments[..] else {
        return Err("usage: scripted_confidence MODEL RECIPE [STEPS]".into());
    };
    let recipe = Recipe::from_name(recipe).ok_or("there is no such recipe")?;
    let most = rest.first().map_or(Ok(usize::MAX), |steps| steps.parse())?;
    let device = Device::cpu(None)?;
    let begun = Instant::now();
    let model = ModelFile::open(path)?.load(&device, &mut |_, _| {})?;
    let load = begun.elapsed().as_secs_f64();

    let request = Request { max_tokens: OPEN, recipe, block_length: Some(BLOCK), ..Request::default() };
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|position| 100 + position % 100).collect();
    let canvas = model.canvas(&prompt, OPEN)?;
    let (run, predictor) = model.start(canvas, &request)?;
    let mut scripted = Scripted { model: predictor, steps: 0, decided: 0 };
    let (mut seconds, mut rows) = (Vec::new(), Vec::new());
    let mut start = Instant::now();
    let generation = generate(&mut scripted, run, &mut |step, _| {
        seconds.push(start.elapsed().as_secs_f64());
        rows.push(step.rows);
        start = Instant::now();
        if seconds.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let statistics = generation.statistics;
    println!(
        "{}",
        serde_json::json!({
            "recipe": recipe.name(), "device": device.describe(), "load_seconds": load, "prompt": PROMPT, "open": OPEN,
            "block_length": BLOCK, "steps": statistics.steps, "commits_per_step": statistics.commits_per_step(),
            "rows": statistics.rows, "visible_tokens": statistics.visible_tokens, "step_rows": rows, "step_seconds": seconds,
        })
    );
    Ok(())
}
