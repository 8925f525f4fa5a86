//! The OpenAPI document: generated from the handlers, their types and the table of settings.

use axum::Json;
use serde_json::{Value, json};
use utoipa::openapi::{OpenApi, RefOr, Schema};

use crate::app;
use crate::fields;

/// The bodies that take the settings of a run.
const WITH_SETTINGS: &[&str] = &["ChatRequest", "CompletionRequest", "DenoiseRequest"];

/// This API as an OpenAPI document
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Value)))]
pub(crate) async fn document() -> Json<OpenApi> {
    Json(app::routes().2)
}

/// Adds what the handlers' types don't say.
pub(crate) fn complete(mut document: OpenApi) -> OpenApi {
    document.info.title = "demask".to_owned();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.info.description = Some("Diffusion language models over HTTP".to_owned());
    document.info.license = None;
    document.info.contact = None;
    let Some(components) = &mut document.components else { return document };
    for name in WITH_SETTINGS {
        let Some(RefOr::T(Schema::Object(body))) = components.schemas.get_mut(*name) else { continue };
        for (name, schema) in fields::schemas() {
            if let Ok(schema) = serde_json::from_value::<RefOr<Schema>>(schema) {
                body.properties.insert(name, schema);
            }
        }
    }
    document
}

/// The document as JSON, for tests and for writing it to a file.
pub fn openapi() -> Value {
    let (_, _, document) = app::routes();
    serde_json::to_value(document).unwrap_or_else(|error| json!({"error": error.to_string()}))
}
