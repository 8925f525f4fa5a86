//! The denoising side: canvas, schedules, samplers, unmaskers and the loop. Nothing here names a tensor.

pub mod canvas;
pub mod generate;
pub mod guidance;
pub mod random;
pub mod sampler;
pub mod schedule;
pub mod settings;
pub mod trace;
pub mod unmask;

pub use canvas::{Block, Canvas, Edit, EditKind, Transfer};
pub use generate::{Denoising, Finish, Generation, Statistics, StepReport, generate};
pub use settings::{EndPolicy, Request, Settings, SettingsError};
pub use unmask::UnmaskRule;
