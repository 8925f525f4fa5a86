//! Kernels for x86-64: one file per instruction set, best first in the table.
//!
//! Every kernel checks the lengths of its slices before it takes pointers into them; a table is handed out only after
//! its features were detected.
#![allow(unsafe_code)]
// Tiles are arrays of registers, indexed by activation row and register.
#![allow(clippy::needless_range_loop)]

mod avx2;
mod avx512vnni;
mod avxvnni;
mod pack;
mod peaks;
mod quantize;
mod rows;
mod unpack;
mod wide;

use super::kernels::Kernels;
use crate::cpu::form::{CodesForm, PackBuffer, pack_units};
use crate::quant::CodesRow;

/// Appends the tables that this processor can run, best first.
pub(super) fn push_available(tables: &mut Vec<&'static Kernels>) {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    if avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
    {
        tables.push(&avx512vnni::KERNELS);
    }
    if avx2 && is_x86_feature_detected!("avxvnni") {
        tables.push(&avxvnni::KERNELS);
    }
    if avx2 {
        tables.push(&avx2::KERNELS);
    }
}

/// Keeps a sum in its register from here to the next use. Without this the compiler unrolls the quads of a k-group,
/// sorts the multiplications by sum, and spills the weights and activations that it then needs all at once: four
/// times slower.
#[inline]
#[target_feature(enable = "avx")]
fn pin(sum: &mut std::arch::x86_64::__m256i) {
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) * sum, options(nostack, preserves_flags));
    }
}

/// Makes the compiler read f32 sums from memory and write them back here: it would keep copies on the stack.
#[inline(always)]
fn flush() {
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fetches bytes into the second-level cache.
fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        // SAFETY: a hint, and for bytes that are there.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.as_ptr().cast()) }
    }
}

/// Packing compiled for AVX2.
fn pack_avx2(form: &CodesForm, codes: &CodesRow, rows: &[&[u8]], buffer: &mut PackBuffer, units: &mut [u8]) {
    #[target_feature(enable = "avx2")]
    fn compiled(form: &CodesForm, codes: &CodesRow, rows: &[&[u8]], buffer: &mut PackBuffer, units: &mut [u8]) {
        if !pack::pack_panel(form, rows, units) {
            pack_units(form, codes, rows, buffer, units);
        }
    }
    // SAFETY: every table here is handed out only where AVX2 was detected.
    unsafe { compiled(form, codes, rows, buffer, units) }
}
