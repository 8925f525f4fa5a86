//! The options that decide how a canvas is decoded. What they mean is the library's: here a [`Request`] is filled in.

use anyhow::Result;
use clap::{Args, ValueEnum};
use demask::diffusion::{Figures, RECIPES};
use demask::{CachePolicy, EndPolicy, Recipe, Request, UnmaskRule};
use serde_json::{Map, Value};

use super::values::{cache_policy, count, number, recipe, recipe_names, seed, token_range, unmask_help, unmask_rule};
use crate::failure::Misuse;
use crate::output::Out;

/// How to decode: same names and defaults as the library's [`Request`]. What isn't given is left to the recipe.
#[derive(Args)]
#[command(next_help_heading = "Decoding")]
pub(crate) struct SettingsArgs {
    /// Denoising steps; they need not divide: blocks get theirs by length, and what is left over goes one each to the first;
    /// the same within a block. At least one per block [default: one per open position]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    steps: Option<usize>,
    /// Positions per block; blocks are decided from left to right, and the last may be shorter [default: the model's, else 32; Dream's exact: all]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    block_length: Option<usize>,
    /// Which positions a step decides [default: the recipe's; exact: the model's reference]
    #[arg(long, value_name = "NAME", value_parser = unmask_rule, long_help = unmask_help())]
    unmask: Option<UnmaskRule>,
    /// Probability from which a guess is kept: threshold, hierarchy, credit, wino [default: 0.9; wino: 0.6]
    #[arg(long, value_name = "P", value_parser = number, allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// How much each further guess of a step must be surer: factor [default: 1]
    #[arg(long, value_name = "F", value_parser = number, allow_negative_numbers = true)]
    factor: Option<f64>,
    /// Entropy (nats) of the guesses that are kept: entropy-threshold, entropy-bound, multi-block [default: 0.5]
    #[arg(long, value_name = "H", value_parser = number, allow_negative_numbers = true)]
    entropy: Option<f64>,
    /// Probability of the surest guess between decided positions: hierarchy [default: 0.4]
    #[arg(long, value_name = "P", value_parser = number, allow_negative_numbers = true)]
    low: Option<f64>,
    /// Decided part of a block when the next joins: multi-block [default: 0.1]
    #[arg(long, value_name = "PART", value_parser = number, allow_negative_numbers = true)]
    add: Option<f64>,
    /// Decided part of a block when the next must progress: multi-block [default: 0.95]
    #[arg(long, value_name = "PART", value_parser = number, allow_negative_numbers = true)]
    activate: Option<f64>,
    /// Probability below which a token is opened again: wino [default: 0.9]
    #[arg(long, value_name = "P", value_parser = number, allow_negative_numbers = true)]
    back: Option<f64>,
    /// Which rows run again in a step: none (all run), prefix, dual, delayed [default: the recipe's; exact: none]
    #[arg(long, value_name = "NAME", value_parser = cache_policy)]
    cache: Option<CachePolicy>,
    /// With a cache, run all rows at least every N steps [default: when a block begins]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    refresh: Option<usize>,
    /// With a cache, run all rows when those that run have drifted by more than X since all ran: one minus the cosine of
    /// their values, 0 to 2 [default: not looked at]
    #[arg(long, value_name = "X", value_parser = number, allow_negative_numbers = true)]
    refresh_drift: Option<f64>,
    /// Open positions behind the block that the model sees [default: the recipe's; exact: all]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    window: Option<usize>,
    /// Run the prompt's rows only once; `=false` where the recipe says so [default: the recipe's]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    freeze_prompt: Option<bool>,
    /// With a cache, run only open rows and those decided in the last N steps; 0 is off [default: the recipe's]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    dirty_rows: Option<usize>,
    /// Steps that a finished block still runs: --cache delayed [default: 1]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    delay: Option<usize>,
    /// Randomness of the tokens; 0 takes the likeliest
    #[arg(long, visible_alias = "temp", value_name = "T", default_value = "0", value_parser = number, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from the likeliest tokens that together have this probability (Dream models)
    #[arg(long, value_name = "P", default_value = "1", value_parser = number, allow_negative_numbers = true)]
    top_p: f64,
    /// Draw from this many likeliest tokens; 0 is off (Dream models)
    #[arg(long, value_name = "K", default_value = "0", value_parser = count, allow_negative_numbers = true)]
    top_k: usize,
    /// Randomness of the choice of positions; 0 is off (Dream models)
    #[arg(long, value_name = "A", default_value = "0", value_parser = number, allow_negative_numbers = true)]
    alg_temp: f64,
    /// Where time ends in the schedule (Dream models) [default: 0.001]
    #[arg(long, value_name = "E", value_parser = number, allow_negative_numbers = true)]
    eps: Option<f64>,
    /// Classifier-free guidance, two forward passes per step; 0 is off (LLaDA models)
    #[arg(long, value_name = "S", default_value = "0", value_parser = number, allow_negative_numbers = true)]
    cfg_scale: f64,
    /// Token ids that must not be written: 5,17-20
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_range, allow_negative_numbers = true)]
    ban: Vec<(u32, u32)>,
    /// Repetition guard: no N tokens in a row stand twice in the answer; 0 is off
    #[arg(long, value_name = "N", default_value = "0", value_parser = count, allow_negative_numbers = true)]
    no_repeat: usize,
    /// Seed of all random numbers: the same seed gives the same text
    #[arg(long, value_name = "N", default_value = "42", value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// End tokens: stop as soon as the answer is final, keep deciding all positions, or commit end tokens last
    /// [default: stop; in blanks: keep]
    #[arg(long, value_name = "WHAT", value_enum)]
    eos: Option<Eos>,
    /// Compute the logits of every row, to measure what leaving them out saves
    #[arg(long)]
    full_logits: bool,
}

