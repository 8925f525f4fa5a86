//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use demask::{Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::stream::{self, Chunks, to_json};
use super::{Form, Stop, StreamOptions, Usage, answers, form, id};
use crate::app::{self, App};
use crate::failure::{ApiError, ErrorBody};
use crate::fields::Fields;
use crate::guard::{self, Number};
use crate::job::{FinishReason, Subject};
use crate::runs::Asked;

/// A conversation that is to be answered, and settings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    /// The turns, oldest first.
    messages: Vec<ChatMessage>,
    /// The served model, or nothing.
    model: Option<String>,
    /// Answers; each has the next seed.
    n: Option<usize>,
    /// Where an answer ends: nothing of these is given out.
    stop: Option<Stop>,
    /// Chunks as soon as they are final, instead of one answer.
    stream: Option<bool>,
    /// What a stream tells beside the text.
    stream_options: Option<StreamOptions>,
}

/// A turn of a conversation. What else an answer of OpenAI's has is taken if it holds nothing.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatMessage {
    /// `system` (or `developer`), `user` or `assistant`.
    role: String,
    /// The text, or parts of it, which are joined with newlines.
    content: Content,
    /// Not shown to the model.
    #[serde(rename = "name")]
    _name: Option<String>,
    tool_calls: Option<Value>,
    function_call: Option<Value>,
    refusal: Option<Value>,
    annotations: Option<Value>,
    audio: Option<Value>,
}

/// What a turn says.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Content {
    /// Text.
    Text(String),
    /// Parts, all of type `text`.
    Parts(Vec<Part>),
}

/// A part of a turn.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Part {
    /// `text`.
    #[serde(rename = "type")]
    kind: String,
    /// The text.
    text: Option<String>,
}

/// The conversation in the library's terms.
pub(crate) fn messages(given: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    if given.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty; at least one is needed"));
    }
    given.into_iter().enumerate().map(|(at, message)| read(message, &format!("messages[{at}]"))).collect()
}

fn read(message: ChatMessage, place: &str) -> Result<Message, ApiError> {
    let role = match message.role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let other: String = other.chars().take(40).collect();
            let message = format!("`{place}.role` can't be `{other}`: system, developer, user and assistant can");
            return Err(ApiError::field(format!("{place}.role"), message));
        }
    };
    let holds_something = |value: &Option<Value>| match value {
        None => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    for (name, value) in [
        ("tool_calls", &message.tool_calls),
        ("function_call", &message.function_call),
        ("refusal", &message.refusal),
        ("annotations", &message.annotations),
        ("audio", &message.audio),
    ] {
        if holds_something(value) {
            return Err(ApiError::unsupported(&format!("{place}.{name}"), "only text can be read"));
        }
    }
    let text = match message.content {
        Content::Text(text) => text,
        Content::Parts(parts) => {
            let texts = parts.into_iter().enumerate().map(|(at, part)| match part {
                Part { kind, text: Some(text) } if kind == "text" => Ok(text),
                Part { kind, .. } => {
                    let kind: String = kind.chars().take(40).collect();
                    let name = format!("{place}.content[{at}]");
                    Err(ApiError::field(
                        &name,
                        format!("`{name}` is of type `{kind}`; only parts with text can be read"),
                    ))
                }
            });
            texts.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
    };
    Ok(Message::new(role, text))
}

/// An answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    id: String,
    /// `chat.completion`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
    choices: Vec<ChatChoice>,
    usage: Usage,
    system_fingerprint: Option<String>,
}

/// One of the answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    index: usize,
    message: Answer,
    /// Always null.
    logprobs: Option<Value>,
    finish_reason: FinishReason,
    /// The seed that gives this text again.
    seed: u64,
}

/// What the model says.
#[derive(Serialize, ToSchema)]
pub(crate) struct Answer {
    /// `assistant`.
    role: &'static str,
    content: String,
    /// Always null.
    refusal: Option<String>,
}

/// A piece of an answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatChunk {
    id: String,
    /// `chat.completion.chunk`.
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<ChunkChoice>,
    /// With `include_usage`: null, but for the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    usage: Option<Option<Usage>>,
}

/// A piece of one of the answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    index: usize,
    delta: Delta,
    /// Always null.
    logprobs: Option<Value>,
    finish_reason: Option<FinishReason>,
    /// In an answer's first chunk: the seed that gives this text again.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// What is new.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

