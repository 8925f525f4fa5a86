//! The endpoints that OpenAI's clients speak to.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod models;
pub(crate) mod stream;

use demask::diffusion::Statistics;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::failure::ApiError;
use crate::guard::Number;

/// What an answer took. Beyond OpenAI's fields it tells the work.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens that were given.
    prompt_tokens: usize,
    /// Tokens of the answers' texts.
    completion_tokens: usize,
    /// Their sum.
    total_tokens: usize,
    /// Denoising steps.
    steps: usize,
    /// Forward passes (NFE).
    nfe: usize,
    /// Rows pushed through all layers.
    rows: usize,
}

impl Usage {
    fn new<'a>(given: usize, runs: impl Iterator<Item = &'a Statistics>) -> Usage {
        let start =
            Usage { prompt_tokens: given, completion_tokens: 0, total_tokens: given, steps: 0, nfe: 0, rows: 0 };
        runs.fold(start, |sum, run| Usage {
            completion_tokens: sum.completion_tokens + run.visible_tokens,
            total_tokens: sum.total_tokens + run.visible_tokens,
            steps: sum.steps + run.steps,
            nfe: sum.nfe + run.nfe,
            rows: sum.rows + run.rows,
            ..sum
        })
    }
}

/// Where an answer ends.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Stop {
    /// One string.
    One(String),
    /// Up to four.
    Many(Vec<String>),
}

/// Most stop strings, and the most bytes that one has.
const STOPS: usize = 4;
const STOP_BYTES: usize = 1024;

impl Stop {
    /// The strings.
    pub(crate) fn strings(stop: Option<Stop>) -> Result<Vec<String>, ApiError> {
        let strings = match stop {
            None => Vec::new(),
            Some(Stop::One(string)) => vec![string],
            Some(Stop::Many(strings)) => strings,
        };
        if strings.len() > STOPS {
            return Err(ApiError::field("stop", format!("`stop` has {} strings, at most {STOPS}", strings.len())));
        }
        if strings.iter().any(|string| string.is_empty() || string.len() > STOP_BYTES) {
            return Err(ApiError::field("stop", format!("a `stop` string has 1 to {STOP_BYTES} bytes")));
        }
        Ok(strings)
    }
}

/// What a stream tells beside the text.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StreamOptions {
    /// A last chunk with the usage.
    include_usage: Option<bool>,
    /// Ignored: nothing is added to chunks.
    #[allow(dead_code)]
    include_obfuscation: Option<bool>,
}

/// How the answer is to be sent.
struct Form {
    stream: bool,
    include_usage: bool,
}

fn form(stream: Option<bool>, options: Option<StreamOptions>) -> Result<Form, ApiError> {
    let stream = stream.unwrap_or(false);
    if options.is_some() && !stream {
        return Err(ApiError::field("stream_options", "`stream_options` goes with `stream`, which is not set"));
    }
    let include_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
    Ok(Form { stream, include_usage })
}

/// The number of answers per prompt.
fn answers(n: Option<usize>) -> Result<usize, ApiError> {
    match n.unwrap_or(1) {
        0 => Err(ApiError::field("n", "`n` is at least 1")),
        n => Ok(n),
    }
}

/// The id of an answer.
fn id(app: &App, prefix: &str, number: Number) -> String {
    format!("{prefix}-{:016x}{:08x}", app.stamp, number.0)
}