impl SettingsArgs {
    /// The request that these options describe.
    pub(crate) fn request(&self, recipe: Recipe, max_tokens: usize) -> Request {
        Request {
            max_tokens,
            recipe,
            steps: self.steps,
            block_length: self.block_length,
            unmask: self.unmask,
            threshold: self.threshold,
            low: self.low,
            factor: self.factor,
            entropy: self.entropy,
            add: self.add,
            activate: self.activate,
            back: self.back,
            cache: self.cache,
            refresh: self.refresh,
            refresh_drift: self.refresh_drift,
            window: self.window,
            freeze_prompt: self.freeze_prompt,
            dirty_rows: self.dirty_rows,
            delay: self.delay,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            alg_temp: self.alg_temp,
            eps: self.eps.unwrap_or(Request::default().eps),
            cfg_scale: self.cfg_scale,
            seed: self.seed,
            eos: match self.eos {
                Some(Eos::Keep) => EndPolicy::Keep,
                None | Some(Eos::Stop) => EndPolicy::Stop,
                Some(Eos::Last) => EndPolicy::Last,
            },
            banned: self.ban.iter().flat_map(|&(first, last)| first..=last).collect(),
            no_repeat: self.no_repeat,
            full_logits: self.full_logits,
        }
    }

    /// Refuses to stop at an end token where every position has to be decided.
    pub(crate) fn check_for_blanks(&self) -> Result<()> {
        if self.eos == Some(Eos::Stop) {
            let message = "--eos stop can't be used: text follows the blanks, so all their positions are decided";
            return Err(Misuse::new(message, "keep (the default here) and last can").into());
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Eos {
    Keep,
    Stop,
    Last,
}

/// The named settings of one run.
#[derive(Args)]
#[command(next_help_heading = "Decoding")]
pub(crate) struct RecipeArgs {
    /// Named settings that fill in what isn't given; `list` shows them [default: exact]
    #[arg(long, value_name = "NAME", value_parser = only_named)]
    recipe: Option<RecipeChoice>,
}

impl RecipeArgs {
    /// The recipe; none if the list was asked for.
    pub(crate) fn recipe(&self) -> Option<Recipe> {
        match &self.recipe {
            None => Some(Recipe::default()),
            Some(RecipeChoice::List) => None,
            Some(RecipeChoice::Named { recipe, .. }) => Some(*recipe),
        }
    }
}

fn only_named(text: &str) -> Result<RecipeChoice, String> {
    match recipe(text)? {
        RecipeChoice::Named { changes, .. } if !changes.is_empty() => {
            Err("its settings are changed with options of their own".to_owned())
        }
        choice => Ok(choice),
    }
}

/// What `--recipe` names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecipeChoice {
    /// The list of recipes.
    List,
    /// A recipe, and settings that are changed: `fast:threshold=0.8`.
    Named { name: String, recipe: Recipe, changes: Map<String, Value> },
}

impl RecipeChoice {
    /// Reads `NAME` or `NAME:SETTING=VALUE:SETTING=VALUE`.
    pub(super) fn read(text: &str) -> Result<RecipeChoice, String> {
        if text.eq_ignore_ascii_case("list") {
            return Ok(RecipeChoice::List);
        }
        let mut parts = text.split(':');
        let recipe = parts.next().and_then(Recipe::from_name);
        let recipe = recipe.ok_or_else(|| format!("it must be one of {}, or list", recipe_names()))?;
        let mut changes = Map::new();
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` must be like threshold=0.8"))?;
            if name == "recipe" {
                return Err(format!("`{part}` would be another recipe; start with its name"));
            }
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            changes.insert(name.replace('_', "-"), value);
        }
        let name = text.to_ascii_lowercase();
        let choice = RecipeChoice::Named { name, recipe, changes };
        choice.request(Request::default()).map(|_| choice)
    }

    /// The request with this recipe and its changed settings.
    pub(crate) fn request(&self, base: Request) -> Result<Request, String> {
        let RecipeChoice::Named { recipe, changes, .. } = self else { return Ok(base) };
        let base = Request { recipe: *recipe, ..base };
        if changes.is_empty() {
            return Ok(base);
        }
        let mut value = serde_json::to_value(&base).map_err(|error| error.to_string())?;
        for (name, change) in changes {
            check_change(&value, name, change)?;
            value[name.as_str()] = change.clone();
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// Refuses a setting that there isn't, or a value of another kind than its own.
fn check_change(request: &Value, name: &str, change: &Value) -> Result<(), String> {
    let with = |value: &Value| {
        let mut request = request.clone();
        request[name] = value.clone();
        serde_json::from_value::<Request>(request).is_ok()
    };
    if request.get(name).is_none() {
        let names = request.as_object().into_iter().flat_map(Map::keys).filter(|name| *name != "recipe");
        let names: Vec<&str> = names.map(String::as_str).collect();
        return Err(format!("there is no setting `{name}`; there are {}", names.join(", ")));
    }
    if with(change) {
        return Ok(());
    }
    let kinds = [
        (Value::from(0.5), "a number".to_owned()),
        (Value::from(1), "a whole number, 0 or more".to_owned()),
        (Value::from(true), "true or false".to_owned()),
        (
            Value::from(UnmaskRule::ALL[0].name()),
            format!("one of {}", UnmaskRule::ALL.map(UnmaskRule::name).join(", ")),
        ),
        (
            Value::from(CachePolicy::ALL[0].name()),
            format!("one of {}", CachePolicy::ALL.map(CachePolicy::name).join(", ")),
        ),
        (Value::from("keep"), "one of keep, stop, last".to_owned()),
        (Value::from(vec![0]), "token ids like [5]".to_owned()),
    ];
    let kind =
        kinds.into_iter().find(|(example, _)| with(example)).map_or_else(|| "another".to_owned(), |(_, kind)| kind);
    let change = change.as_str().map_or_else(|| change.to_string(), str::to_owned);
    Err(format!("{name}={change} must be {kind}"))
}

/// A recipe's figures on one line.
fn measured(figures: &Figures) -> String {
    let accuracy = figures.accuracy * 100.0;
    let (model, items) = (figures.model, figures.items);
    let Some([difference, low, high]) = figures.difference.map(|ends| ends.map(|end| end * 100.0)) else {
        return format!("measured: accuracy {accuracy:.1} % ({model}, {items} questions)");
    };
    let (speed, rows) = (figures.speed_up, figures.rows_share * 100.0);
    format!(
        "measured: {speed:.0} times the tokens/s of exact, {rows:.1} % of its rows; accuracy {accuracy:.1} %, {difference:+.1} \
         points ({low:+.1} to {high:+.1})"
    )
}

/// Prints every recipe with its settings and what it was measured to cost.
pub(crate) fn list_recipes() -> Result<()> {
    let mut out = Out::stdout();
    for row in &RECIPES {
        out.line(&format!("{:9} {}", row.name, row.description))?;
        let flags = row.flags();
        let settings = if flags.is_empty() { "the model's own settings".to_owned() } else { flags };
        out.line(&format!("{:9} {settings}", ""))?;
        out.line(&format!("{:9} {}", "", row.figures().map_or_else(|| "not measured yet".to_owned(), measured)))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Request, String> {
        RecipeChoice::read(text)?.request(Request { seed: 7, ..Request::default() })
    }

    #[test]
    fn a_recipe_may_change_settings() {
        let request = of("FAST:threshold=0.8:unmask=wino:freeze_prompt=true").expect("valid");
        assert_eq!((request.recipe, request.threshold, request.seed), (Recipe::Fast, Some(0.8), 7));
        assert_eq!((request.unmask, request.freeze_prompt), (Some(UnmaskRule::Wino), Some(true)));
        assert_eq!(RecipeChoice::read("list"), Ok(RecipeChoice::List));
        for (text, words) in [
            ("quick", "exact, fast, fastest, auto, d3llm"),
            ("fast:threshold", "`threshold`"),
            ("fast:tresh=1", "no setting `tresh`; there are"),
            ("fast:tresh=1", "threshold"),
            ("fast:window=many", "window=many must be a whole number, 0 or more"),
            ("fast:window=-3", "window=-3 must be a whole number"),
            ("fast:threshold=high", "threshold=high must be a number"),
            ("fast:freeze-prompt=2", "must be true or false"),
            ("fast:unmask=foo", "unmask=foo must be one of low-confidence"),
            ("fast:cache=lru", "one of none, prefix"),
            ("fast:eos=never", "one of keep, stop, last"),
            ("fast:banned=3", "token ids like [5]"),
        ] {
            assert!(of(text).expect_err(text).contains(words), "{text}");
        }
    }
}
