//! A fixed number of positions per step, the surest first: LLaDA's reference sampler and Dream's ordered ones.

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::random::Stream;
use crate::diffusion::sampler::Guess;
use crate::diffusion::schedule::{share, timestep_fraction};
use crate::diffusion::settings::Schedule;

/// LLaDA (Nie et al. 2025, Algorithm 5, `low_confidence` and `random`) and Dream (`maskgit_plus`, `topk_margin`,
/// `entropy`).
pub(super) struct Quota {
    pub(super) schedule: Schedule,
    pub(super) measure: Measure,
    /// Over 0: positions are drawn without replacement in proportion to `exp(confidence / alg_temp)` (Dream).
    pub(super) alg_temp: f64,
}

impl Quota {
    fn count(&self, step: &Step<'_>) -> usize {
        let (block, local) = (step.block, step.number - step.block.first_step);
        match self.schedule {
            Schedule::Even => {
                // What is due by the end of this step, less what is decided: steps that had to leave something are made up.
                let asked = step.canvas.asked_in(block.range.clone());
                let decided = asked - step.canvas.open_in(block.range.clone()).count();
                let due: usize = (0..block.steps.min(local + 1)).map(|step| share(asked, block.steps, step)).sum();
                due.saturating_sub(decided)
            }
            Schedule::Timestep { eps } => {
                let open = step.open().count();
                (open as f64 * timestep_fraction(local, block.steps, eps)) as usize
            }
        }
    }
}

impl Unmasker for Quota {
    fn acts(&mut self, step: &Step<'_>) -> bool {
        self.count(step) > 0
    }

    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let confidences: Vec<f64> = guesses.iter().map(|guess| self.measure.of(guess, step)).collect();
        // Adding Gumbel noise and taking the greatest is drawing without replacement from the softmax.
        let key = |(confidence, guess): (&f64, &Guess)| {
            let draw = || step.random.at(step.number, guess.position, Stream::Position).gumbel(0);
            if self.alg_temp > 0.0 { confidence / self.alg_temp + draw() } else { *confidence }
        };
        let keys: Vec<f64> = confidences.iter().zip(guesses).map(key).collect();
        let mut chosen = ranked(&keys);
        chosen.truncate(self.count(step));
        transfer(step, guesses, &confidences, chosen)
    }
}
