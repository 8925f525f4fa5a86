//! From canvas to guesses: runs the chosen rows and samples from what comes back.

use demask_compute::{Sampling, SamplingPlace};

use super::cache::RowPlan;
use super::repetition::Repetition;
use super::sampler::{Guess, softmax_of};
use super::settings::Settings;
use super::unmask::{Held, Step, Unmasker};
use crate::error::Error;
use crate::model::{Fault, FaultPlace, FaultWatch, MaskPredictor, ModelSpec, Output, Plan, Prediction};

/// Buffers of a run's predictions.
#[derive(Default)]
pub(super) struct Scoring {
    prediction: Prediction,
    shadow: Prediction,
}

impl Scoring {
    /// The rows that score the candidates, ascending.
    pub(super) fn wanted(&self, spec: &ModelSpec, candidates: &[usize]) -> Vec<u32> {
        let mut wanted: Vec<u32> = candidates.iter().map(|&p| spec.scoring_row(p)).collect();
        wanted.dedup();
        wanted
    }

    /// Runs the planned rows. Tokens are drawn by the device where it can: one per candidate.
    pub(super) fn predict(
        &mut self,
        model: &mut dyn MaskPredictor,
        step: &Step<'_>,
        plan: &RowPlan,
        candidates: &[usize],
        wanted: &[u32],
        settings: &Settings,
        unmasker: &dyn Unmasker,
    ) -> Result<(), Error> {
        let whole_rows =
            settings.cfg_scale > 0.0 || settings.full_logits || settings.no_repeat > 0 || unmasker.adjusts_logits();
        let (sampler, spec) = (&settings.sampler, model.spec());
        let place = |&position: &usize| SamplingPlace {
            row: wanted.partition_point(|&row| row < spec.scoring_row(position)) as u32,
            position: position as u32,
        };
        let places: Vec<SamplingPlace>;
        let output = match sampler.device_rule() {
            _ if whole_rows => Output::Logits,
            _ if sampler.needs_statistics_only() => Output::Statistics { excluded: &[sampler.mask_token] },
            None => Output::Logits,
            Some(rule) => {
                places = candidates.iter().map(place).collect();
                Output::Samples(Sampling {
                    rule,
                    temperature: sampler.temperature,
                    seed: settings.seed,
                    step: step.number as u32,
                    mask_token: sampler.mask_token,
                    places: &places,
                })
            }
        };
        let wanted = if settings.full_logits { &plan.rows } else { wanted };
        let tokens = &step.canvas.tokens()[..plan.visible];
        model.predict(tokens, &Plan { rows: &plan.rows, wanted, output }, &mut self.prediction)
    }

    /// One guess per candidate. If one's logits aren't finite, the prediction runs again to find out where they went wrong.
    pub(super) fn guesses(
        &mut self,
        model: &mut dyn MaskPredictor,
        step: &Step<'_>,
        plan: &RowPlan,
        candidates: &[usize],
        settings: &Settings,
        unmasker: &mut dyn Unmasker,
        guard: &mut Repetition<'_>,
    ) -> Result<Vec<Guess>, Error> {
        let mut guesses = Vec::with_capacity(candidates.len());
        for (index, &position) in candidates.iter().enumerate() {
            match self.guess(model.spec(), step, index, position, settings, unmasker, guard) {
                Some(guess) => guesses.push(guess),
                None => return Err(self.not_finite(model, step, plan, position)),
            }
        }
        Ok(guesses)
    }

    /// The guess for one position, the candidate number `index`; none if its logits aren't finite.
    fn guess(
        &self,
        spec: &ModelSpec,
        step: &Step<'_>,
        index: usize,
        position: usize,
        settings: &Settings,
        unmasker: &mut dyn Unmasker,
        guard: &mut Repetition<'_>,
    ) -> Option<Guess> {
        if let Some(sample) = self.prediction.samples.get(index) {
            return sample.finite.then(|| settings.sampler.drawn(position, sample));
        }
        let index = self.prediction.index_of(spec.scoring_row(position));
        if let Some(row) = self.prediction.statistics.get(index) {
            return row.finite.then(|| settings.sampler.greedy(position, row));
        }
        let row = &self.prediction.logits[index * spec.vocab..(index + 1) * spec.vocab];
        if row.iter().any(|logit| !logit.is_finite()) {
            return None;
        }
        // Two positions may share a row (Dream's first two), so each works on a copy.
        let mut row: Vec<f64> = row.iter().map(|&logit| f64::from(logit)).collect();
        settings.sampler.ban(&mut row);
        guard.ban(position, settings.sampler.mask_token, &mut row);
        unmasker.adjust(position, &mut row);
        Some(settings.sampler.guess(position, step.number, step.random, &mut row))
    }

    fn not_finite(&mut self, model: &mut dyn MaskPredictor, step: &Step<'_>, plan: &RowPlan, position: usize) -> Error {
        let row = model.spec().scoring_row(position);
        let head = Fault { row, place: FaultPlace::Head };
        let output = Output::Statistics { excluded: &[] };
        let again = Plan { rows: &plan.rows, wanted: &[row], output };
        let watches = model.fault_watch().map(FaultWatch::start).is_some();
        let ran = model.predict(&step.canvas.tokens()[..plan.visible], &again, &mut self.prediction).is_ok();
        let found = model.fault_watch().and_then(FaultWatch::finish);
        let fault = found.or((watches && ran).then_some(head));
        Error::NotFinite { step: step.number, position, fault }
    }

    /// What a masked shadow of the block says of the tokens that it holds, for unmaskers that ask. Returns the rows run.
    pub(super) fn shadow(
        &mut self,
        model: &mut dyn MaskPredictor,
        step: &mut Step<'_>,
        plan: &RowPlan,
        unmasker: &dyn Unmasker,
    ) -> Result<usize, Error> {
        if !unmasker.doubts() {
            return Ok(0);
        }
        let block = step.block.range.clone();
        let rows: Vec<u32> = block.clone().map(|p| p as u32).collect();
        model.predict_shadow(&step.canvas.tokens()[..plan.visible], &rows, &mut self.shadow)?;
        let vocab = model.spec().vocab;
        let held = block.clone().filter(|&p| step.canvas.is_asked(p) && !step.canvas.is_open(p));
        step.shadow = held
            .map(|position| {
                let row = &self.shadow.logits[(position - block.start) * vocab..][..vocab];
                if row.iter().any(|logit| !logit.is_finite()) {
                    return Err(Error::NotFinite { step: step.number, position, fault: None });
                }
                Ok(Held { position, probability: softmax_of(row, step.canvas.tokens()[position]) })
            })
            .collect::<Result<_, _>>()?;
        Ok(rows.len())
    }
}
