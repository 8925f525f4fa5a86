//! Recipes: named settings. A recipe fills in what a request leaves open; what the request says wins.

use serde::{Deserialize, Serialize};

use super::cache::CachePolicy;
use super::figures::FIGURES;
use super::unmask::UnmaskRule;

/// The recipes, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// The model's reference sampler.
    #[default]
    Exact,
    /// Several tokens per step, keys and values kept within a block.
    Fast,
    /// As few rows as still give an answer.
    Fastest,
    /// As fast, and as near to exact as the machine affords, see [`Request::tuned`](super::Request::tuned).
    Auto,
    /// Several blocks at once, for models trained for it.
    #[serde(rename = "d3llm")]
    D3llm,
}

/// What a recipe sets. `None` leaves the default of the model or of what uses the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecipeRow {
    /// Which recipe.
    pub recipe: Recipe,
    /// Its name.
    pub name: &'static str,
    /// One line for the reader of a list.
    pub description: &'static str,
    /// See [`Request::unmask`](super::Request::unmask).
    pub unmask: Option<UnmaskRule>,
    /// See [`Request::block_length`](super::Request::block_length); the model's own goes first.
    pub block_length: Option<usize>,
    /// See [`Request::threshold`](super::Request::threshold).
    pub threshold: Option<f64>,
    /// See [`Request::entropy`](super::Request::entropy).
    pub entropy: Option<f64>,
    /// See [`Request::cache`](super::Request::cache).
    pub cache: Option<CachePolicy>,
    /// See [`Request::refresh`](super::Request::refresh).
    pub refresh: Option<usize>,
    /// See [`Request::refresh_drift`](super::Request::refresh_drift).
    pub refresh_drift: Option<f64>,
    /// See [`Request::window`](super::Request::window).
    pub window: Option<usize>,
    /// See [`Request::freeze_prompt`](super::Request::freeze_prompt).
    pub freeze_prompt: bool,
    /// See [`Request::dirty_rows`](super::Request::dirty_rows).
    pub dirty_rows: usize,
    /// See [`Request::delay`](super::Request::delay).
    pub delay: Option<usize>,
}

const NOTHING: RecipeRow = RecipeRow {
    recipe: Recipe::Exact,
    name: "exact",
    description: "the model's reference sampler: every row in every step, the same text as the published code",
    unmask: None,
    block_length: None,
    threshold: None,
    entropy: None,
    cache: None,
    refresh: None,
    refresh_drift: None,
    window: None,
    freeze_prompt: false,
    dirty_rows: 0,
    delay: None,
};

/// Every recipe: one row each.
pub static RECIPES: [RecipeRow; 5] = [
    NOTHING,
    RecipeRow {
        recipe: Recipe::Fast,
        name: "fast",
        description: "every token that is sure enough; in a block's later steps only its own rows run",
        unmask: Some(UnmaskRule::Threshold),
        block_length: Some(32),
        threshold: Some(0.9),
        cache: Some(CachePolicy::Dual),
        window: Some(32),
        ..NOTHING
    },
    RecipeRow {
        recipe: Recipe::Fastest,
        name: "fastest",
        description: "as fast, and the prompt runs once, decided rows once more: the least work, at some cost in quality",
        unmask: Some(UnmaskRule::Threshold),
        block_length: Some(32),
        threshold: Some(0.9),
        cache: Some(CachePolicy::Dual),
        window: Some(32),
        freeze_prompt: true,
        dirty_rows: 1,
        ..NOTHING
    },
    RecipeRow {
        recipe: Recipe::Auto,
        name: "auto",
        description: "as fast, with as wide a window and as many refreshes as a tenth more time buys on this machine",
        unmask: Some(UnmaskRule::Threshold),
        block_length: Some(32),
        threshold: Some(0.9),
        cache: Some(CachePolicy::Dual),
        ..NOTHING
    },
    RecipeRow {
        recipe: Recipe::D3llm,
        name: "d3llm",
        description: "several blocks at once by entropy, finished ones frozen: for models distilled for it (d3LLM)",
        unmask: Some(UnmaskRule::MultiBlock),
        block_length: Some(32),
        entropy: Some(0.5),
        cache: Some(CachePolicy::Delayed),
        window: Some(32),
        delay: Some(1),
        ..NOTHING
    },
];

impl Recipe {
    /// What it sets.
    pub fn row(self) -> &'static RecipeRow {
        RECIPES.iter().find(|row| row.recipe == self).unwrap_or(&NOTHING)
    }

    /// The recipe's name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The recipe called `name`, whatever its case.
    pub fn from_name(name: &str) -> Option<Recipe> {
        RECIPES.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.recipe)
    }
}

/// What a recipe was measured to cost, on a small model: what counts is the difference to the reference sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Name of the recipe.
    pub recipe: &'static str,
    /// The model that answered.
    pub model: &'static str,
    /// Questions.
    pub items: usize,
    /// Share of right answers.
    pub accuracy: f64,
    /// Of the accuracy to that of `exact`, question by question, and the ends of its 95 % interval; none for `exact`.
    pub difference: Option<[f64; 3]>,
    /// Visible tokens per second over those of `exact`.
    pub speed_up: f64,
    /// Rows run over those of `exact`.
    pub rows_share: f64,
}

impl RecipeRow {
    /// What it was measured to cost; none if it wasn't.
    pub fn figures(&self) -> Option<&'static Figures> {
        FIGURES.iter().find(|figures| figures.recipe == self.name)
    }

    /// Its settings as they would be given on the command line.
    pub fn flags(&self) -> String {
        let mut flags = Vec::new();
        let mut flag = |name: &str, value: Option<String>| flags.extend(value.map(|value| format!("--{name} {value}")));
        flag("unmask", self.unmask.map(|rule| rule.name().to_owned()));
        flag("block-length", self.block_length.map(|n| n.to_string()));
        flag("threshold", self.threshold.map(|n| n.to_string()));
        flag("entropy", self.entropy.map(|n| n.to_string()));
        flag("cache", self.cache.map(|policy| policy.name().to_owned()));
        flag("refresh", self.refresh.map(|n| n.to_string()));
        flag("refresh-drift", self.refresh_drift.map(|n| n.to_string()));
        flag("window", self.window.map(|n| n.to_string()));
        flag("dirty-rows", (self.dirty_rows > 0).then(|| self.dirty_rows.to_string()));
        flag("delay", self.delay.map(|n| n.to_string()));
        if self.freeze_prompt {
            flags.push("--freeze-prompt".to_owned());
        }
        flags.join(" ")
    }
}
