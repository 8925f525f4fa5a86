//! f32 tiles: 32 weight rows by up to 4 activation rows, one fused multiply-add per weight in ascending order of k.

use std::arch::aarch64::*;

use super::super::kernels::PANEL_ROWS;
use super::super::pointers::{check_wide, dispatch_rows};

/// Columns per pass: four registers.
const PASS: usize = 16;

pub(super) fn neon_wide(
    w: &[f32],
    w_stride: usize,
    a: &[f32],
    a_stride: usize,
    rows: usize,
    depth: usize,
    out: &mut [f32],
    out_stride: usize,
) {
    check_wide(w, w_stride, a, a_stride, rows, depth, out, out_stride);
    let (w, a, out) = (w.as_ptr(), a.as_ptr(), out.as_mut_ptr());
    for first in (0..PANEL_ROWS).step_by(PASS) {
        // SAFETY: lengths were checked above for 32 columns; NEON is in every target's baseline.
        unsafe {
            let (w, out) = (w.add(first), out.add(first));
            dispatch_rows!(rows, rows_of(w, w_stride, a, a_stride, depth, out, out_stride), [1, 2, 3, 4])
        }
    }
}

/// 16 columns.
///
/// # Safety
/// `w`, `a` and `out` must have the lengths that [`check_wide`] asks for, with `ROWS` rows and 16 columns.
#[target_feature(enable = "neon")]
unsafe fn rows_of<const ROWS: usize>(
    w: *const f32,
    w_stride: usize,
    a: *const f32,
    a_stride: usize,
    depth: usize,
    out: *mut f32,
    out_stride: usize,
) {
    // SAFETY: inside the slices by this function's contract.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); PASS / 4]; ROWS];
        for t in 0..ROWS {
            for r in 0..PASS / 4 {
                sums[t][r] = vld1q_f32(out.add(t * out_stride + 4 * r));
            }
        }
        for k in 0..depth {
            let mut weights = [vdupq_n_f32(0.0); PASS / 4];
            for r in 0..PASS / 4 {
                weights[r] = vld1q_f32(w.add(k * w_stride + 4 * r));
            }
            for t in 0..ROWS {
                let value = vdupq_n_f32(*a.add(t * a_stride + k));
                for r in 0..PASS / 4 {
                    sums[t][r] = vfmaq_f32(sums[t][r], weights[r], value);
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..PASS / 4 {
                vst1q_f32(out.add(t * out_stride + 4 * r), sums[t][r]);
            }
        }
    }
}
