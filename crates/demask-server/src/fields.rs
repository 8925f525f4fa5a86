//! From a body to what it asks for. One table names the settings, and both the reading and the OpenAPI document go by it.
//!
//! Settings are the library's [`Request`]: the command line's options with `_` for `-`, and the same defaults. A field is
//! a setting, one of the endpoint's own, one that OpenAI's clients send and that changes nothing, or refused. `null` is
//! the same as absent.

use demask::Request;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::failure::ApiError;

/// A setting of a run.
pub(crate) struct Setting {
    /// The field's name.
    pub(crate) name: &'static str,
    kind: Kind,
    about: &'static str,
}

enum Kind {
    Count,
    Seed,
    Number,
    Flag,
    Ids,
    Recipe,
    Unmask,
    Cache,
    Eos,
}

const fn setting(name: &'static str, kind: Kind, about: &'static str) -> Setting {
    Setting { name, kind, about }
}

/// Every setting: the fields of [`Request`].
pub(crate) static SETTINGS: [Setting; 30] = [
    setting("max_tokens", Kind::Count, "Open positions on the canvas: the longest answer"),
    setting("recipe", Kind::Recipe, "Named settings that fill in what isn't given"),
    setting("steps", Kind::Count, "Denoising steps; default: one per open position"),
    setting("block_length", Kind::Count, "Positions per block; blocks are decided from left to right"),
    setting("unmask", Kind::Unmask, "Which positions a step decides; default: the recipe's"),
    setting("threshold", Kind::Number, "Probability from which a guess is kept: threshold, hierarchy, credit, wino"),
    setting("low", Kind::Number, "Probability of the surest guess between decided positions: hierarchy"),
    setting("factor", Kind::Number, "How much each further guess of a step must be surer: factor"),
    setting("entropy", Kind::Number, "Entropy in nats of the guesses that are kept: entropy unmaskers, multi-block"),
    setting("add", Kind::Number, "Decided part of a block when the next joins: multi-block"),
    setting("activate", Kind::Number, "Decided part of a block when the next must progress: multi-block"),
    setting("back", Kind::Number, "Probability below which a token is opened again: wino"),
    setting("cache", Kind::Cache, "Which rows run again in a step; default: the recipe's"),
    setting("refresh", Kind::Count, "With a cache, all rows run at least every so many steps"),
    setting(
        "refresh_drift",
        Kind::Number,
        "With a cache, all rows run when those that ran have drifted by more than this",
    ),
    setting("window", Kind::Count, "Open positions behind the block that the model sees"),
    setting("freeze_prompt", Kind::Flag, "Run the prompt's rows only once"),
    setting("dirty_rows", Kind::Count, "With a cache, run only open rows and those of the last so many steps"),
    setting("delay", Kind::Count, "Steps that a finished block still runs: delayed"),
    setting("temperature", Kind::Number, "Randomness of the tokens; 0 takes the likeliest"),
    setting("top_p", Kind::Number, "Draw from the likeliest tokens that together have this probability (Dream)"),
    setting("top_k", Kind::Count, "Draw from this many likeliest tokens; 0 is off (Dream)"),
    setting("alg_temp", Kind::Number, "Randomness of the choice of positions (Dream)"),
    setting("cfg_scale", Kind::Number, "Classifier-free guidance; 0 is off (LLaDA)"),
    setting("seed", Kind::Seed, "Seed of all random numbers: the same seed gives the same text"),
    setting("eos", Kind::Eos, "End tokens: stop as soon as the answer is final, keep deciding, or decide them last"),
    setting("ban", Kind::Ids, "Token ids that must not be written"),
    setting("no_repeat", Kind::Count, "No so many tokens in a row stand twice in the answer; 0 is off"),
    setting("eps", Kind::Number, "Where time ends in the schedule (Dream)"),
    setting("full_logits", Kind::Flag, "Compute the logits of every row, to measure what leaving them out saves"),
];

/// The most that a count may be, as on the command line: more than any context, few enough to count through.
const MOST: u64 = 1_000_000;

/// Fields that OpenAI's clients send and that change nothing here.
pub(crate) const IGNORED: &[&str] = &[
    "user",
    "metadata",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "parallel_tool_calls",
];

/// The library's name of a setting.
fn library_name(name: &str) -> String {
    if name == "ban" { "banned".to_owned() } else { name.replace('_', "-") }
}

