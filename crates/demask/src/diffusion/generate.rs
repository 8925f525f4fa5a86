//! The denoising loop.
//!
//! A canvas is decided block by block. Each step predicts the rows that score the block's open positions, turns them
//! into guesses, lets the unmasker choose a transfer and applies it (LLaDA: Nie et al. 2025, Algorithms 4 and 5).

use std::ops::ControlFlow;

use super::canvas::{Block, Canvas, Transfer, blocks};
use super::random::Random;
use super::sampler::Guess;
use super::settings::{EndPolicy, Settings};
use super::unmask::{Step, Unmasker};
use crate::error::Error;
use crate::model::{MaskPredictor, Output, Plan, Prediction};

/// What one denoising step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the step; steps that could do nothing are left out but keep their number.
    pub step: usize,
    /// Block it worked on.
    pub block: Block,
    /// The edits.
    pub transfer: Transfer,
    /// Forward passes it took.
    pub nfe: usize,
    /// Rows pushed through the layers.
    pub rows: usize,
}

/// Sums over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Statistics {
    /// Denoising steps that ran.
    pub steps: usize,
    /// Forward passes (guidance takes two per step).
    pub nfe: usize,
    /// Rows pushed through the layers.
    pub rows: usize,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// No open position is left.
    Complete,
    /// What is still open lies behind the answer's end token.
    EndToken,
    /// The observer asked to stop.
    Interrupted,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The canvas as it was left.
    pub canvas: Canvas,
    /// Sums.
    pub statistics: Statistics,
    /// Why it ended.
    pub finish: Finish,
}

/// Runs a generation to its end. `observer` sees every step and the canvas after it, and may stop the run.
pub fn generate(
    model: &mut dyn MaskPredictor,
    mut run: Denoising,
    observer: &mut dyn FnMut(&StepReport, &Canvas) -> ControlFlow<()>,
) -> Result<Generation, Error> {
    while let Some(report) = run.step(model)? {
        if observer(&report, run.canvas()).is_break() {
            return Ok(run.finish(Some(Finish::Interrupted)));
        }
    }
    Ok(run.finish(None))
}

/// A run that is advanced step by step, so that several can take turns on one model.
pub struct Denoising {
    canvas: Canvas,
    settings: Settings,
    blocks: Vec<Block>,
    /// The unmasker of the first of `blocks`.
    unmasker: Box<dyn Unmasker>,
    /// Number of the next step.
    number: usize,
    statistics: Statistics,
    prediction: Prediction,
}

impl Denoising {
    /// A run over the positions of `canvas` that are open.
    pub fn new(canvas: Canvas, settings: Settings) -> Denoising {
        let mut blocks = blocks(&canvas, settings.block_length, settings.steps);
        blocks.reverse();
        let unmasker = settings.unmask.unmasker(&settings);
        let (statistics, prediction) = (Statistics::default(), Prediction::default());
        Denoising { canvas, settings, blocks, unmasker, number: 0, statistics, prediction }
    }

    /// The canvas as it is now.
    pub fn canvas(&self) -> &Canvas {
        &self.canvas
    }

    /// Runs the next step that can change something; `None` when nothing is left to decide.
    pub fn step(&mut self, model: &mut dyn MaskPredictor) -> Result<Option<StepReport>, Error> {
        let random = Random::new(self.settings.seed);
        while let Some(block) = self.blocks.last().cloned() {
            let open: Vec<usize> = self.canvas.open_in(block.range.clone()).collect();
            if self.is_final() {
                return Ok(None);
            }
            if open.is_empty() {
                self.next_block();
                continue;
            }
            let number = self.number;
            self.number += 1;
            let step = Step { canvas: &self.canvas, block: &block, number, random };
            if !self.unmasker.acts(&step) {
                continue;
            }
            let rows = predict(model, &self.canvas, &open, &self.settings, &mut self.prediction)?;
            let guesses = guess(model, &open, &self.settings, number, &mut self.prediction)?;
            let transfer = self.unmasker.step(&step, &guesses);
            self.canvas.apply(&transfer);
            let nfe = model.forwards();
            self.statistics.steps += 1;
            self.statistics.nfe += nfe;
            self.statistics.rows += nfe * rows;
            return Ok(Some(StepReport { step: number, block, transfer, nfe, rows: nfe * rows }));
        }
        Ok(None)
    }

    /// Ends the run.
    pub fn finish(self, finish: Option<Finish>) -> Generation {
        let open = self.canvas.frontier() < self.canvas.len();
        let finish = finish.unwrap_or(if open { Finish::EndToken } else { Finish::Complete });
        Generation { canvas: self.canvas, statistics: self.statistics, finish }
    }

    fn next_block(&mut self) {
        if let Some(done) = self.blocks.pop() {
            self.number = done.first_step + done.steps;
            self.unmasker = self.settings.unmask.unmasker(&self.settings);
        }
    }

    /// Whether the text before the first end token can't change any more: unmasking only fills open positions.
    fn is_final(&self) -> bool {
        let ends = |p: usize| self.settings.end_tokens.contains(&self.canvas.tokens()[p]);
        self.settings.eos == EndPolicy::Stop
            && self
                .canvas
                .asked_range()
                .find(|&p| self.canvas.is_open(p) || (self.canvas.is_asked(p) && ends(p)))
                .is_some_and(|p| !self.canvas.is_open(p))
    }
}

/// Runs the model on the canvas; the prediction has one row per open position. Returns the rows run.
fn predict(
    model: &mut dyn MaskPredictor,
    canvas: &Canvas,
    open: &[usize],
    settings: &Settings,
    prediction: &mut Prediction,
) -> Result<usize, Error> {
    let rows: Vec<u32> = (0..canvas.len() as u32).collect();
    let mut wanted: Vec<u32> = open.iter().map(|&p| model.spec().scoring_row(p)).collect();
    wanted.dedup();
    if settings.full_logits {
        wanted.clone_from(&rows);
    }
    let output = if settings.sampler.needs_statistics_only() && settings.cfg_scale == 0.0 && !settings.full_logits {
        Output::Statistics { excluded: &[settings.sampler.mask_token] }
    } else {
        Output::Logits
    };
    model.predict(canvas.tokens(), &Plan { rows: &rows, wanted: &wanted, output }, prediction)?;
    Ok(rows.len())
}

/// One guess per open position.
fn guess(
    model: &dyn MaskPredictor,
    open: &[usize],
    settings: &Settings,
    number: usize,
    prediction: &mut Prediction,
) -> Result<Vec<Guess>, Error> {
    let random = Random::new(settings.seed);
    let vocab = model.spec().vocab;
    open.iter()
        .map(|&position| {
            let index = prediction.index_of(model.spec().scoring_row(position));
            let bad = || Error::NotFinite { step: number, position };
            if let Some(row) = prediction.statistics.get(index) {
                return if row.finite { Ok(settings.sampler.from_statistics(position, row)) } else { Err(bad()) };
            }
            // Two positions may share a row (Dream's first two), so each works on a copy.
            let mut row = prediction.logits[index * vocab..(index + 1) * vocab].to_vec();
            if row.iter().any(|logit| !logit.is_finite()) {
                return Err(bad());
            }
            Ok(settings.sampler.from_logits(position, number, random, &mut row))
        })
        .collect()
}
