//! Kernels for 64-bit ARM, best first in the table. The dot product instructions have no stable intrinsics yet, so they
//! are spelled in assembly, one instruction per function.
//!
//! What is not a matrix product runs the portable code: NEON is part of every target's baseline here, and the loops
//! vectorise.
#![allow(unsafe_code)]
// Tiles are arrays of registers, indexed by activation row and register.
#![allow(clippy::needless_range_loop)]

mod dot;
mod i8mm;
mod peaks;
mod wide;

use std::arch::is_aarch64_feature_detected;

use super::form::{CodesForm, multiply, unpack_group, unpack_units};
use super::head;
use super::kernels::{GROUP_CODES, Kernels, Panel};
use super::operand::quantize_groups;
use super::rowwise::{self, RowKernels};

/// Appends the tables that this processor can run, best first.
pub(super) fn push_available(tables: &mut Vec<&'static Kernels>) {
    if is_aarch64_feature_detected!("i8mm") {
        tables.push(&i8mm::KERNELS);
    }
    if is_aarch64_feature_detected!("dotprod") {
        tables.push(&dot::KERNELS);
    }
}

/// Row-wise operations.
const ROWS: RowKernels = RowKernels {
    rms_norm: rowwise::rms_norm,
    silu_mul: rowwise::silu_mul,
    softmax: rowwise::softmax,
    greatest: rowwise::greatest,
    scale: rowwise::scale,
    widen_f16: rowwise::widen_f16,
    widen_bf16: rowwise::widen_bf16,
    quantize: quantize_groups,
    statistics: head::statistics,
};

/// Unpacks units into signed codes: what doesn't fit a signed byte has its offset taken off (see
/// [`Kernels::signed_bytes`]). Each k-group then goes through `arrange`.
fn unpack_signed(form: &CodesForm, units: &[u8], panel: &mut Panel, arrange: impl Fn(&mut [u8])) {
    let offset = if form.kernel_bits() == 8 { form.offset as u8 } else { 0 };
    let unpack = |planes: &[u8], codes: &mut [u8]| {
        unpack_group(form, planes, codes);
        if offset != 0 {
            codes.iter_mut().for_each(|code| *code = code.wrapping_sub(offset));
        }
        arrange(codes);
    };
    unpack_units(form, units, GROUP_CODES, panel, unpack, multiply);
}

/// Bytes of a cache line, on most of these processors.
const LINE: usize = 64;

/// Fetches bytes into the second-level cache.
fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        // SAFETY: a hint, and for bytes that are there.
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{0}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
        }
    }
}
