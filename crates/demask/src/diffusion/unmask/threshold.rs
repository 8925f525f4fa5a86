//! Every guess that is sure enough, and always the surest.

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::sampler::Guess;

/// Fast-dLLM (Wu et al. 2025, confidence-aware parallel decoding): every probability of at least `threshold`, with entropies in its place every
/// one of at most `-threshold`.
pub(super) struct Threshold {
    pub(super) measure: Measure,
    /// In the measure's own scale.
    pub(super) threshold: f64,
}

impl Unmasker for Threshold {
    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| self.measure.of(guess, step)).collect();
        let surest = ranked(&sure).first().copied();
        let goes = |i: &usize| Some(*i) == surest || sure[*i] >= self.threshold;
        transfer(step, guesses, &sure, (0..guesses.len()).filter(goes).collect())
    }
}
