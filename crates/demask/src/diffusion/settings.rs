//! The checked settings that the loop works by.

use super::cache::{CachePolicy, CacheSettings};
use super::canvas::{Canvas, spans};
use super::request::{EndPolicy, Request};
use super::sampler::{Draw, Sampler};
use super::unmask::UnmaskRule;
use crate::model::{Family, ModelSpec};

/// How the open positions are spread over the steps, for unmaskers that go by a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Schedule {
    /// LLaDA: evenly within each block.
    Even,
    /// Dream: a part of what is left, by time steps.
    Timestep {
        /// Where time ends.
        eps: f64,
    },
}

/// The numbers that unmaskers decide by, see [`Request`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// See [`Request::threshold`].
    pub threshold: f64,
    /// See [`Request::low`].
    pub low: f64,
    /// See [`Request::factor`].
    pub factor: f64,
    /// See [`Request::entropy`], in nats.
    pub entropy: f64,
    /// See [`Request::add`].
    pub add: f64,
    /// See [`Request::activate`].
    pub activate: f64,
    /// See [`Request::back`].
    pub back: f64,
    /// Multi-block: the lowest entropy always goes (d3LLM for LLaDA, not for Dream).
    pub always_lowest: bool,
}

/// Checked settings of one run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Denoising steps over the whole canvas, at least one per block.
    pub steps: usize,
    /// Positions per block.
    pub block_length: usize,
    /// Which positions a step decides.
    pub unmask: UnmaskRule,
    /// How many.
    pub(super) schedule: Schedule,
    /// Temperature of the choice of positions.
    pub(super) alg_temp: f64,
    /// From logits to guesses.
    pub(super) sampler: Sampler,
    /// Classifier-free guidance, 0 = off.
    pub cfg_scale: f64,
    /// Seed.
    pub seed: u64,
    /// End tokens.
    pub eos: EndPolicy,
    /// The ids that end an answer.
    pub(super) end_tokens: Vec<u32>,
    /// Logits for every row.
    pub(super) full_logits: bool,
    /// What the unmasker decides by.
    pub numbers: Numbers,
    /// No so many tokens in a row stand twice in the answer; 0 = off.
    pub no_repeat: usize,
    /// Which rows run.
    pub cache: CacheSettings,
}

impl Settings {
    /// Whether the text is that of the model's reference sampler: its own unmasker, and nothing stale.
    pub fn is_reference(&self) -> bool {
        self.unmask.is_scheduled() && self.cache.is_exact()
    }

    /// Positions of the largest block that is shadowed; 0 if none is.
    pub(crate) fn shadow_rows(&self, canvas: &Canvas) -> usize {
        let spans = if self.unmask.revises() { spans(canvas, self.block_length) } else { Vec::new() };
        spans.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }
}

/// A value that can't be used, named as the command line names it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{option} {value} can't be used: {reason}")]
pub struct SettingsError {
    /// `--steps`, `--unmask`...
    pub option: &'static str,
    /// As given.
    pub value: String,
    /// What is possible.
    pub reason: String,
}

pub(super) fn wrong<T>(
    option: &'static str,
    value: impl ToString,
    reason: impl Into<String>,
) -> Result<T, SettingsError> {
    Err(SettingsError { option, value: value.to_string(), reason: reason.into() })
}

