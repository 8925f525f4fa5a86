//! Who may speak to the server, and what comes of each request in logs and counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use subtle::ConstantTimeEq as _;

use crate::app::App;
use crate::failure::ApiError;
use crate::metrics::Answered;

/// The number of a request, in logs and as `x-request-id`.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) u64);

/// Counts and logs a request. What it said isn't logged.
pub(crate) async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let number = app.requests.fetch_add(1, Ordering::Relaxed);
    request.extensions_mut().insert(Number(number));
    let method = request.method().clone();
    let started = Instant::now();
    // Only what routes are called: a made-up path would be a label of its own, and could say anything.
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let mut response = match check_host(&app, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let status = response.status().as_u16();
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(request = number, %method, route, status, ms, "answered");
    app.metrics.requests.get_or_create(&Answered { route, status }).inc();
    if let Ok(id) = HeaderValue::from_str(&format!("req-{number}")) {
        response.headers_mut().insert("x-request-id", id);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// On loopback only local names are answered to: a page of another site that points its own name at this machine (DNS
/// rebinding) is turned away.
fn check_host(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if !app.options.address.ip().is_loopback() {
        return Ok(());
    }
    let given = uri.authority().map(|authority| authority.as_str());
    let given = given.or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()));
    let Some(given) = given else {
        return Err(ApiError::bad("the request has no Host header"));
    };
    if is_local(given) || app.is_own_address(given) {
        return Ok(());
    }
    Err(ApiError::forbidden("this server answers to localhost only; `--host` and `--api-key` open it to others"))
}

/// Whether `host`, maybe with a port, means this machine.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]"
}

/// Lets in who knows the key, if there is one.
pub(crate) async fn authorize(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(key) = &app.options.api_key else {
        return next.run(request).await;
    };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split_once(' '));
    match given {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            if bool::from(token.trim().as_bytes().ct_eq(key.as_bytes())) {
                return next.run(request).await;
            }
            ApiError::unauthorized("the API key is not the server's").into_response()
        }
        _ => ApiError::unauthorized("an API key is needed: `Authorization: Bearer KEY`").into_response(),
    }
}

/// Bodies that are made something of at a time. That is work for a core, so more threads would finish nothing sooner, and
/// each has a heap of its own that never shrinks below what its largest body took.
pub(crate) const READERS: usize = 4;

/// Reads the body of a POST and lets `prepare` make something of it, where that may take its time.
pub(crate) async fn read<T: Send + 'static>(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
    prepare: fn(&App, &[u8]) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let body = read_body(app, headers, body).await?;
    let app = Arc::clone(app);
    let turn = Arc::clone(&app.readers).acquire_owned().await;
    let prepared = tokio::task::spawn_blocking(move || {
        // Kept to the end, also when the client has left.
        let _turn = turn;
        prepare(&app, &body)
    });
    let prepared = prepared.await;
    prepared.map_err(|_| ApiError::internal("the request could not be read"))?
}

/// The body of a POST: JSON, not too long, within the time.
async fn read_body(app: &App, headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "the body must be sent as `Content-Type: application/json`";
        return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, message));
    }
    let limit = app.options.limits.body;
    match tokio::time::timeout(app.options.limits.arrival, collect(body, limit)).await {
        Ok(collected) => collected,
        Err(_) => {
            let message = "the body did not arrive in time";
            Err(ApiError::refused(StatusCode::REQUEST_TIMEOUT, Some("timeout"), message))
        }
    }
}

/// Of a body that is too long so much more is read before it is refused: a client that still sends sees no answer.
const DRAINED: usize = 64 << 20;

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut bytes = Vec::new();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        read += data.len();
        if read <= limit {
            bytes.extend_from_slice(&data);
        } else if read > limit + DRAINED {
            break;
        }
    }
    if read > limit {
        let message = format!("the body is longer than {limit} bytes");
        return Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, Some("too_large"), message));
    }
    Ok(bytes.into())
}

/// When a request that arrives now must have been answered.
pub(crate) fn deadline(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365))
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn f19_only_local_names_are_local() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8033", "127.0.0.1", "[::1]", "[::1]:9"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", ":80", "::1", "0.0.0.0"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
