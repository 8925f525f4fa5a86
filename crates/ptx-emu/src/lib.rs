//! Runs NVIDIA PTX on the CPU, to test kernels where there is no GPU.
//!
//! A kernel that a compiler has made is executed instruction by instruction, 32 lanes in lockstep, and every rule that
//! a device leaves to the programmer is checked:
//!
//! * every access to global, shared, local and parameter memory is in bounds and aligned;
//! * nothing is read that was never written;
//! * threads of a block that use the same shared memory are ordered by barriers, lanes of a warp by `bar.warp.sync`;
//! * blocks that use the same global memory do so by atomics, or after a fence and an atomic;
//! * the target of `cp.async` isn't touched before the copy was waited for, by other threads not before a barrier;
//! * barriers, shuffles and matrix instructions are reached by all lanes that they need, barriers by all warps;
//! * a launch ends.
//!
//! A [`Fault`] names the kernel, the line of the PTX, block, warp, lane and address.
//!
//! ```
//! use ptx_emu::{FaultKind, Launch, Memory, Module, Param};
//!
//! let ptx = "
//! .version 8.0
//! .target sm_80
//! .address_size 64
//! .visible .entry double(.param .u64 data, .param .u32 count)
//! {
//!     .reg .pred %p<2>;
//!     .reg .b32 %r<6>;
//!     .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [data];
//!     ld.param.u32 %r1, [count];
//!     mov.u32 %r2, %ctaid.x;
//!     mov.u32 %r3, %ntid.x;
//!     mov.u32 %r4, %tid.x;
//!     mad.lo.s32 %r4, %r2, %r3, %r4;
//!     setp.ge.u32 %p1, %r4, %r1;
//!     @%p1 ret;
//!     mul.wide.u32 %rd2, %r4, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.u32 %r5, [%rd3];
//!     shl.b32 %r5, %r5, 1;
//!     st.global.u32 [%rd3], %r5;
//!     ret;
//! }";
//! let module = Module::parse("double.ptx", ptx)?;
//! assert!(module.kernels().eq(["double"]));
//!
//! let mut memory = Memory::new();
//! let data = memory.alloc(4 * 100)?;
//! let numbers: Vec<u8> = (0..100u32).flat_map(u32::to_le_bytes).collect();
//! memory.write(data, &numbers)?;
//!
//! let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], dynamic_shared: 0, seed: 1 };
//! let statistics = module.launch("double", &launch, &[Param::U64(data), Param::U32(100)], &mut memory)?;
//! assert_eq!(statistics.by_opcode["st.global.u32"], 4);
//! let mut last = [0; 4];
//! memory.read(data + 4 * 99, &mut last)?;
//! assert_eq!(u32::from_le_bytes(last), 198);
//!
//! // One too many:
//! let fault = module.launch("double", &launch, &[Param::U64(data), Param::U32(101)], &mut memory).unwrap_err();
//! assert_eq!(fault.kind(), FaultKind::OutOfBounds);
//! assert_eq!(fault.report().text, "ld.global.u32 %r5, [%rd3];");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is executed
//!
//! What compilers emit for compute capability 8.0 and what kernels for it write by hand: loads and stores of all
//! spaces with vectors, integer and bit arithmetic, f16, bf16, f32 and f64 with their conversions, `mma.sync` on f16,
//! bf16, tf32, s8, u8, s4 and u4, `ldmatrix`, `stmatrix`, `movmatrix`, `cp.async`, shuffles, votes, `match`, `redux`,
//! barriers (named ones too), atomics, device functions that aren't recursive. Everything else is a [`ParseError`],
//! never something that is skipped.
//!
//! # What is not
//!
//! Time: this tells nothing of speed, occupancy or register pressure. Blocks run one after the other, so that blocks
//! which wait for one another never end; atomics are in some order, not in every order. Approximate functions
//! (`ex2.approx` and its like) are more exact than a device's, and sums in `mma` of floats are formed in f64, where a
//! device has an order of its own. Races on global memory are looked for between blocks, not within one. Integer division by zero gives all ones, and its remainder the dividend.

#![forbid(unsafe_code)]

mod code;
mod decode;
mod error;
mod exec;
mod lanes;
mod launch;
mod lex;
mod memory;
mod module;
mod parse;
mod round;
mod shared;
mod syntax;
mod word;

pub use crate::error::{Fault, FaultKind, MemoryError, ParseError, Report};
pub use crate::launch::{Checks, Launch, Param, Statistics};
pub use crate::memory::Memory;
pub use crate::module::Module;