/// Answer a conversation
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai", request_body = ChatRequest,
    responses((status = 200, description = "An answer; with `stream` server-sent events of chunks", content(
        (ChatCompletion = "application/json"), (ChatChunk = "text/event-stream"))),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(crate) async fn complete(
    State(app): State<Arc<App>>,
    Extension(number): Extension<Number>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (asked, options) = guard::read(&app, &headers, body, prepare).await?;
    let (mut running, _) = asked.submit(&app, number)?;
    let chunks = ChatChunks {
        id: id(&app, "chatcmpl", number),
        created: app::now(),
        model: app.model.clone(),
        include_usage: options.include_usage,
        seeds: (0..asked.runs()).map(|index| asked.seed(index)).collect(),
    };
    let (runs, given) = (asked.runs(), asked.given());
    if options.stream {
        running.under_way().await?;
        return Ok(stream::respond(running, Box::new(chunks), runs, given, options.include_usage));
    }
    let finished = running.finished(runs).await?;
    let usage = Usage::new(given, finished.iter().map(|(_, outcome)| &outcome.statistics));
    let choice = |(index, (text, outcome)): (usize, (String, crate::job::Outcome))| ChatChoice {
        index,
        message: Answer { role: "assistant", content: text, refusal: None },
        logprobs: None,
        finish_reason: outcome.finish,
        seed: asked.seed(index),
    };
    let choices = finished.into_iter().enumerate().map(choice).collect();
    let ChatChunks { id, created, model, .. } = chunks;
    let object = "chat.completion";
    Ok(Json(ChatCompletion { id, object, created, model, choices, usage, system_fingerprint: None }).into_response())
}

fn prepare(app: &App, body: &[u8]) -> Result<(Asked, Form), ApiError> {
    let mut fields = Fields::read(body)?;
    fields.unite_max_tokens()?;
    fields.drop_neutral(&[
        ("tools", &[json!([])]),
        ("tool_choice", &[json!("none"), json!("auto")]),
        ("functions", &[json!([])]),
        ("function_call", &[json!("none"), json!("auto")]),
        ("response_format", &[json!({"type": "text"})]),
        ("modalities", &[json!(["text"])]),
        ("logit_bias", &[json!({})]),
        ("logprobs", &[json!(false)]),
        ("top_logprobs", &[json!(0)]),
        ("presence_penalty", &[json!(0), json!(0.0)]),
        ("frequency_penalty", &[json!(0), json!(0.0)]),
        ("audio", &[]),
        ("prediction", &[]),
        ("reasoning_effort", &[json!("none")]),
        ("verbosity", &[json!("medium")]),
        ("web_search_options", &[]),
        ("best_of", &[json!(1)]),
    ])?;
    let request = fields.settings(app.options.limits.max_tokens)?;
    let given: ChatRequest = fields.rest()?;
    app.check_model(given.model.as_deref())?;
    let stop = Stop::strings(given.stop)?;
    let n = answers(given.n)?;
    let form = form(given.stream, given.stream_options)?;
    let file = app.runner.file();
    let prompt = app.chat_prompt(&messages(given.messages)?)?;
    let canvas = file.canvas(&prompt, request.max_tokens)?;
    let asked = Asked { canvases: vec![canvas], subject: Subject::Answer, request, n, stop };
    asked.check(app)?;
    Ok((asked, form))
}

struct ChatChunks {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
    seeds: Vec<u64>,
}

impl ChatChunks {
    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> String {
        to_json(&ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.created,
            model: self.model.clone(),
            choices,
            usage: self.include_usage.then_some(usage),
        })
    }

    fn choice(&self, index: usize, delta: Delta, finish: Option<FinishReason>) -> Vec<ChunkChoice> {
        let seed = delta.role.and_then(|_| self.seeds.get(index).copied());
        vec![ChunkChoice { index, delta, logprobs: None, finish_reason: finish, seed }]
    }
}

impl Chunks for ChatChunks {
    fn opening(&self, index: usize) -> Option<String> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
        Some(self.chunk(self.choice(index, delta, None), None))
    }

    fn text(&self, index: usize, text: String) -> String {
        let delta = Delta { content: Some(text), ..Delta::default() };
        self.chunk(self.choice(index, delta, None), None)
    }

    fn closing(&self, index: usize, finish: FinishReason) -> String {
        self.chunk(self.choice(index, Delta::default(), Some(finish)), None)
    }

    fn usage(&self, usage: Usage) -> String {
        self.chunk(Vec::new(), Some(usage))
    }
}
