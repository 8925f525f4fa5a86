//! Several blocks at once: a block joins when the one before it has begun, and must progress when that is nearly done.

use std::ops::Range;

use super::{Measure, Step, Unmasker, ranked, transfer};
use crate::diffusion::canvas::{Canvas, Transfer, spans};
use crate::diffusion::sampler::Guess;

/// d3LLM's multi-block decoding (Qian et al. 2026). Every guess with an entropy of at most `entropy` goes; the
/// first active block that isn't finished decides at least one position per step.
pub(super) struct MultiBlock {
    pub(super) block_length: usize,
    pub(super) entropy: f64,
    /// The next block joins when the last one is decided to this part.
    pub(super) add: f64,
    /// A block is active when the one before it is decided to this part.
    pub(super) activate: f64,
    /// The lowest entropy always goes, whatever its block (d3LLM for LLaDA).
    pub(super) always_lowest: bool,
    blocks: Vec<Range<usize>>,
    joined: usize,
    active: Vec<bool>,
}

impl MultiBlock {
    pub(super) fn new(block_length: usize, entropy: f64, add: f64, activate: f64, always_lowest: bool) -> MultiBlock {
        let (blocks, active) = (Vec::new(), Vec::new());
        MultiBlock { block_length, entropy, add, activate, always_lowest, blocks, joined: 1, active }
    }

    fn progress(&self, canvas: &Canvas, block: usize) -> f64 {
        let range = self.blocks[block].clone();
        1.0 - canvas.open_in(range.clone()).count() as f64 / canvas.asked_in(range) as f64
    }
}

impl Unmasker for MultiBlock {
    fn candidates(&mut self, step: &Step<'_>) -> Vec<usize> {
        if self.blocks.is_empty() {
            self.blocks = spans(step.canvas, self.block_length);
            self.active = vec![false; self.blocks.len()];
            self.active[0] = true;
        }
        if self.joined < self.blocks.len() && self.progress(step.canvas, self.joined - 1) >= self.add {
            self.joined += 1;
        }
        for block in 1..self.joined {
            self.active[block] |= self.progress(step.canvas, block - 1) >= self.activate;
        }
        let end = self.blocks[self.joined - 1].end.min(step.horizon);
        step.canvas.open_in(self.blocks[0].start..end).collect()
    }

    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| Measure::PlainEntropy.of(guess, step)).collect();
        let mut chosen: Vec<usize> = (0..guesses.len()).filter(|&i| -sure[i] <= self.entropy).collect();
        let order = ranked(&sure);
        if self.always_lowest {
            chosen.extend(order.first());
        }
        let behind = (0..self.joined).find(|&b| self.active[b] && self.progress(step.canvas, b) < 1.0);
        if let Some(block) = behind.map(|block| self.blocks[block].clone()) {
            let inside = |i: &&usize| block.contains(&guesses[**i].position);
            if !chosen.iter().any(|i| inside(&i)) {
                chosen.extend(order.iter().find(inside));
            }
        }
        transfer(step, guesses, &sure, chosen)
    }
}
