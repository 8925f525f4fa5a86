//! The more guesses go at once, the surer the least sure of them must be.

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::sampler::Guess;

/// Fast-dLLM (Wu et al. 2025, confidence-aware parallel decoding): sorted by probability, the longest prefix whose n-th guess has at least
/// `1 - factor / (n + 1)`; the first always goes.
pub(super) struct Factor {
    pub(super) factor: f64,
}

impl Unmasker for Factor {
    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| Measure::Probability.of(guess, step)).collect();
        let mut order = ranked(&sure);
        let enough = |n: usize| n == 1 || sure[order[n - 1]] >= 1.0 - self.factor / (n + 1) as f64;
        let count = (1..=order.len()).take_while(|&n| enough(n)).count();
        order.truncate(count);
        transfer(step, guesses, &sure, order)
    }
}
