//! What a run was asked for, and the checked settings that the loop works by.

use serde::{Deserialize, Serialize};

use super::sampler::{Draw, Sampler};
use super::unmask::UnmaskRule;
use crate::model::{Family, ModelSpec};

/// What to do about end tokens (EOS, EOT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndPolicy {
    /// Every position is decided.
    Keep,
    /// The run ends as soon as the visible answer is final: the same text in fewer steps.
    #[default]
    Stop,
    /// End tokens are committed last (LLaDA's `confidence_eos_eot_inf`).
    Last,
}

/// What a generation is asked for. [`Request::settings`] checks it against a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Request {
    /// Open positions behind the prompt.
    pub max_tokens: usize,
    /// Denoising steps over the whole canvas; default: one per open position.
    pub steps: Option<usize>,
    /// Positions per block; default: the model's, else 32 (LLaDA) or one block (Dream).
    pub block_length: Option<usize>,
    /// Which positions a step decides; default: the model's reference.
    pub unmask: Option<UnmaskRule>,
    /// 0 = greedy.
    pub temperature: f64,
    /// Dream: nucleus, 1 = off.
    pub top_p: f64,
    /// Dream: 0 = off.
    pub top_k: usize,
    /// Dream: temperature of the choice of positions, 0 = off.
    pub alg_temp: f64,
    /// Classifier-free guidance (LLaDA), 0 = off.
    pub cfg_scale: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// End tokens.
    pub eos: EndPolicy,
    /// Tokens that must not be written.
    pub banned: Vec<u32>,
    /// Dream: where its time ends.
    pub eps: f64,
    /// Compute logits of every row, for measuring what leaving them out saves.
    pub full_logits: bool,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            max_tokens: 128,
            steps: None,
            block_length: None,
            unmask: None,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            alg_temp: 0.0,
            cfg_scale: 0.0,
            seed: 42,
            eos: EndPolicy::Stop,
            banned: Vec::new(),
            eps: 1e-3,
            full_logits: false,
        }
    }
}

/// How the open positions are spread over the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// LLaDA: evenly within each block.
    Even,
    /// Dream: a part of what is left, by time steps.
    Timestep {
        /// Where time ends.
        eps: f64,
    },
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
    pub schedule: Schedule,
    /// Temperature of the choice of positions.
    pub alg_temp: f64,
    /// From logits to guesses.
    pub sampler: Sampler,
    /// Classifier-free guidance, 0 = off.
    pub cfg_scale: f64,
    /// Seed.
    pub seed: u64,
    /// End tokens.
    pub eos: EndPolicy,
    /// The ids that end an answer.
    pub end_tokens: Vec<u32>,
    /// Logits for every row.
    pub full_logits: bool,
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

fn wrong<T>(option: &'static str, value: impl ToString, reason: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError { option, value: value.to_string(), reason: reason.into() })
}

impl Request {
    /// Checks what can be checked without a model.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.max_tokens == 0 {
            return wrong("--max-tokens", 0, "at least 1 open position is needed");
        }
        if self.steps == Some(0) {
            return wrong("--steps", 0, "at least 1 denoising step is needed");
        }
        if self.block_length == Some(0) {
            return wrong("--block-length", 0, "a block has at least 1 position");
        }
        let not_negative = |option, value: f64| {
            if value.is_finite() && value >= 0.0 { Ok(()) } else { wrong(option, value, "it must be 0 or more") }
        };
        not_negative("--temperature", self.temperature)?;
        not_negative("--alg-temp", self.alg_temp)?;
        not_negative("--cfg-scale", self.cfg_scale)?;
        if !(0.0..=1.0).contains(&self.top_p) {
            return wrong("--top-p", self.top_p, "it must be between 0 and 1");
        }
        if !(self.eps > 0.0 && self.eps < 1.0) {
            return wrong("--eps", self.eps, "it must be between 0 and 1");
        }
        Ok(())
    }

    /// Checks the request against a model and fills in its defaults. `open` is the number of open positions.
    pub fn settings(&self, spec: &ModelSpec, end_tokens: Vec<u32>, open: usize) -> Result<Settings, SettingsError> {
        self.check()?;
        let family = spec.family;
        let unmask = self.unmask.unwrap_or(family.default_rule());
        if !family.rules().contains(&unmask) {
            let names: Vec<&str> = family.rules().iter().map(|rule| rule.name()).collect();
            return wrong("--unmask", unmask.name(), format!("{} has {}", family.name(), names.join(", ")));
        }
        let (schedule, draw, block_length) = match family {
            Family::Llada => {
                if self.top_p < 1.0 || self.top_k > 0 {
                    let (option, value) = if self.top_k > 0 {
                        ("--top-k", self.top_k.to_string())
                    } else {
                        ("--top-p", self.top_p.to_string())
                    };
                    return wrong(option, value, "LLaDA's reference sampler has no such filter; Dream models do");
                }
                if self.alg_temp > 0.0 {
                    return wrong("--alg-temp", self.alg_temp, "LLaDA's reference sampler has none; Dream models do");
                }
                (Schedule::Even, Draw::Gumbel, self.block_length.or(spec.block_length).unwrap_or(32))
            }
            Family::Dream => {
                if self.cfg_scale > 0.0 {
                    return wrong("--cfg-scale", self.cfg_scale, "Dream's reference sampler has none; LLaDA models do");
                }
                if self.block_length.is_some_and(|length| length < open) {
                    return wrong(
                        "--block-length",
                        self.block_length.unwrap_or(0),
                        format!("Dream's reference sampler decides its {open} open positions in one block"),
                    );
                }
                if self.eos == EndPolicy::Last {
                    return wrong("--eos", "last", "Dream's reference sampler has no such rule; LLaDA models do");
                }
                let draw = Draw::Filtered { top_p: self.top_p, top_k: self.top_k };
                (Schedule::Timestep { eps: self.eps }, draw, open.max(1))
            }
        };
        let block_length = block_length.min(open.max(1));
        let steps = self.steps.unwrap_or(open.max(1));
        let blocks = open.div_ceil(block_length).max(1);
        if steps < blocks {
            return wrong(
                "--steps",
                steps,
                format!("{open} open positions in blocks of {block_length} are {blocks} blocks, and each needs a step"),
            );
        }
        if let Some(&token) = self.banned.iter().find(|&&token| token as usize >= spec.vocab) {
            return wrong("--ban", token, format!("the vocabulary has ids 0 to {}", spec.vocab - 1));
        }
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
        })
    }
}
