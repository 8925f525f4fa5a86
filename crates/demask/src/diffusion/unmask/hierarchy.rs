//! The surest guess of every gap, so that gaps are halved rather than eaten from one side.

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::sampler::Guess;

/// dInfer's hierarchical decoding (Ma et al. 2025): the surest guess of each run of neighbouring open
/// positions if its probability is over `low`, every guess over `threshold`, and always the surest of all.
pub(super) struct Hierarchy {
    pub(super) threshold: f64,
    pub(super) low: f64,
}

impl Unmasker for Hierarchy {
    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| Measure::Probability.of(guess, step)).collect();
        let mut chosen: Vec<usize> = (0..guesses.len()).filter(|&i| sure[i] > self.threshold).collect();
        chosen.extend(ranked(&sure).first());
        let mut start = 0;
        for run in guesses.chunk_by(|a, b| a.position + 1 == b.position) {
            let best = ranked(&sure[start..start + run.len()]).first().map(|&i| start + i);
            chosen.extend(best.filter(|&i| sure[i] > self.low));
            start += run.len();
        }
        transfer(step, guesses, &sure, chosen)
    }
}
