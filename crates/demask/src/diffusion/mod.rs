//! The denoising side: canvas, schedules, samplers, unmaskers, cache policies and the loop. Nothing here names a tensor.

pub mod cache;
pub mod canvas;
pub mod generate;
pub mod guidance;
pub mod random;
pub mod recipe;
pub mod report;
pub mod request;
pub mod sampler;
pub mod schedule;
mod scoring;
pub mod settings;
pub mod trace;
pub mod unmask;

pub use cache::{CachePolicy, CacheSettings};
pub use canvas::{Block, Canvas, Edit, EditKind, Transfer};
pub use generate::{Denoising, generate};
pub use recipe::{RECIPES, Recipe};
pub use report::{Finish, Generation, Statistics, StepReport};
pub use request::{EndPolicy, Request};
pub use settings::{Settings, SettingsError};
pub use unmask::UnmaskRule;
