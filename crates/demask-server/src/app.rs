//! What all handlers share, and the table of routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use demask::Message;
use demask::text::ChatTemplate;
use serde::Serialize;
use tokio::sync::Semaphore;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::engine::Queue;
use crate::failure::{ApiError, ErrorBody};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::runner::Runner;
use crate::{guard, native, openai, openapi, page};

/// What all handlers share.
pub(crate) struct App {
    pub(crate) options: Options,
    /// Where it listens.
    pub(crate) local: SocketAddr,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
    /// The model's chat template, or what is told to those who need it.
    pub(crate) template: Result<ChatTemplate, ApiError>,
    /// Bodies that are made something of at a time, see [`guard::read`].
    pub(crate) readers: Arc<Semaphore>,
    /// The model's name in requests and answers.
    pub(crate) model: String,
    /// When the model was loaded, in seconds since 1970.
    pub(crate) created: u64,
    /// Requests so far.
    pub(crate) requests: AtomicU64,
    /// Makes ids of answers differ between servers.
    pub(crate) stamp: u64,
}

impl App {
    /// Whether `host` is the address that is listened on.
    pub(crate) fn is_own_address(&self, host: &str) -> bool {
        let own = self.local.to_string();
        host == own || host == self.local.ip().to_string()
    }

    /// Tokens of a conversation that the model is to answer.
    pub(crate) fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>, ApiError> {
        let template = self.template.as_ref().map_err(Clone::clone)?;
        let tokens = template.encode(self.runner.file().tokenizer(), messages, true);
        Ok(tokens.map_err(demask::Error::from)?)
    }

    /// Checks a request's `model`: the served one, or none.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(name) if !name.is_empty() && name != self.model => Err(ApiError::no_model(name, &self.model)),
            _ => Ok(()),
        }
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// All routes, and the document that describes them.
pub(crate) fn routes() -> (Router<Arc<App>>, Router<Arc<App>>, utoipa::openapi::OpenApi) {
    let (guarded, guarded_document) = OpenApiRouter::new()
        .routes(routes!(openai::chat::complete))
        .routes(routes!(openai::completions::complete))
        .routes(routes!(openai::models::list))
        .routes(routes!(openai::models::one))
        .routes(routes!(native::denoise::denoise))
        .routes(routes!(native::tokenize::tokenize))
        .routes(routes!(native::models::models))
        .routes(routes!(metrics))
        .split_for_parts();
    let (open, mut document) = OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(openapi::document))
        .routes(routes!(page::index))
        .routes(routes!(page::asset))
        .split_for_parts();
    document.merge(guarded_document);
    (guarded, open, openapi::complete(document))
}

/// The router of a server.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (guarded, open, _) = routes();
    let mut router = guarded
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard::authorize))
        .merge(open)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    if !app.options.cors.is_empty() {
        router = router.layer(cors(&app.options.cors));
    }
    router.layer(middleware::from_fn_with_state(Arc::clone(&app), guard::observe)).with_state(app)
}

fn cors(origins: &[String]) -> CorsLayer {
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST])
        // A wildcard would leave `Authorization` out.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER, HeaderName::from_static("x-request-id")]);
    if origins.iter().any(|origin| origin == "*") {
        return layer.allow_origin(Any);
    }
    layer.allow_origin(AllowOrigin::list(origins.iter().filter_map(|origin| origin.parse().ok())))
}

async fn no_route(request: Request) -> ApiError {
    ApiError::no_route(request.uri().path())
}

/// The router adds the `Allow` header.
async fn no_method() -> ApiError {
    ApiError::method()
}

/// Whether requests can be served.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// The served model.
    model: String,
    /// Version of demask.
    version: &'static str,
}

/// Whether requests can be served
#[utoipa::path(get, path = "/health", tag = "server",
    responses((status = 200, body = Health), (status = 503, body = ErrorBody)))]
async fn health(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiError> {
    if !app.queue.is_open() {
        return Err(ApiError::closing());
    }
    Ok(Json(Health { status: "ok", model: app.model.clone(), version: env!("CARGO_PKG_VERSION") }))
}

/// Counts for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let text = app.metrics.render().map_err(|error| ApiError::internal(format!("cannot write metrics: {error}")))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
