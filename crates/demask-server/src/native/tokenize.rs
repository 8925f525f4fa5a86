//! `POST /api/tokenize`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use demask::text::Specials;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::failure::{ApiError, ErrorBody};
use crate::fields::Fields;
use crate::guard;
use crate::openai::chat::{ChatMessage, messages};

/// A text or a conversation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenizeRequest {
    /// Raw text. It begins with BOS if the model's prompts do.
    text: Option<String>,
    /// Or a conversation, which is put into the model's chat template.
    messages: Option<Vec<ChatMessage>>,
    /// Take names of special tokens in `text` as those tokens.
    special: Option<bool>,
    /// The served model, or nothing.
    model: Option<String>,
}

/// The tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tokens {
    count: usize,
    tokens: Vec<u32>,
    /// What each stands for, escaped for one line.
    texts: Vec<String>,
}

/// Token ids of a text, or of a conversation as a run would see it
#[utoipa::path(post, path = "/api/tokenize", tag = "demask", request_body = TokenizeRequest,
    responses((status = 200, body = Tokens), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Tokens>, ApiError> {
    guard::read(&app, &headers, body, tokens).await.map(Json)
}

fn tokens(app: &App, body: &[u8]) -> Result<Tokens, ApiError> {
    let given: TokenizeRequest = Fields::read(body)?.rest()?;
    app.check_model(given.model.as_deref())?;
    let file = app.runner.file();
    let tokenizer = file.tokenizer();
    let special = given.special.unwrap_or(false);
    let tokens = match (given.text, given.messages) {
        (Some(text), None) if special => {
            let mut tokens = tokenizer.encode_prompt_raw("");
            let rest = tokenizer.encode(&text, Specials::Parse);
            if tokens.first() == rest.first() {
                tokens.clear();
            }
            tokens.extend(rest);
            tokens
        }
        (Some(text), None) => tokenizer.encode_prompt_raw(&text),
        (None, Some(_)) if special => {
            return Err(ApiError::field("special", "`special` goes with `text`: messages are never taken for tokens"));
        }
        (None, Some(given)) => app.chat_prompt(&messages(given)?)?,
        _ => return Err(ApiError::field("text", "one of `text` and `messages` is needed")),
    };
    let texts = tokens.iter().map(|&id| tokenizer.token_text(id)).collect();
    Ok(Tokens { count: tokens.len(), tokens, texts })
}
