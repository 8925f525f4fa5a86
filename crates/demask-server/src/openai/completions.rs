//! `POST /v1/completions`: raw text goes on, or with `suffix` a gap in a text is filled.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use demask::text::Specials;
use demask::{Canvas, EndPolicy, ModelFile, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::stream::{self, Chunks, to_json};
use super::{Form, Stop, StreamOptions, Usage, answers, form, id};
use crate::app::{self, App};
use crate::failure::{ApiError, ErrorBody};
use crate::fields::Fields;
use crate::guard::{self, Number};
use crate::job::{FinishReason, Outcome, Subject};
use crate::runs::Asked;

/// A text that is to go on, and settings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompletionRequest {
    /// The text, several texts, or token ids. It gets no chat template.
    prompt: Prompt,
    /// The text behind the gap: `max_tokens` positions between both are filled.
    suffix: Option<String>,
    /// The served model, or nothing.
    model: Option<String>,
    /// Answers per prompt; each has the next seed.
    n: Option<usize>,
    /// Where an answer ends: nothing of these is given out.
    stop: Option<Stop>,
    /// Chunks as soon as they are final, instead of one answer.
    stream: Option<bool>,
    /// What a stream tells beside the text.
    stream_options: Option<StreamOptions>,
}

/// What is to go on.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Prompt {
    /// A text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// Token ids.
    Tokens(Vec<u32>),
    /// Several lists of token ids.
    ManyTokens(Vec<Vec<u32>>),
}

impl Prompt {
    fn tokens(self, file: &ModelFile, most: usize) -> Result<Vec<Vec<u32>>, ApiError> {
        let count = match &self {
            Prompt::Text(_) | Prompt::Tokens(_) => 1,
            Prompt::Texts(texts) => texts.len(),
            Prompt::ManyTokens(lists) => lists.len(),
        };
        if !(1..=most).contains(&count) {
            return Err(ApiError::field("prompt", format!("`prompt` holds {count} prompts; 1 to {most} can be")));
        }
        let encode = |text: String| file.tokenizer().encode_prompt_raw(&text);
        let lists = match self {
            Prompt::Text(text) => vec![encode(text)],
            Prompt::Texts(texts) => texts.into_iter().map(encode).collect(),
            Prompt::Tokens(tokens) => vec![tokens],
            Prompt::ManyTokens(lists) => lists,
        };
        let mask = file.spec().mask_token;
        match lists.iter().find_map(|tokens| tokens.iter().position(|&token| token == mask)) {
            Some(at) => Err(ApiError::field(
                "prompt",
                format!(
                    "token {at} (from 0) of `prompt` is {mask}, the mask; what is to be filled goes to `/api/denoise`, or before a `suffix`"
                ),
            )),
            None => Ok(lists),
        }
    }
}

/// Answers, or in a stream a piece of one.
#[derive(Serialize, ToSchema)]
pub(crate) struct Completion {
    id: String,
    /// `text_completion`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
    choices: Vec<TextChoice>,
    /// In a stream with `include_usage`: null, but for the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    usage: Option<Option<Usage>>,
}

/// One of the answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct TextChoice {
    index: usize,
    text: String,
    /// Always null.
    logprobs: Option<Value>,
    finish_reason: Option<FinishReason>,
    /// The seed that gives this text again.
    seed: u64,
}

/// Let a text go on, or fill a gap in one
#[utoipa::path(post, path = "/v1/completions", tag = "openai", request_body = CompletionRequest,
    responses((status = 200, description = "Answers; with `stream` server-sent events of the same shape", content(
        (Completion = "application/json"), (Completion = "text/event-stream"))),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    Extension(number): Extension<Number>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (asked, options) = guard::read(&app, &headers, body, prepare).await?;
    let (mut running, _) = asked.submit(&app, number)?;
    let (runs, given) = (asked.runs(), asked.given());
    let chunks = TextChunks {
        id: id(&app, "cmpl", number),
        created: app::now(),
        model: app.model.clone(),
        include_usage: options.include_usage,
        seeds: (0..runs).map(|index| asked.seed(index)).collect(),
    };
    if options.stream {
        running.under_way().await?;
        return Ok(stream::respond(running, Box::new(chunks), runs, given, options.include_usage));
    }
    let finished = running.finished(runs).await?;
    let usage = Usage::new(given, finished.iter().map(|(_, outcome)| &outcome.statistics));
    let choice = |(index, (text, outcome)): (usize, (String, Outcome))| TextChoice {
        index,
        text,
        logprobs: None,
        finish_reason: Some(outcome.finish),
        seed: asked.seed(index),
    };
    let choices = finished.into_iter().enumerate().map(choice).collect();
    Ok(Json(chunks.completion(choices, Some(Some(usage)))).into_response())
}

