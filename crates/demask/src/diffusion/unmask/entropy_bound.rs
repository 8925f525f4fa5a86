//! As many guesses as a budget of entropy allows.

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::sampler::Guess;

/// EB-Sampler (Ben-Hamu et al. 2025): sorted by entropy, those before which the entropies sum to at most
/// `bound`, so that what they don't know of each other is bounded.
pub(super) struct EntropyBound {
    pub(super) bound: f64,
}

impl Unmasker for EntropyBound {
    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| Measure::PlainEntropy.of(guess, step)).collect();
        let mut order = ranked(&sure);
        let mut before = 0.0;
        let mut count = 0;
        while count < order.len() && before <= self.bound && (count == 0 || sure[order[count]].is_finite()) {
            before -= sure[order[count]];
            count += 1;
        }
        order.truncate(count);
        transfer(step, guesses, &sure, order)
    }
}
