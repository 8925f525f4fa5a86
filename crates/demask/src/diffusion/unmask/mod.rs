//! Which open positions a step decides: one short file per unmasker.

mod credit;
mod entropy_bound;
mod factor;
mod hierarchy;
mod multi_block;
mod origin;
mod quota;
mod rule;
mod threshold;
mod wino;

use super::canvas::{Block, Canvas, Edit, EditKind, Transfer};
use super::random::{Random, Stream};
use super::sampler::Guess;

pub use rule::UnmaskRule;

/// What an unmasker sees of a denoising step.
pub(super) struct Step<'a> {
    /// The canvas before the step.
    pub(super) canvas: &'a Canvas,
    /// The block being decided.
    pub(super) block: &'a Block,
    /// Number of the step over the whole run, from 0; steps that do nothing keep their number.
    pub(super) number: usize,
    /// The run's random numbers.
    pub(super) random: Random,
    /// Positions from here on are left alone: the answer's end is before them.
    pub(super) horizon: usize,
    /// What a masked shadow of the block says of the tokens it holds; empty unless [`Unmasker::doubts`].
    pub(super) shadow: Vec<Held>,
}

impl Step<'_> {
    /// The block's open positions, ascending.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> + '_ {
        self.canvas.open_in(self.block.range.start..self.block.range.end.min(self.horizon))
    }
}

/// A token that the block holds, scored as if its position and the rest of the block were open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Held {
    /// Canvas position.
    pub(super) position: usize,
    /// The token's probability.
    pub(super) probability: f64,
}

/// A rule that turns guesses into a transfer. There is a fresh one for every block.
pub(super) trait Unmasker: Send {
    /// Whether the step can change the canvas at all. If not, its forward pass is saved; the text stays the same.
    fn acts(&mut self, _step: &Step<'_>) -> bool {
        true
    }

    /// The open positions to guess, ascending.
    fn candidates(&mut self, step: &Step<'_>) -> Vec<usize> {
        step.open().collect()
    }

    /// Whether [`Unmasker::adjust`] changes anything; if so, whole rows of logits are computed.
    fn adjusts_logits(&self) -> bool {
        false
    }

    /// Changes the row that scores `position`; called once per candidate and step.
    fn adjust(&mut self, _position: usize, _row: &mut [f64]) {}

    /// Whether decided tokens are to be scored against a masked shadow of the block.
    fn doubts(&self) -> bool {
        false
    }

    /// Chooses among the guesses, one per candidate.
    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer;
}

/// What "sure" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Probability of the guess.
    Probability,
    /// Best probability minus second-best.
    Margin,
    /// Negative entropy, in nats, of the distribution that the guess was drawn from.
    Entropy,
    /// Negative entropy, in nats, of the plain softmax.
    PlainEntropy,
    /// A random number.
    Random,
}

impl Measure {
    /// The confidence of a guess.
    pub(super) fn of(self, guess: &Guess, step: &Step<'_>) -> f64 {
        match self {
            Measure::Probability | Measure::PlainEntropy if guess.comes_last => f64::NEG_INFINITY,
            Measure::Probability => guess.probability,
            Measure::Margin => guess.margin,
            Measure::Entropy => -guess.entropy,
            Measure::PlainEntropy => -guess.plain_entropy,
            Measure::Random => step.random.at(step.number, guess.position, Stream::Confidence).uniform(0),
        }
    }
}

/// Indices by falling key; equal keys keep their order, which is from left to right.
///
/// Keys closer than 2^-44 are equal: they differ only by the order in which a softmax was summed up.
fn ranked(keys: &[f64]) -> Vec<usize> {
    let keys: Vec<f64> = keys.iter().map(|key| (key * (1u64 << 44) as f64).round()).collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[b].total_cmp(&keys[a]).then(a.cmp(&b)));
    order
}

/// The transfer that decides the positions of the chosen guesses, given by index in any order, maybe twice.
fn transfer(step: &Step<'_>, guesses: &[Guess], confidences: &[f64], mut chosen: Vec<usize>) -> Transfer {
    chosen.sort_unstable();
    chosen.dedup();
    let unmask = |i: usize| Edit {
        position: guesses[i].position,
        from: step.canvas.tokens()[guesses[i].position],
        to: guesses[i].token,
        kind: EditKind::Unmask,
        confidence: confidences[i],
    };
    Transfer { edits: chosen.into_iter().map(unmask).collect() }
}