/// The fields of one body.
pub(crate) struct Fields {
    map: Map<String, Value>,
}

impl Fields {
    /// Reads a body.
    pub(crate) fn read(body: &[u8]) -> Result<Fields, ApiError> {
        let wrong = |error: serde_json::Error| ApiError::bad(format!("the body is not JSON: {error}"));
        if std::str::from_utf8(body).is_err() {
            return Err(ApiError::bad("the body is not JSON: it is not UTF-8"));
        }
        let mut value: Value = serde_json::from_slice(body).map_err(wrong)?;
        drop_nulls(&mut value);
        match value {
            Value::Object(map) => Ok(Fields { map }),
            _ => Err(ApiError::bad("the body must be a JSON object")),
        }
    }

    /// Whether a field is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Takes one field away.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name)
    }

    /// `max_completion_tokens` is another name of `max_tokens`.
    pub(crate) fn unite_max_tokens(&mut self) -> Result<(), ApiError> {
        if let Some(newer) = self.take("max_completion_tokens") {
            if self.map.get("max_tokens").is_some_and(|older| *older != newer) {
                return Err(ApiError::field("max_completion_tokens", "it contradicts `max_tokens`; give one of them"));
            }
            self.map.insert("max_tokens".to_owned(), newer);
        }
        Ok(())
    }

    /// Takes the fields that are ignored, and those that say nothing but what is done anyway. `neutral` lists the latter
    /// with the values that do.
    pub(crate) fn drop_neutral(&mut self, neutral: &[(&str, &[Value])]) -> Result<(), ApiError> {
        for name in IGNORED {
            self.map.remove(*name);
        }
        for (name, values) in neutral {
            match self.map.remove(*name) {
                Some(value) if !values.contains(&value) => {
                    return Err(ApiError::unsupported(name, "it would change the answer, and is not supported"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes the settings of the run.
    pub(crate) fn settings(&mut self, most_tokens: usize) -> Result<Request, ApiError> {
        let says_length = self.map.contains_key("max_tokens");
        let mut given = Map::new();
        for setting in &SETTINGS {
            let Some(value) = self.map.remove(setting.name) else { continue };
            if matches!(setting.kind, Kind::Count) && value.as_u64().is_some_and(|n| n > MOST) {
                return Err(ApiError::field(setting.name, format!("`{}` is at most {MOST}", setting.name)));
            }
            given.insert(library_name(setting.name), value);
        }
        let mut request: Request = typed(Value::Object(given))?;
        if !says_length {
            request.max_tokens = request.max_tokens.min(most_tokens);
        }
        if request.max_tokens > most_tokens {
            let message = format!("`max_tokens` is {}; this server takes at most {most_tokens}", request.max_tokens);
            return Err(ApiError::field("max_tokens", message));
        }
        request.check()?;
        Ok(request)
    }

    /// Reads what is left: the endpoint's own fields. Anything else is refused by name.
    pub(crate) fn rest<T: DeserializeOwned>(self) -> Result<T, ApiError> {
        typed(Value::Object(self.map))
    }
}

/// Takes fields that are null out of all objects. The reader of JSON has bounded the depth.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Reads a value; a failure names the field.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.inner().to_string();
        if let Some(unknown) = reason.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            let name = if parent.is_empty() { unknown.to_owned() } else { format!("{parent}.{unknown}") };
            return ApiError::unsupported(&name, "no such field is known here");
        }
        if let Some(missing) = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
            let name = if path == "." { missing.to_owned() } else { format!("{path}.{missing}") };
            return ApiError::field(&name, format!("`{name}` is needed"));
        }
        let name = if path == "banned" { "ban".to_owned() } else { path.replace('-', "_") };
        ApiError::field(&name, format!("`{name}` can't be used: {reason}"))
    })
}

