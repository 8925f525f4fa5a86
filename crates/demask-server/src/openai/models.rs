//! `GET /v1/models`: the one model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::failure::{ApiError, ErrorBody};

/// The served models.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<ModelEntry>,
}

/// A served model.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelEntry {
    id: String,
    /// `model`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    owned_by: &'static str,
}

fn entry(app: &App) -> ModelEntry {
    ModelEntry { id: app.model.clone(), object: "model", created: app.created, owned_by: "demask" }
}

/// The served models
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses((status = 200, body = ModelList)))]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![entry(&app)] })
}

/// One of the served models
#[utoipa::path(get, path = "/v1/models/{id}", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = ModelEntry), (status = 404, body = ErrorBody)))]
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<ModelEntry>, ApiError> {
    app.check_model(Some(&id))?;
    Ok(Json(entry(&app)))
}
