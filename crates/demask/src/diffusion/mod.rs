//! The denoising side: canvas, schedules, samplers, unmaskers, cache policies and the loop. Nothing here names a tensor.

mod agenda;
mod auto;
mod cache;
mod canvas;
mod curve;
#[cfg(test)]
mod device_draws;
mod drift;
mod ending;
mod figures;
mod generate;
mod guidance;
mod random;
mod recipe;
mod repetition;
mod report;
mod request;
mod sampler;
mod schedule;
mod scoring;
mod settings;
pub mod trace;
mod unmask;

pub use auto::Tuning;
pub use cache::{CachePolicy, CacheSettings};
pub use canvas::{Block, Canvas, Edit, EditKind, Transfer, spans};
pub use curve::Curve;
pub use generate::{Denoising, generate};
pub use guidance::Guided;
pub use recipe::{Figures, RECIPES, Recipe, RecipeRow};
pub use report::{Finish, Generation, Statistics, StepReport};
pub use request::{EndPolicy, Request};
pub use settings::{Numbers, Settings, SettingsError};
pub use unmask::UnmaskRule;
