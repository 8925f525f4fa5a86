//! Which open positions a step decides: one short file per unmasker.

mod origin;
mod quota;

use serde::{Deserialize, Serialize};

use super::canvas::{Block, Canvas, Edit, EditKind, Transfer};
use super::random::{Random, Stream};
use super::sampler::Guess;
use super::settings::Settings;

/// What an unmasker sees of a denoising step.
pub struct Step<'a> {
    /// The canvas before the step.
    pub canvas: &'a Canvas,
    /// The block being decided.
    pub block: &'a Block,
    /// Number of the step over the whole run, from 0; steps that do nothing keep their number.
    pub number: usize,
    /// The run's random numbers.
    pub random: Random,
}

/// A rule that turns guesses into a transfer.
pub trait Unmasker: Send {
    /// Whether the step can change the canvas at all. If not, its forward pass is saved; the text stays the same.
    fn acts(&mut self, step: &Step<'_>) -> bool;

    /// Chooses among the guesses (one per open position of the block, ascending).
    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer;
}

/// The unmaskers, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnmaskRule {
    /// LLaDA: the surest guesses, by the probability of the chosen token.
    LowConfidence,
    /// LLaDA: random positions.
    Random,
    /// Dream: every open position with the schedule's probability.
    Origin,
    /// Dream: the surest guesses, by the probability of the chosen token.
    MaskgitPlus,
    /// Dream (`topk_margin`): by the lead of the best token over the second.
    Margin,
    /// Dream: by negative entropy.
    Entropy,
}

impl UnmaskRule {
    /// Every rule.
    pub const ALL: [UnmaskRule; 6] = [
        UnmaskRule::LowConfidence,
        UnmaskRule::Random,
        UnmaskRule::Origin,
        UnmaskRule::MaskgitPlus,
        UnmaskRule::Margin,
        UnmaskRule::Entropy,
    ];

    /// The rule's name.
    pub fn name(self) -> &'static str {
        match self {
            UnmaskRule::LowConfidence => "low-confidence",
            UnmaskRule::Random => "random",
            UnmaskRule::Origin => "origin",
            UnmaskRule::MaskgitPlus => "maskgit-plus",
            UnmaskRule::Margin => "margin",
            UnmaskRule::Entropy => "entropy",
        }
    }

    /// The rule called `name`: case and `_` against `-` don't matter, and the references' own names are known.
    pub fn from_name(name: &str) -> Option<UnmaskRule> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        if name == "topk-margin" {
            return Some(UnmaskRule::Margin);
        }
        UnmaskRule::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The unmasker for one block.
    pub(super) fn unmasker(self, settings: &Settings) -> Box<dyn Unmasker> {
        let measure = match self {
            UnmaskRule::Origin => return Box::new(origin::Origin { schedule: settings.schedule }),
            UnmaskRule::LowConfidence | UnmaskRule::MaskgitPlus => Measure::Probability,
            UnmaskRule::Random => Measure::Random,
            UnmaskRule::Margin => Measure::Margin,
            UnmaskRule::Entropy => Measure::Entropy,
        };
        Box::new(quota::Quota { schedule: settings.schedule, measure, alg_temp: settings.alg_temp })
    }
}

/// What "sure" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Probability of the guess.
    Probability,
    /// Best probability minus second-best.
    Margin,
    /// Negative entropy in nats.
    Entropy,
    /// A random number.
    Random,
}

impl Measure {
    /// The confidence of a guess.
    pub fn of(self, guess: &Guess, step: &Step<'_>) -> f64 {
        match self {
            Measure::Probability if guess.comes_last => f64::NEG_INFINITY,
            Measure::Probability => guess.probability,
            Measure::Margin => guess.margin,
            Measure::Entropy => -guess.entropy,
            Measure::Random => step.random.at(step.number, guess.position, Stream::Confidence).uniform(0),
        }
    }
}

/// The edit that decides a guess's position.
fn unmask(canvas: &Canvas, guess: &Guess, confidence: f64) -> Edit {
    Edit {
        position: guess.position,
        from: canvas.tokens()[guess.position],
        to: guess.token,
        kind: EditKind::Unmask,
        confidence,
    }
}

/// The `count` guesses with the greatest keys, as a transfer; equal keys go to the left.
///
/// Keys closer than 2^-44 are equal: they differ only by the order in which a softmax was summed up.
fn take_greatest(step: &Step<'_>, guesses: &[Guess], keys: &[f64], confidences: &[f64], count: usize) -> Transfer {
    let keys: Vec<f64> = keys.iter().map(|key| (key * (1u64 << 44) as f64).round()).collect();
    let mut order: Vec<usize> = (0..guesses.len()).collect();
    order.sort_by(|&a, &b| keys[b].total_cmp(&keys[a]).then(a.cmp(&b)));
    order.truncate(count);
    order.sort_unstable();
    Transfer { edits: order.into_iter().map(|i| unmask(step.canvas, &guesses[i], confidences[i])).collect() }
}