impl Request {
    /// Checks the request against a model and fills in its defaults. `open` is the number of open positions,
    /// `end_tokens` are the ids that end an answer.
    ///
    /// # Errors
    /// The first option that is out of its range, that this model or the other options have no use for, or that leaves
    /// nothing to write.
    pub fn settings(&self, spec: &ModelSpec, end_tokens: Vec<u32>, open: usize) -> Result<Settings, SettingsError> {
        self.check()?;
        if self.is_untuned() {
            return wrong("--recipe", self.recipe.name(), "its window is chosen by the machine's measured times first");
        }
        let family = spec.family;
        let unmask = self.unmask_rule().unwrap_or(family.default_rule());
        if !unmask.runs_on(family) {
            let able = UnmaskRule::ALL.into_iter().filter(|rule| rule.runs_on(family));
            return wrong("--unmask", unmask.name(), format!("{} has {}", family.name(), names(able)));
        }
        let numbers = self.numbers(unmask, family)?;
        let cache = self.cache_settings(unmask)?;
        self.check_family(family, unmask)?;
        self.check_schedule(family, unmask, open)?;

        let one_block = family == Family::Dream && !unmask.spans_blocks() && self.recipe.row().block_length.is_none();
        let block_length =
            match (family, unmask.is_scheduled()) {
                (Family::Dream, true) => open,
                _ => (self.block_length.or(spec.block_length).or(self.recipe.row().block_length))
                    .unwrap_or(if one_block { open } else { 32 }),
            };
        let block_length = block_length.min(open).max(1);
        let steps = self.steps.unwrap_or(open.max(1));
        let blocks = open.div_ceil(block_length).max(1);
        if steps < blocks {
            return wrong(
                "--steps",
                steps,
                format!("{open} open positions in blocks of {block_length} are {blocks} blocks, and each needs a step"),
            );
        }
        let banned: std::collections::HashSet<u32> = self.banned.iter().copied().collect();
        if (0..spec.vocab as u32).all(|token| token == spec.mask_token || banned.contains(&token)) {
            return wrong("--ban", format!("of {} tokens", banned.len()), "no token would be left to write");
        }
        if let Some(&token) = self.banned.iter().find(|&&token| token as usize >= spec.vocab) {
            return wrong("--ban", token, format!("the vocabulary has ids 0 to {}", spec.vocab - 1));
        }
        let (schedule, draw) = match family {
            Family::Llada => (Schedule::Even, Draw::Gumbel),
            Family::Dream => {
                (Schedule::Timestep { eps: self.eps }, Draw::Filtered { top_p: self.top_p, top_k: self.top_k })
            }
        };
        let sampler = Sampler {
            temperature: self.temperature,
            draw,
            mask_token: spec.mask_token,
            banned: self.banned.clone(),
            last: if self.eos == EndPolicy::Last { end_tokens.clone() } else { Vec::new() },
        };
        Ok(Settings {
            steps,
            block_length,
            unmask,
            schedule,
            alg_temp: self.alg_temp,
            sampler,
            cfg_scale: self.cfg_scale,
            seed: self.seed,
            eos: self.eos,
            end_tokens,
            full_logits: self.full_logits,
            numbers,
            no_repeat: self.no_repeat,
            cache,
        })
    }

    /// What the unmasker decides by; numbers that it has no use for are refused.
    fn numbers(&self, unmask: UnmaskRule, family: Family) -> Result<Numbers, SettingsError> {
        use UnmaskRule::{Credit, EntropyBound, EntropyThreshold, Factor, Hierarchy, MultiBlock, Threshold, Wino};
        let row = self.recipe.row();
        let number = |option, given: Option<f64>, recipe: Option<f64>, users: &[UnmaskRule], default: f64| match given {
            Some(value) if !users.contains(&unmask) => {
                let users = names(users.iter().copied());
                wrong(option, value, format!("the unmasker {} doesn't use it; {users} can", unmask.name()))
            }
            Some(value) => Ok(value),
            None => Ok(recipe.filter(|_| users.contains(&unmask)).unwrap_or(default)),
        };
        let bold = if unmask == Wino { 0.6 } else { 0.9 };
        let entropic = [EntropyThreshold, EntropyBound, MultiBlock];
        Ok(Numbers {
            threshold: number(
                "--threshold",
                self.threshold,
                row.threshold.filter(|_| unmask != Wino),
                &[Threshold, Hierarchy, Credit, Wino],
                bold,
            )?,
            low: number("--low", self.low, None, &[Hierarchy], 0.4)?,
            factor: number("--factor", self.factor, None, &[Factor], 1.0)?,
            entropy: number("--entropy", self.entropy, row.entropy, &entropic, 0.5)?,
            add: number("--add", self.add, None, &[MultiBlock], 0.1)?,
            activate: number("--activate", self.activate, None, &[MultiBlock], 0.95)?,
            back: number("--back", self.back, None, &[Wino], 0.9)?,
            always_lowest: family == Family::Llada,
        })
    }

    /// The unmasker by request or recipe; none: the model's reference.
    pub(super) fn unmask_rule(&self) -> Option<UnmaskRule> {
        self.unmask.or(self.recipe.row().unmask)
    }

    /// The cache policy with an unmasker.
    pub(super) fn cache_policy(&self, unmask: UnmaskRule) -> CachePolicy {
        // An unmasker that doubts every row of its block can't leave one stale.
        let recipe = self.recipe.row().cache.filter(|_| unmask != UnmaskRule::Wino);
        self.cache.or(recipe).unwrap_or_default()
    }

