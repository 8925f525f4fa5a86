//! The operations a transformer needs, and their CPU implementation.
//!
//! A denoising step of a diffusion language model pushes tens to hundreds of canvas rows through every layer, so
//! each projection is a skinny matrix product and the machine computes far longer than it waits for memory. The
//! crate is built around that shape:
//!
//! * [`Backend`] speaks transformer operations (norm, linear, rope, attention, row statistics), not tensor algebra.
//!   The model's forward pass is written once against it.
//! * The CPU multiplies 4- to 8-bit weight codes by 8-bit activations in integers. Activations are quantised with one
//!   scale per 32 values ([`Backend::Operand`]); weights keep the scales of their file.
//! * The unit of work is a *tile*: a panel of weight rows by a few activation rows. Kernels are plain functions in a table
//!   ([`cpu::Kernels`]) chosen once, at run time, from what the processor can do. The scalar table is the truth that
//!   all others are tested against.
//! * [`conformance`] holds one list of cases that every backend and every kernel table must pass.
//!
//! Shape letters: `R` rows run this step, `L` canvas positions, `D` model width, `H` heads, `G` kv heads, `K` head
//! dim, `F` ffn width, `V` vocabulary.

pub mod backend;
pub mod bench;
pub mod conformance;
pub mod cpu;
pub mod quant;
pub mod timed;
mod weights;

pub use backend::{
    Backend, RopeSpec, RopeStyle, RowStatistics, Sample, Sampling, SamplingPlace, SamplingRule, Visibility,
};
pub use cpu::Cpu;
pub use quant::QuantType;
pub use timed::{Clock, Split, Stopwatch, Timed};
pub use weights::{ComputeError, SharedBytes, Weights};
