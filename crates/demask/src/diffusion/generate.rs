//! The denoising loop.
//!
//! A canvas is decided block by block. Each step chooses the rows to run, predicts them, turns them into guesses, lets
//! the unmasker choose a transfer and applies it (LLaDA: Nie et al. 2025, Algorithms 4 and 5).

use std::ops::ControlFlow;

use super::cache::Cache;
use super::canvas::{Block, Canvas, blocks};
use super::random::Random;
use super::scoring::Scoring;
use super::settings::{EndPolicy, Settings};
use super::unmask::{Step, Unmasker};
use crate::error::Error;
use crate::model::MaskPredictor;

pub use super::report::{Finish, Generation, Statistics, StepReport};

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
    /// Blocks that aren't finished, the current one last.
    blocks: Vec<Block>,
    /// The unmasker of the current block.
    unmasker: Box<dyn Unmasker>,
    cache: Cache,
    scoring: Scoring,
    /// Number of the next step.
    number: usize,
    statistics: Statistics,
}

impl Denoising {
    /// A run over the positions of `canvas` that are open.
    pub fn new(canvas: Canvas, settings: Settings) -> Denoising {
        let block_length = if settings.unmask.spans_blocks() { canvas.len() } else { settings.block_length };
        let mut blocks = blocks(&canvas, block_length.max(1), settings.steps);
        blocks.reverse();
        let unmasker = settings.unmask.unmasker(&settings);
        let cache = Cache::new(&canvas, &settings);
        let (scoring, statistics) = (Scoring::default(), Statistics::default());
        Denoising { canvas, settings, blocks, unmasker, cache, scoring, number: 0, statistics }
    }

    /// The canvas as it is now.
    pub fn canvas(&self) -> &Canvas {
        &self.canvas
    }

    /// Runs the next step that can change something; `None` when nothing is left to decide. A step with stale keys and
    /// values that would commit nothing but end tokens commits nothing: the next one decides.
    pub fn step(&mut self, model: &mut dyn MaskPredictor) -> Result<Option<StepReport>, Error> {
        let random = Random::new(self.settings.seed);
        while let Some(block) = self.blocks.last().cloned() {
            if self.is_final(&block) {
                return Ok(None);
            }
            if self.canvas.open_in(block.range.clone()).next().is_none() {
                self.next_block();
                continue;
            }
            let number = self.number;
            self.number += 1;
            let horizon = self.cache.horizon(&self.canvas);
            let mut step = Step { canvas: &self.canvas, block: &block, number, random, horizon, shadow: Vec::new() };
            if !self.unmasker.acts(&step) {
                continue;
            }
            let candidates = self.unmasker.candidates(&step);
            let wanted = self.scoring.wanted(model.spec(), &candidates);
            let rows = self.cache.plan(&self.canvas, &block, &candidates, &wanted, model.spec().shift_logits);
            self.scoring.predict(model, &self.canvas, &rows, &wanted, &self.settings, &*self.unmasker)?;
            let guesses =
                self.scoring.guesses(model.spec(), &candidates, &self.settings, number, &mut *self.unmasker)?;
            let shadow_rows = self.scoring.shadow(model, &mut step, &rows, &*self.unmasker)?;
            let mut transfer = self.unmasker.step(&step, &guesses);
            self.cache.hold_back(&mut transfer, rows.refreshed);
            self.canvas.apply(&transfer);
            self.cache.applied(&self.canvas, &transfer);

            let nfe = model.forwards();
            let (settled, refreshed) = (self.settled(), rows.refreshed);
            let rows = nfe * rows.rows.len() + shadow_rows;
            let report = StepReport { step: number, block, transfer, nfe, rows, refreshed, settled };
            self.statistics.add(&report);
            return Ok(Some(report));
        }
        Ok(None)
    }

    /// Ends the run.
    pub fn finish(mut self, finish: Option<Finish>) -> Generation {
        let open = self.canvas.frontier() < self.canvas.len();
        let finish = finish.unwrap_or(if open { Finish::EndToken } else { Finish::Complete });
        let asked = self.canvas.asked_range();
        let ends = self.canvas.open_or_end(&self.settings.end_tokens).unwrap_or(asked.end);
        self.statistics.visible_tokens = self.canvas.asked_in(asked.start..ends);
        Generation { canvas: self.canvas, statistics: self.statistics, finish }
    }

    fn next_block(&mut self) {
        let Some(done) = self.blocks.pop() else { return };
        if self.settings.unmask.is_scheduled() {
            self.number = self.number.max(done.first_step + done.steps);
        }
        if let Some(next) = self.blocks.last_mut() {
            next.first_step = self.number;
            self.unmasker = self.settings.unmask.unmasker(&self.settings);
        }
    }

    /// Positions before this one are decided for good.
    fn settled(&self) -> usize {
        let frontier = self.canvas.frontier();
        let revisable = self.blocks.last().filter(|b| self.settings.unmask.revises() && frontier < b.range.end);
        revisable.map_or(frontier, |block| frontier.min(block.range.start))
    }

    /// Whether the text before the first end token can't change any more.
    fn is_final(&self, block: &Block) -> bool {
        let may_change = self.settings.unmask.revises() && self.canvas.open_in(block.range.clone()).next().is_some();
        let first = self.canvas.open_or_end(&self.settings.end_tokens);
        self.settings.eos == EndPolicy::Stop && !may_change && first.is_some_and(|p| !self.canvas.is_open(p))
    }
}
