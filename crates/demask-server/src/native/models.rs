//! `GET /api/models`: what the served model is and which settings it takes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use demask::diffusion::{RECIPES, RecipeRow};
use demask::{CachePolicy, UnmaskRule};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::fields;

/// The served models.
#[derive(Serialize, ToSchema)]
pub(crate) struct Models {
    models: Vec<ServedModel>,
}

/// A served model.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServedModel {
    /// Its name in requests.
    id: String,
    /// Its own name.
    name: String,
    architecture: &'static str,
    /// The reference sampler that it was published with.
    family: &'static str,
    layers: usize,
    width: usize,
    vocabulary: usize,
    /// Most positions of a canvas.
    context: usize,
    /// Most open positions of a request.
    max_tokens: usize,
    /// Open positions of a blank without a number.
    blank: usize,
    recipes: Vec<NamedRecipe>,
    /// Unmaskers that run on it; the first is its reference.
    unmaskers: Vec<&'static str>,
    caches: Vec<&'static str>,
    /// Every setting as a JSON Schema, with its default.
    settings: serde_json::Map<String, serde_json::Value>,
}

/// A recipe.
#[derive(Serialize, ToSchema)]
pub(crate) struct NamedRecipe {
    name: &'static str,
    description: &'static str,
    /// What it sets, as fields.
    settings: String,
}

/// What is served and which settings it takes
#[utoipa::path(get, path = "/api/models", tag = "demask", responses((status = 200, body = Models)))]
pub(crate) async fn models(State(app): State<Arc<App>>) -> Json<Models> {
    let spec = app.runner.file().spec();
    let reference = spec.family.default_rule();
    let others = UnmaskRule::ALL.into_iter().filter(|rule| *rule != reference && rule.runs_on(spec.family));
    let recipe = |row: &RecipeRow| NamedRecipe {
        name: row.name,
        description: row.description,
        settings: crate::failure::as_fields(&row.flags()),
    };
    Json(Models {
        models: vec![ServedModel {
            id: app.model.clone(),
            name: spec.name.clone(),
            architecture: spec.architecture,
            family: spec.family.name(),
            layers: spec.layers,
            width: spec.width,
            vocabulary: spec.vocab,
            context: spec.context,
            max_tokens: app.options.limits.max_tokens.min(spec.context),
            blank: demask::blanks::DEFAULT,
            recipes: RECIPES.iter().map(recipe).collect(),
            unmaskers: std::iter::once(reference).chain(others).map(UnmaskRule::name).collect(),
            caches: CachePolicy::ALL.map(CachePolicy::name).to_vec(),
            settings: fields::schemas(),
        }],
    })
}
