//! A token that a position has favoured for several steps gets credit for it.

use std::collections::HashMap;

use super::threshold::Threshold;
use super::{Step, Unmasker};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::sampler::{Guess, best_of};

/// How much credit weighs, how slowly it fades and how little it depends on the probability that earned it (dInfer's
/// defaults).
const ALPHA: f64 = 0.7;
const BETA: f64 = 0.8;
const GAMMA: f64 = 0.2;

/// dInfer's credit decoding (Ma et al. 2025): in every step all credit of a position fades by beta, its best
/// token earns `p^gamma`, and logits gain `alpha ln(1 + credit)`; what then passes the threshold goes.
pub(super) struct Credit {
    pub(super) threshold: Threshold,
    pub(super) mask_token: u32,
    /// By position: tokens and their credit.
    credit: HashMap<usize, Vec<(u32, f64)>>,
}

impl Credit {
    pub(super) fn new(threshold: Threshold, mask_token: u32) -> Credit {
        Credit { threshold, mask_token, credit: HashMap::new() }
    }
}

impl Unmasker for Credit {
    fn adjusts_logits(&self) -> bool {
        true
    }

    fn adjust(&mut self, position: usize, row: &mut [f64]) {
        let credit = self.credit.entry(position).or_default();
        credit.iter_mut().for_each(|(_, credit)| *credit *= BETA);
        let (token, probability) = best_of(row, self.mask_token);
        let earned = probability.powf(GAMMA);
        match credit.iter_mut().find(|(known, _)| *known == token) {
            Some((_, credit)) => *credit += earned,
            None => credit.push((token, earned)),
        }
        for &(token, credit) in &*credit {
            row[token as usize] += ALPHA * credit.ln_1p();
        }
    }

    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        self.threshold.step(step, guesses)
    }
}
