//! Failures as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use demask::blanks::BlanksError;
use demask::diffusion::SettingsError;
use serde::Serialize;
use utoipa::ToSchema;

/// A failure on its way to a client.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    detail: Detail,
    /// Seconds after which another try makes sense.
    retry_after: Option<u32>,
}

/// The body of every failure.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What went wrong.
    pub(crate) error: Detail,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Detail {
    /// For a person: what was asked, what is possible, what helps.
    pub(crate) message: String,
    /// `invalid_request_error`, `authentication_error`, `permission_error`, `rate_limit_error` or `server_error`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// The field at fault.
    pub(crate) param: Option<String>,
    /// A name for programs.
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: Option<&'static str>, message: impl Into<String>) -> ApiError {
        let detail = Detail { message: message.into(), kind, param: None, code };
        ApiError { status, detail, retry_after: None }
    }

    /// The request can't be: 400.
    pub(crate) fn bad(message: impl Into<String>) -> ApiError {
        ApiError::refused(StatusCode::BAD_REQUEST, None, message)
    }

    /// A field of the request can't be: 400.
    pub(crate) fn field(name: impl Into<String>, message: impl Into<String>) -> ApiError {
        let mut error = ApiError::bad(message);
        error.detail.param = Some(name.into());
        error
    }

    /// A field of the request is not understood: 400.
    pub(crate) fn unsupported(name: &str, reason: &str) -> ApiError {
        let mut error = ApiError::field(name, format!("`{name}` can't be used: {reason}"));
        error.detail.code = Some("unsupported_parameter");
        error
    }

    /// The request is at fault in another way.
    pub(crate) fn refused(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> ApiError {
        ApiError::new(status, "invalid_request_error", code, message)
    }

    /// The client isn't known.
    pub(crate) fn unauthorized(message: &str) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", Some("invalid_api_key"), message)
    }

    /// The client may not.
    pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "permission_error", Some("forbidden"), message)
    }

    /// There is no such place.
    pub(crate) fn no_route(path: &str) -> ApiError {
        let path: String = path.chars().take(200).collect();
        ApiError::refused(StatusCode::NOT_FOUND, Some("not_found"), format!("there is nothing at `{path}`"))
    }

    /// There is no such model.
    pub(crate) fn no_model(name: &str, served: &str) -> ApiError {
        let name: String = name.chars().take(200).collect();
        let message = format!("the model `{name}` is not served here; `{served}` is (`model` may be left out)");
        let mut error = ApiError::refused(StatusCode::NOT_FOUND, Some("model_not_found"), message);
        error.detail.param = Some("model".to_owned());
        error
    }

    /// Another method would be right.
    pub(crate) fn method() -> ApiError {
        let message = "this method is not allowed here; the `Allow` header lists those that are";
        ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, Some("method_not_allowed"), message)
    }

    /// Everything is taken: 429.
    pub(crate) fn queue_full(ahead: usize) -> ApiError {
        let message = format!("{ahead} runs are at work or wait already; try again later");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("queue_full"), message);
        ApiError { retry_after: Some(1), ..error }
    }

    /// The server is on its way out: 503.
    pub(crate) fn closing() -> ApiError {
        let message = "the server is shutting down and takes nothing new";
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("shutting_down"), message);
        ApiError { retry_after: Some(5), ..error }
    }

    /// The time limit was reached: 503.
    pub(crate) fn too_late(state: &str) -> ApiError {
        let message = format!("the server's time limit was reached while {state}");
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("timeout"), message);
        ApiError { retry_after: Some(10), ..error }
    }

    /// Our fault: 500.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, message)
    }

    /// What it says, as it stands in a body.
    pub(crate) fn body(&self) -> ErrorBody {
        ErrorBody { error: self.detail.clone() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The command line's names of options, as fields: `--block-length` is `block_length`.
pub(crate) fn as_fields(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        let name = &option[2..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
        out.push_str(before);
        out.push_str(&name[..end].replace('-', "_"));
        rest = &name[end..];
    }
    out + rest
}

impl From<SettingsError> for ApiError {
    fn from(error: SettingsError) -> ApiError {
        ApiError::field(as_fields(error.option), as_fields(&error.to_string()))
    }
}

impl From<BlanksError> for ApiError {
    fn from(error: BlanksError) -> ApiError {
        ApiError::field("text", format!("{error}; {}", error.hint()))
    }
}

impl From<demask::Error> for ApiError {
    fn from(error: demask::Error) -> ApiError {
        use demask::Error as E;
        let advice = error.hint().map(|hint| format!("; {}", as_fields(&hint))).unwrap_or_default();
        let message = format!("{}{advice}", as_fields(&error.to_string()));
        match error {
            E::Settings(error) => error.into(),
            E::NoShadow { .. } => ApiError::field("unmask", message),
            E::Context { .. } => {
                let mut error = ApiError::bad(message);
                error.detail.code = Some("context_length_exceeded");
                error
            }
            E::Token { .. } | E::Text(_) => ApiError::bad(message),
            _ => ApiError::internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_fields() {
        for (text, wanted) in [
            ("--block-length 0 can't be used: a block", "block_length 0 can't be used: a block"),
            ("every step; --cache prefix, dual", "every step; cache prefix, dual"),
            ("use `--max-tokens 3`", "use `max_tokens 3`"),
            ("a - b -- c", "a - b  c"),
        ] {
            assert_eq!(as_fields(text), wanted);
        }
    }
}
