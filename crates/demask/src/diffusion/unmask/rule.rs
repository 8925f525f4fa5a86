//! The unmaskers by name.

use serde::{Deserialize, Serialize};

use super::credit::Credit;
use super::entropy_bound::EntropyBound;
use super::factor::Factor;
use super::hierarchy::Hierarchy;
use super::multi_block::MultiBlock;
use super::origin::Origin;
use super::quota::Quota;
use super::threshold::Threshold;
use super::wino::Wino;
use super::{Measure, Unmasker};
use crate::diffusion::settings::Settings;
use crate::model::Family;

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
    /// Fast-dLLM: every guess with a probability of at least `threshold`.
    Threshold,
    /// Fast-dLLM: the n-th surest guess needs a probability of `1 - factor / (n + 1)`.
    Factor,
    /// Every guess with an entropy of at most `entropy`.
    EntropyThreshold,
    /// EB-Sampler: as many guesses as a budget of `entropy` allows.
    EntropyBound,
    /// dInfer: the surest guess of each run of open positions over `low`, and all over `threshold`.
    Hierarchy,
    /// dInfer: threshold, with credit for tokens favoured before.
    Credit,
    /// d3LLM: several blocks at once, by `entropy`, `add` and `activate`.
    MultiBlock,
    /// WINO: drafts over a low `threshold` and opens again what falls under `back`.
    Wino,
}

impl UnmaskRule {
    /// Every rule.
    pub const ALL: [UnmaskRule; 14] = [
        UnmaskRule::LowConfidence,
        UnmaskRule::Random,
        UnmaskRule::Origin,
        UnmaskRule::MaskgitPlus,
        UnmaskRule::Margin,
        UnmaskRule::Entropy,
        UnmaskRule::Threshold,
        UnmaskRule::Factor,
        UnmaskRule::EntropyThreshold,
        UnmaskRule::EntropyBound,
        UnmaskRule::Hierarchy,
        UnmaskRule::Credit,
        UnmaskRule::MultiBlock,
        UnmaskRule::Wino,
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
            UnmaskRule::Threshold => "threshold",
            UnmaskRule::Factor => "factor",
            UnmaskRule::EntropyThreshold => "entropy-threshold",
            UnmaskRule::EntropyBound => "entropy-bound",
            UnmaskRule::Hierarchy => "hierarchy",
            UnmaskRule::Credit => "credit",
            UnmaskRule::MultiBlock => "multi-block",
            UnmaskRule::Wino => "wino",
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

    /// Whether it is part of a family's reference sampler, and so works by a schedule: a fixed number of steps.
    pub fn is_scheduled(self) -> bool {
        [Family::Llada, Family::Dream].iter().any(|family| family.rules().contains(&self))
    }

    /// Whether models of a family can use it. WINO's shadow has no meaning for logits that are shifted.
    pub fn runs_on(self, family: Family) -> bool {
        match self {
            UnmaskRule::Wino => family == Family::Llada,
            _ => !self.is_scheduled() || family.rules().contains(&self),
        }
    }

    /// Whether it looks at more than one block at a time.
    pub fn spans_blocks(self) -> bool {
        self == UnmaskRule::MultiBlock
    }

    /// Whether decided positions of the current block may change again.
    pub fn revises(self) -> bool {
        self == UnmaskRule::Wino
    }

    /// The unmasker for one block.
    pub(in crate::diffusion) fn unmasker(self, settings: &Settings) -> Box<dyn Unmasker> {
        let (s, n) = (settings, &settings.numbers);
        let quota = |measure| Quota { schedule: s.schedule, measure, alg_temp: s.alg_temp };
        let threshold = || Threshold { measure: Measure::Probability, threshold: n.threshold };
        match self {
            UnmaskRule::LowConfidence | UnmaskRule::MaskgitPlus => Box::new(quota(Measure::Probability)),
            UnmaskRule::Random => Box::new(quota(Measure::Random)),
            UnmaskRule::Margin => Box::new(quota(Measure::Margin)),
            UnmaskRule::Entropy => Box::new(quota(Measure::Entropy)),
            UnmaskRule::Origin => Box::new(Origin { schedule: s.schedule }),
            UnmaskRule::Threshold => Box::new(threshold()),
            UnmaskRule::Factor => Box::new(Factor { factor: n.factor }),
            UnmaskRule::EntropyThreshold => {
                Box::new(Threshold { measure: Measure::PlainEntropy, threshold: -n.entropy })
            }
            UnmaskRule::EntropyBound => Box::new(EntropyBound { bound: n.entropy }),
            UnmaskRule::Hierarchy => Box::new(Hierarchy { threshold: n.threshold, low: n.low }),
            UnmaskRule::Credit => Box::new(Credit::new(threshold(), s.sampler.mask_token)),
            UnmaskRule::MultiBlock => {
                Box::new(MultiBlock::new(s.block_length, n.entropy, n.add, n.activate, n.always_lowest))
            }
            UnmaskRule::Wino => Box::new(Wino::new(n.threshold, n.back, s.sampler.mask_token)),
        }
    }
}
