//! The operations a transformer needs, on NVIDIA GPUs of compute capability 8.0 and newer.
//!
//! The kernels are written in a small dialect of CUDA C++ (`kernels/*.cu`) and checked in as PTX, which the driver
//! compiles for the card it finds: building this crate needs no CUDA. The driver itself is loaded when a GPU is asked for.
//!
//! * [`Gpu`] is a [`Backend`](demask_compute::Backend): it packs weights once, keeps activations on the device, and
//!   collects the launches of a step, which run as one CUDA graph from the second equal step on.
//! * [`GpuDevice`] is what a [`Gpu`] needs of a device: memory and launches. [`CudaDevice`] is the real one; tests run the
//!   same PTX, instruction by instruction, on an interpreter.
//! * [`Split`] puts the first layers of a model on one backend and the rest on another.
//!
//! Integer products are exact and f32 sums keep the CPU's order, so that projections, norms and gates give the CPU's bits.
//! Attention runs on f16 keys and values.

mod args;
mod backend;
mod cuda;
mod device;
mod head;
mod kernels;
mod pack;
mod queue;
mod split;

pub use args::Args;
pub use backend::{Gpu, MAX_HEAD_DIM, MAX_ROWS};
pub use cuda::CudaDevice;
pub use device::{DeviceError, GpuDevice, Launch};
pub use kernels::{Kernel, MODULES, Module};
pub use pack::matrix_bytes;
pub use split::{Both, Operands, Placement, Side, Split};