fn prepare(app: &App, body: &[u8]) -> Result<(Asked, Form), ApiError> {
    let mut fields = Fields::read(body)?;
    fields.drop_neutral(&[
        ("best_of", &[json!(1)]),
        ("echo", &[json!(false)]),
        ("logprobs", &[]),
        ("logit_bias", &[json!({})]),
        ("presence_penalty", &[json!(0), json!(0.0)]),
        ("frequency_penalty", &[json!(0), json!(0.0)]),
    ])?;
    let given_eos = fields.has("eos");
    let request = fields.settings(app.options.limits.max_tokens)?;
    let given: CompletionRequest = fields.rest()?;
    app.check_model(given.model.as_deref())?;
    let stop = Stop::strings(given.stop)?;
    let n = answers(given.n)?;
    let form = form(given.stream, given.stream_options)?;
    let file = app.runner.file();
    let prompts = given.prompt.tokens(file, app.options.limits.choices)?;
    let asked = match given.suffix {
        None => {
            let canvases = prompts.iter().map(|prompt| file.canvas(prompt, request.max_tokens));
            Asked { canvases: canvases.collect::<Result<_, _>>()?, subject: Subject::Answer, request, n, stop }
        }
        Some(suffix) => {
            let request = fill(request, given_eos)?;
            let canvases = prompts.iter().map(|prompt| gap(file, prompt, request.max_tokens, &suffix));
            Asked { canvases: canvases.collect::<Result<_, _>>()?, subject: Subject::Blanks, request, n, stop }
        }
    };
    asked.check(app)?;
    Ok((asked, form))
}

/// Text follows the open positions, so all of them are decided.
pub(crate) fn fill(request: Request, given_eos: bool) -> Result<Request, ApiError> {
    if given_eos && request.eos == EndPolicy::Stop {
        let message = "`eos` can't be `stop`: text follows the blanks, so all their positions are decided; keep can";
        return Err(ApiError::field("eos", message));
    }
    let eos = if request.eos == EndPolicy::Stop { EndPolicy::Keep } else { request.eos };
    Ok(Request { eos, ..request })
}

fn gap(file: &ModelFile, before: &[u32], open: usize, suffix: &str) -> Result<Canvas, ApiError> {
    let behind = file.tokenizer().encode(suffix, Specials::Text);
    let mut tokens: Vec<Option<u32>> = before.iter().copied().map(Some).collect();
    if tokens.len().saturating_add(open).saturating_add(behind.len()) > file.spec().context {
        let (prompt, limit) = (tokens.len() + behind.len(), file.spec().context);
        return Err(demask::Error::Context { prompt, max_tokens: open, limit }.into());
    }
    tokens.resize(tokens.len() + open, None);
    tokens.extend(behind.into_iter().map(Some));
    Ok(file.canvas_with_blanks(&tokens)?)
}

struct TextChunks {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    seeds: Vec<u64>,
}

impl TextChunks {
    fn completion(&self, choices: Vec<TextChoice>, usage: Option<Option<Usage>>) -> Completion {
        let (id, model) = (self.id.clone(), self.model.clone());
        Completion { id, object: "text_completion", created: self.created, model, choices, usage }
    }

    fn chunk(&self, index: usize, text: String, finish_reason: Option<FinishReason>) -> String {
        let seed = self.seeds.get(index).copied().unwrap_or_default();
        let choice = TextChoice { index, text, logprobs: None, finish_reason, seed };
        to_json(&self.completion(vec![choice], self.include_usage.then_some(None)))
    }
}

impl Chunks for TextChunks {
    fn opening(&self, _: usize) -> Option<String> {
        None
    }

    fn text(&self, index: usize, text: String) -> String {
        self.chunk(index, text, None)
    }

    fn closing(&self, index: usize, finish: FinishReason) -> String {
        self.chunk(index, String::new(), Some(finish))
    }

    fn usage(&self, usage: Usage) -> String {
        to_json(&self.completion(Vec::new(), Some(Some(usage))))
    }
}