/// The settings as JSON Schema properties.
pub(crate) fn schemas() -> Map<String, Value> {
    let defaults = serde_json::to_value(Request::default()).unwrap_or_default();
    let names = |names: Vec<&str>| json!({"type": "string", "enum": names});
    let schema = |setting: &Setting| {
        let mut schema = match setting.kind {
            Kind::Count => json!({"type": "integer", "minimum": 0, "maximum": MOST}),
            Kind::Seed => json!({"type": "integer", "minimum": 0}),
            Kind::Number => json!({"type": "number"}),
            Kind::Flag => json!({"type": "boolean"}),
            Kind::Ids => json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
            Kind::Recipe => names(demask::diffusion::RECIPES.iter().map(|row| row.name).collect()),
            Kind::Unmask => names(demask::UnmaskRule::ALL.map(demask::UnmaskRule::name).to_vec()),
            Kind::Cache => names(demask::CachePolicy::ALL.map(demask::CachePolicy::name).to_vec()),
            Kind::Eos => names(vec!["keep", "stop", "last"]),
        };
        schema["description"] = json!(setting.about);
        let default = &defaults[library_name(setting.name)];
        if !default.is_null() {
            schema["default"] = default.clone();
        }
        (setting.name.to_owned(), schema)
    };
    SETTINGS.iter().map(schema).collect()
}

/// The fields that every request may set, with the library's names: what the command line's options are compared with.
pub fn setting_names() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_librarys_request() {
        let request = serde_json::to_value(Request::default()).expect("a request is JSON");
        let mut library: Vec<String> = request.as_object().expect("an object").keys().cloned().collect();
        let mut table: Vec<String> = SETTINGS.iter().map(|setting| library_name(setting.name)).collect();
        library.sort();
        table.sort();
        assert_eq!(table, library);
    }

    fn settings(body: &str) -> Result<Request, ApiError> {
        Fields::read(body.as_bytes())?.settings(4096)
    }

    #[test]
    fn settings_have_the_librarys_names_and_defaults() {
        assert_eq!(settings("{}").expect("nothing is needed"), Request::default());
        assert_eq!(settings(r#"{"seed": null, "steps": null}"#).expect("null is absent"), Request::default());
        let given = settings(r#"{"block_length": 8, "unmask": "threshold", "ban": [3], "recipe": "fast", "top_p": 1}"#);
        let wanted = Request {
            block_length: Some(8),
            unmask: Some(demask::UnmaskRule::Threshold),
            banned: vec![3],
            recipe: demask::Recipe::Fast,
            ..Request::default()
        };
        assert_eq!(given.expect("valid"), wanted);
    }

    #[test]
    fn the_default_length_follows_the_servers_limit() {
        let with = |body: &str| Fields::read(body.as_bytes()).expect("JSON").settings(64);
        assert_eq!(with("{}").expect("the default fits").max_tokens, 64);
        assert_eq!(with(r#"{"max_tokens": null}"#).expect("null is absent").max_tokens, 64);
        assert!(with(r#"{"max_tokens": 65}"#).is_err());
    }

    #[test]
    fn what_cant_be_is_named() {
        for (body, param, words) in [
            (r#"{"max_tokens": "many"}"#, "max_tokens", "many"),
            (r#"{"max_tokens": -1}"#, "max_tokens", "-1"),
            (r#"{"max_tokens": 0}"#, "max_tokens", "at least 1"),
            (r#"{"max_tokens": 5000}"#, "max_tokens", "4096"),
            (r#"{"steps": 2000000}"#, "steps", "1000000"),
            (r#"{"seed": -1}"#, "seed", "-1"),
            (r#"{"ban": 3}"#, "ban", "sequence"),
            (r#"{"unmask": "best"}"#, "unmask", "threshold"),
            (r#"{"temperature": -1}"#, "temperature", "0 or more"),
            (r#"{"recipe": "quick"}"#, "recipe", "fast"),
        ] {
            let error = settings(body).expect_err(body).body().error;
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {}", error.message);
            assert!(error.message.contains(words), "{body}: {}", error.message);
        }
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Own {
        inner: Vec<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        x: u8,
    }

    #[test]
    fn unknown_and_missing_fields_are_named_with_their_place() {
        for (body, param) in [
            ("{}", "inner"),
            (r#"{"inner": [], "foo": 1}"#, "foo"),
            (r#"{"inner": [{"x": 1}, {"x": 1, "y": 2}]}"#, "inner[1].y"),
            (r#"{"inner": [{}]}"#, "inner[0].x"),
            (r#"{"inner": [{"x": "a"}]}"#, "inner[0].x"),
        ] {
            let error = Fields::read(body.as_bytes()).and_then(Fields::rest::<Own>).expect_err(body).body().error;
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {}", error.message);
        }
    }
}
