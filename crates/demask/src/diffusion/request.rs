//! What a generation is asked for: the command line's flags and the server's fields.

use serde::{Deserialize, Serialize};

use super::cache::CachePolicy;
use super::recipe::Recipe;
use super::settings::{SettingsError, wrong};
use super::unmask::UnmaskRule;

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
///
/// Fields that are `None` take the recipe's value, else the default of what uses them. A field that the unmasker or the
/// cache policy has no use for is refused.
///
/// [`Request::settings`]: Request::settings
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Request {
    /// Open positions behind the prompt.
    pub max_tokens: usize,
    /// Named settings that fill in what isn't given.
    pub recipe: Recipe,
    /// Denoising steps over the whole canvas, for unmaskers with a schedule; default: one per open position.
    pub steps: Option<usize>,
    /// Positions per block; default: the model's, else 32 (LLaDA, recipes, multi-block) or one block (Dream).
    pub block_length: Option<usize>,
    /// Which positions a step decides; default: the model's reference.
    pub unmask: Option<UnmaskRule>,
    /// Probability from which a guess goes: threshold, hierarchy, credit (0.9), wino (0.6).
    pub threshold: Option<f64>,
    /// Hierarchy: probability over which the surest guess of a gap goes (0.4).
    pub low: Option<f64>,
    /// Factor: how fast the demands rise with the number of guesses (1).
    pub factor: Option<f64>,
    /// Entropy in nats up to which a guess goes, or the budget of a step (0.5).
    pub entropy: Option<f64>,
    /// Multi-block: part of a block that is decided when the next joins (0.1).
    pub add: Option<f64>,
    /// Multi-block: part of a block that is decided when the next must progress (0.95).
    pub activate: Option<f64>,
    /// Wino: probability under which a token is opened again (0.9).
    pub back: Option<f64>,
    /// Which rows run in a step; default: all.
    pub cache: Option<CachePolicy>,
    /// With a cache: all rows run at least every so many steps.
    pub refresh: Option<usize>,
    /// With a cache: all rows run when those that ran have drifted by more than this since the last time that all did (one
    /// minus the cosine of their last layer's values, on average); default: not looked at.
    pub refresh_drift: Option<f64>,
    /// Open positions behind the block that the canvas has at all; default: all.
    pub window: Option<usize>,
    /// The prompt's rows run only once.
    pub freeze_prompt: Option<bool>,
    /// With a cache: between refreshes only open rows run, and those decided in the last so many steps; 0 = off.
    pub dirty_rows: Option<usize>,
    /// Delayed: more steps that a finished block runs before it is frozen (1).
    pub delay: Option<usize>,
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
    #[serde(alias = "ban")]
    pub banned: Vec<u32>,
    /// No so many tokens in a row stand twice in the answer; 0 = off.
    pub no_repeat: usize,
    /// Dream: where its time ends.
    pub eps: f64,
    /// Compute logits of every row, for measuring what leaving them out saves.
    pub full_logits: bool,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            max_tokens: 128,
            recipe: Recipe::Exact,
            steps: None,
            block_length: None,
            unmask: None,
            threshold: None,
            low: None,
            factor: None,
            entropy: None,
            add: None,
            activate: None,
            back: None,
            cache: None,
            refresh: None,
            refresh_drift: None,
            window: None,
            freeze_prompt: None,
            dirty_rows: None,
            delay: None,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            alg_temp: 0.0,
            cfg_scale: 0.0,
            seed: 42,
            eos: EndPolicy::Stop,
            banned: Vec::new(),
            no_repeat: 0,
            eps: Request::EPS,
            full_logits: false,
        }
    }
}

impl Request {
    /// Default of [`Request::eps`].
    pub(super) const EPS: f64 = 1e-3;

    /// The most that [`Request::cfg_scale`] may be: far beyond what is of use, and far from what overflows.
    const MOST_GUIDANCE: f64 = 100.0;

    /// Checks what can be checked without a model.
    ///
    /// # Errors
    /// The first option whose value is out of its range.
    pub fn check(&self) -> Result<(), SettingsError> {
        let at_least_one = |option, value: Option<usize>, what: &str| match value {
            Some(0) => wrong(option, 0, what),
            _ => Ok(()),
        };
        at_least_one("--max-tokens", Some(self.max_tokens), "at least 1 open position is needed")?;
        at_least_one("--steps", self.steps, "at least 1 denoising step is needed")?;
        at_least_one("--block-length", self.block_length, "a block has at least 1 position")?;
        at_least_one("--refresh", self.refresh, "it must be 1 (every step) or more")?;
        at_least_one("--delay", self.delay, "a finished block runs at least 1 more step")?;
        let not_negative = |option, value: f64| {
            if value.is_finite() && value >= 0.0 { Ok(()) } else { wrong(option, value, "it must be 0 or more") }
        };
        not_negative("--temperature", self.temperature)?;
        not_negative("--alg-temp", self.alg_temp)?;
        let up_to = |option, value: f64, most: f64| {
            let range = 0.0..=most;
            if range.contains(&value) {
                Ok(())
            } else {
                wrong(option, value, format!("it must be between 0 and {most}"))
            }
        };
        up_to("--cfg-scale", self.cfg_scale, Request::MOST_GUIDANCE)?;
        up_to("--refresh-drift", self.refresh_drift.unwrap_or(0.0), 2.0)?;
        not_negative("--threshold", self.threshold.unwrap_or(0.0))?;
        not_negative("--factor", self.factor.unwrap_or(0.0))?;
        not_negative("--entropy", self.entropy.unwrap_or(0.0))?;
        let part = |option, value: f64| up_to(option, value, 1.0);
        part("--top-p", self.top_p)?;
        part("--low", self.low.unwrap_or(0.0))?;
        part("--add", self.add.unwrap_or(0.0))?;
        part("--activate", self.activate.unwrap_or(0.0))?;
        part("--back", self.back.unwrap_or(0.0))?;
        if !(self.eps > 0.0 && self.eps < 1.0) {
            return wrong("--eps", self.eps, "it must be between 0 and 1");
        }
        Ok(())
    }
}
