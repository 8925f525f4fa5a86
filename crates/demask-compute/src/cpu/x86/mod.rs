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
mod peaks;
mod quantize;
mod rows;
mod unpack;
mod wide;

use super::kernels::{GROUP_CODES, K_GROUP, Kernels, PANEL_ROWS, Panel};
use super::operand::OperandTile;
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

/// Pointers of a panel and a tile whose lengths were checked, for kernels with `HALVES` scales per k-group.
#[derive(Clone, Copy)]
struct Pointers {
    groups: usize,
    stride: usize,
    codes: *const u8,
    scales: *const f32,
    mins: *const f32,
    quantised: *const u8,
    words: *const i16,
    activation_scales: *const f32,
    totals: *const f32,
    sums: *const [i32; 2],
    /// What integer sums start from; not to be read for types with minima.
    starts: *const i32,
    out: *mut f32,
}

impl Pointers {
    /// Checks that everything a kernel reads and writes lies inside its slices. With two planes a k-group of the
    /// panel takes twice the bytes, and 16-bit activations are read.
    fn new(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, planes: usize, out: &mut [f32]) -> Pointers {
        let (groups, cells) = (panel.groups, panel.groups * tile.stride);
        let scales = groups * form.halves * PANEL_ROWS;
        assert!(
            panel.codes.len() >= planes * groups * GROUP_CODES
                && panel.scales.len() >= scales
                && panel.mins.len() >= scales
                && tile.rows <= tile.stride
                && (form.has_mins || tile.starts.len() >= cells * form.halves)
                && tile.codes.len() >= cells * K_GROUP
                && (planes == 1 || tile.words.len() >= cells * K_GROUP)
                && tile.scales.len() >= cells
                && tile.totals.len() >= cells
                && tile.sums.len() >= cells
                && out.len() >= tile.rows * PANEL_ROWS,
            "panel, tile and output fit together"
        );
        Pointers {
            groups,
            stride: tile.stride,
            codes: panel.codes.as_ptr(),
            scales: panel.scales.as_ptr(),
            mins: panel.mins.as_ptr(),
            quantised: tile.codes.as_ptr(),
            words: tile.words.as_ptr(),
            activation_scales: tile.scales.as_ptr(),
            totals: tile.totals.as_ptr(),
            sums: tile.sums.as_ptr(),
            starts: tile.starts.as_ptr(),
            out: out.as_mut_ptr(),
        }
    }
}

/// Calls `$kernel::<ROWS, HALVES, MINS>($pointers)` for the tile's row count and the form.
macro_rules! dispatch {
    ($kernel:ident, $rows:expr, $form:expr, $pointers:expr, [$($count:literal),*]) => {
        match ($rows, $form.halves, $form.has_mins) {
            $(
                ($count, 1, false) => $kernel::<$count, 1, false>($pointers),
                ($count, 1, true) => $kernel::<$count, 1, true>($pointers),
                ($count, _, false) => $kernel::<$count, 2, false>($pointers),
                ($count, _, true) => $kernel::<$count, 2, true>($pointers),
            )*
            (rows, ..) => unreachable!("a tile of {rows} rows"),
        }
    };
}
use dispatch;

impl Pointers {
    /// The same, but from weight row `row` of the panel on.
    ///
    /// # Safety
    /// `row` must be below 32.
    unsafe fn starting_at(self, row: usize) -> Pointers {
        // SAFETY: a row of the first quad, which every panel has.
        unsafe {
            Pointers {
                codes: self.codes.add(4 * row),
                scales: self.scales.add(row),
                mins: self.mins.add(row),
                out: self.out.add(row),
                ..self
            }
        }
    }

    /// The activation scale of a cell times the sum of its codes over a half (or all, with one scale per k-group).
    ///
    /// # Safety
    /// `cell` must be below `groups * stride`, `half` below `HALVES`.
    #[inline(always)]
    unsafe fn half_total<const HALVES: usize>(&self, cell: usize, half: usize) -> f32 {
        // SAFETY: by this function's contract and the checks in `new`.
        unsafe {
            match HALVES {
                1 => *self.totals.add(cell),
                _ => *self.activation_scales.add(cell) * (*self.sums.add(cell))[half] as f32,
            }
        }
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
        pack_units(form, codes, rows, buffer, units);
    }
    // SAFETY: every table here is handed out only where AVX2 was detected.
    unsafe { compiled(form, codes, rows, buffer, units) }
}
