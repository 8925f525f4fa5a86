//! f32 tiles: 32 weight rows by up to 4 activation rows, one fused multiply-add per weight in ascending order of k.

use std::arch::aarch64::*;

use super::super::kernels::{PANEL_ROWS, WideTile};
use super::super::pointers::{WidePointers, dispatch_rows};

/// Columns per pass: four registers.
const PASS: usize = 16;

pub(super) fn neon_wide(tile: WideTile<'_>) {
    let (rows, p) = (tile.rows, WidePointers::new(tile));
    for first in (0..PANEL_ROWS).step_by(PASS) {
        // SAFETY: lengths were checked above for 32 columns; NEON is in every target's baseline.
        unsafe { dispatch_rows!(rows, rows_of(p.at_column(first)), [1, 2, 3, 4]) }
    }
}

/// 16 columns.
///
/// # Safety
/// `p` must come from [`WidePointers::new`] for a tile of `ROWS` rows and 16 columns.
#[target_feature(enable = "neon")]
unsafe fn rows_of<const ROWS: usize>(p: WidePointers) {
    // SAFETY: inside the slices by this function's contract.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); PASS / 4]; ROWS];
        for t in 0..ROWS {
            for r in 0..PASS / 4 {
                sums[t][r] = vld1q_f32(p.out.add(t * p.out_stride + 4 * r));
            }
        }
        for k in 0..p.depth {
            let mut weights = [vdupq_n_f32(0.0); PASS / 4];
            for r in 0..PASS / 4 {
                weights[r] = vld1q_f32(p.w.add(k * p.w_stride + 4 * r));
            }
            for t in 0..ROWS {
                let value = vdupq_n_f32(*p.a.add(t * p.a_stride + k));
                for r in 0..PASS / 4 {
                    sums[t][r] = vfmaq_f32(sums[t][r], weights[r], value);
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..PASS / 4 {
                vst1q_f32(p.out.add(t * p.out_stride + 4 * r), sums[t][r]);
            }
        }
    }
}
