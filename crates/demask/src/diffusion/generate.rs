//! The denoising loop.
//!
//! A canvas is decided block by block. Each step chooses the rows to run, predicts them, turns them into guesses, lets
//! the unmasker choose a transfer and applies it (LLaDA: Nie et al. 2025, Algorithms 4 and 5).

use std::ops::ControlFlow;

use super::agenda::Agenda;
use super::cache::Cache;
use super::canvas::Canvas;
use super::ending;
use super::random::Random;
use super::repetition::Repetition;
use super::report::{Finish, Generation, Statistics, StepReport};
use super::scoring::Scoring;
use super::settings::Settings;
use super::unmask::Step;
use crate::error::Error;
use crate::model::MaskPredictor;

/// Runs a generation to its end. `observer` sees every step and the canvas after it, and may stop the run.
///
/// # Errors
/// As [`Denoising::step`].
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
    agenda: Agenda,
    cache: Cache,
    scoring: Scoring,
    statistics: Statistics,
}

impl Denoising {
    /// A run over the positions of `canvas` that are open.
    pub fn new(canvas: Canvas, settings: Settings) -> Denoising {
        let agenda = Agenda::new(&canvas, &settings);
        let cache = Cache::new(&canvas, &settings);
        let (scoring, statistics) = (Scoring::default(), Statistics::default());
        Denoising { canvas, settings, agenda, cache, scoring, statistics }
    }

    /// The canvas as it is now.
    pub fn canvas(&self) -> &Canvas {
        &self.canvas
    }

    /// Runs the next step that can change something; `None` when nothing is left to decide. A step with stale keys and
    /// values that would commit nothing but end tokens commits nothing: the next one decides.
    ///
    /// # Errors
    /// Those of the predictor; [`Error::NotFinite`] for logits that are no numbers: the canvas is as before the step.
    pub fn step(&mut self, model: &mut dyn MaskPredictor) -> Result<Option<StepReport>, Error> {
        let random = Random::new(self.settings.seed);
        while let Some(block) = self.agenda.block(&self.canvas, &self.settings) {
            let number = self.agenda.next_number();
            let (canvas, settings, unmasker) = (&self.canvas, &self.settings, &mut *self.agenda.unmasker);
            let horizon = self.cache.horizon(canvas);
            let mut step = Step { canvas, block: &block, number, random, horizon, shadow: Vec::new() };
            if !unmasker.acts(&step) {
                continue;
            }
            let candidates = unmasker.candidates(&step);
            let wanted = self.scoring.wanted(model.spec(), &candidates);
            let rows = self.cache.plan(canvas, &block, &candidates, &wanted, model.spec().shift_logits);
            let mut guard = Repetition::new(canvas, settings);

            self.scoring.predict(model, &step, &rows, &candidates, &wanted, settings, unmasker)?;
            self.cache.observe(model, canvas, &rows)?;
            let guesses = self.scoring.guesses(model, &step, &rows, &candidates, settings, unmasker, &mut guard)?;
            let shadow_rows = self.scoring.shadow(model, &mut step, &rows, unmasker)?;
            let mut transfer = unmasker.step(&step, &guesses);
            guard.prune(&mut transfer);
            self.cache.hold_back(&mut transfer, rows.refreshed);
            self.canvas.apply(&transfer);
            self.cache.applied(&self.canvas, &transfer);

            let settled = ending::settled(&self.canvas, self.agenda.current(), &self.settings);
            let (nfe, refreshed) = (model.forwards(), rows.refreshed);
            let rows = nfe * rows.rows.len() + shadow_rows;
            let report = StepReport { step: number, block, transfer, nfe, rows, refreshed, settled };
            self.statistics.add(&report);
            return Ok(Some(report));
        }
        Ok(None)
    }

    /// Ends the run. `finish` is why it was ended early; `None` if [`Denoising::step`] had nothing left to decide.
    pub fn finish(self, finish: Option<Finish>) -> Generation {
        ending::generation(self.canvas, &self.settings, self.statistics, finish)
    }
}
