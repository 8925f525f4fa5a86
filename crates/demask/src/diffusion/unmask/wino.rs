//! Draft boldly, and open again what a second look doubts.

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::{Edit, EditKind, Transfer};
use crate::diffusion::sampler::Guess;

/// WINO (Hong et al. 2025, "Wide-In, Narrow-Out"): every guess over a low threshold goes, up to a part of what is open. Tokens that
/// the block holds are scored by a shadow of it that is all masked; those that fall under `back` are opened again, fewer
/// than were decided the step before, so that the block fills up.
pub(super) struct Wino {
    pub(super) threshold: f64,
    pub(super) back: f64,
    pub(super) mask_token: u32,
    /// Guesses that went the step before.
    accepted: usize,
}

impl Wino {
    pub(super) fn new(threshold: f64, back: f64, mask_token: u32) -> Wino {
        Wino { threshold, back, mask_token, accepted: 30 }
    }

    fn remasked(&self, step: &Step<'_>) -> Vec<Edit> {
        let mut doubtful: Vec<_> = step.shadow.iter().filter(|held| held.probability < self.back).collect();
        if doubtful.len() >= self.accepted {
            doubtful.sort_by(|a, b| a.probability.total_cmp(&b.probability));
            doubtful.truncate(self.accepted.saturating_sub(1));
        }
        let remask = |held: &&super::Held| Edit {
            position: held.position,
            from: step.canvas.tokens()[held.position],
            to: self.mask_token,
            kind: EditKind::Remask,
            confidence: held.probability,
        };
        doubtful.iter().map(remask).collect()
    }
}

impl Unmasker for Wino {
    fn doubts(&self) -> bool {
        true
    }

    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| Measure::Probability.of(guess, step)).collect();
        let most = ((0.7 * guesses.len() as f64) as usize).clamp(5, 20);
        let mut chosen = ranked(&sure);
        let passing = chosen.iter().take(most).take_while(|&&i| sure[i] > self.threshold).count();
        chosen.truncate(passing.max(1));
        let remasked = if chosen.len() > 1 { self.remasked(step) } else { Vec::new() };
        self.accepted = chosen.len();
        let mut transfer = transfer(step, guesses, &sure, chosen);
        transfer.edits.extend(remasked);
        transfer.edits.sort_by_key(|edit| edit.position);
        transfer
    }
}