    /// Which rows run; what the policy has no use for is refused.
    fn cache_settings(&self, unmask: UnmaskRule) -> Result<CacheSettings, SettingsError> {
        let row = self.recipe.row();
        let policy = self.cache_policy(unmask);
        if unmask == UnmaskRule::Wino && policy != CachePolicy::None {
            return wrong(
                "--cache",
                policy.name(),
                "wino scores its block afresh in every step; the other unmaskers can",
            );
        }
        let cached = policy != CachePolicy::None;
        let cached_only = |option, value: Option<usize>| match value {
            Some(value) if !cached => {
                wrong(option, value, "every step runs all rows; --cache prefix, dual or delayed can")
            }
            _ => Ok(()),
        };
        cached_only("--refresh", self.refresh)?;
        if let Some(drift) = self.refresh_drift.filter(|_| !cached) {
            return wrong("--refresh-drift", drift, "every step runs all rows; --cache prefix, dual or delayed can");
        }
        cached_only("--dirty-rows", self.dirty_rows.filter(|&n| n > 0))?;
        if let Some(delay) = self.delay.filter(|_| policy != CachePolicy::Delayed) {
            return wrong("--delay", delay, format!("--cache {} freezes no block; delayed can", policy.name()));
        }
        Ok(CacheSettings {
            policy,
            refresh: self.refresh.or(row.refresh).filter(|_| cached),
            refresh_drift: self.refresh_drift.or(row.refresh_drift).filter(|_| cached),
            window: self.window.or(row.window),
            freeze_prompt: self.freeze_prompt.unwrap_or(row.freeze_prompt),
            dirty_rows: if cached { self.dirty_rows.unwrap_or(row.dirty_rows) } else { 0 },
            delay: self.delay.or(row.delay).unwrap_or(1),
        })
    }

    /// What a family's sampler can't do.
    fn check_family(&self, family: Family, unmask: UnmaskRule) -> Result<(), SettingsError> {
        match family {
            Family::Llada if self.top_k > 0 => {
                wrong("--top-k", self.top_k, "LLaDA's reference sampler has no such filter; Dream models do")
            }
            Family::Llada if self.top_p < 1.0 => {
                wrong("--top-p", self.top_p, "LLaDA's reference sampler has no such filter; Dream models do")
            }
            Family::Llada if self.alg_temp > 0.0 => {
                wrong("--alg-temp", self.alg_temp, "LLaDA's reference sampler has none; Dream models do")
            }
            Family::Dream if self.cfg_scale > 0.0 => {
                wrong("--cfg-scale", self.cfg_scale, "Dream's reference sampler has none; LLaDA models do")
            }
            Family::Dream if self.eos == EndPolicy::Last => {
                wrong("--eos", "last", "Dream's reference sampler has no such rule; LLaDA models do")
            }
            _ if self.alg_temp > 0.0 && !unmask.is_scheduled() => wrong(
                "--alg-temp",
                self.alg_temp,
                format!("the unmasker {} draws no positions; entropy, maskgit-plus and margin do", unmask.name()),
            ),
            _ if self.no_repeat > 0 && unmask == UnmaskRule::Wino => {
                wrong("--no-repeat", self.no_repeat, "wino opens again what it doubts; the other unmaskers can")
            }
            _ if self.cfg_scale > 0.0 && unmask == UnmaskRule::Wino => {
                wrong("--cfg-scale", self.cfg_scale, "wino's shadow has no prompt to mask; the other unmaskers can")
            }
            _ => Ok(()),
        }
    }

    /// What only unmaskers with a schedule go by.
    fn check_schedule(&self, family: Family, unmask: UnmaskRule, open: usize) -> Result<(), SettingsError> {
        let scheduled = unmask.is_scheduled();
        if let Some(steps) = self.steps.filter(|_| !scheduled) {
            let able = names(family.rules().iter().copied());
            let reason = format!("the unmasker {} takes as many steps as it needs; {able} can", unmask.name());
            return wrong("--steps", steps, reason);
        }
        if self.eps != Request::EPS && !(family == Family::Dream && scheduled) {
            return wrong("--eps", self.eps, "only the schedule of Dream's reference sampler uses it");
        }
        match self.block_length {
            Some(length) if family == Family::Dream && scheduled && length < open => {
                let reason = format!(
                    "Dream's reference sampler decides its {open} open positions in one block; {} work by blocks",
                    names(UnmaskRule::ALL.into_iter().filter(|rule| !rule.is_scheduled() && rule.runs_on(family)))
                );
                wrong("--block-length", length, reason)
            }
            _ => Ok(()),
        }
    }
}

fn names(rules: impl Iterator<Item = UnmaskRule>) -> String {
    rules.map(UnmaskRule::name).collect::<Vec<_>>().join(", ")
}
