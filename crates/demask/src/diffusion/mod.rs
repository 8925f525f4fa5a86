//! The denoising side: canvas, schedules, samplers, unmaskers, cache policies and the loop. Nothing here names a tensor.

mod agenda;
mod auto;
pub mod cache;
pub mod canvas;
mod curve;
mod drift;
mod ending;
mod figures;
pub mod generate;
pub mod guidance;
pub mod random;
pub mod recipe;
mod repetition;
pub mod report;
pub mod request;
pub mod sampler;
pub mod schedule;
mod scoring;
pub mod settings;
pub mod trace;
pub mod unmask;

pub use auto::Tuning;
pub use cache::{CachePolicy, CacheSettings};
pub use canvas::{Block, Canvas, Edit, EditKind, Transfer};
pub use curve::Curve;
pub use generate::{Denoising, generate};
pub use recipe::{Figures, RECIPES, Recipe};
pub use report::{Finish, Generation, Statistics, StepReport};
pub use request::{EndPolicy, Request};
pub use settings::{Settings, SettingsError};
pub use unmask::UnmaskRule;
