//! f32 tiles: 32 weight rows by up to 4 activation rows, one fused multiply-add per weight in ascending order of k.

use std::arch::aarch64::*;

use super::super::kernels::PANEL_ROWS;

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
    if rows == 0 || depth == 0 {
        return;
    }
    assert!(
        w.len() >= (depth - 1) * w_stride + PANEL_ROWS
            && a.len() >= (rows - 1) * a_stride + depth
            && out.len() >= (rows - 1) * out_stride + PANEL_ROWS,
        "weights, activations and output fit together"
    );
    for first in (0..PANEL_ROWS).step_by(PASS) {
        let (w, a, out) = (w[first..].as_ptr(), a.as_ptr(), out[first..].as_mut_ptr());
        // SAFETY: lengths were checked above for 32 columns; NEON is in every target's baseline.
        unsafe {
            match rows {
                1 => rows_of::<1>(w, w_stride, a, a_stride, depth, out, out_stride),
                2 => rows_of::<2>(w, w_stride, a, a_stride, depth, out, out_stride),
                3 => rows_of::<3>(w, w_stride, a, a_stride, depth, out, out_stride),
                4 => rows_of::<4>(w, w_stride, a, a_stride, depth, out, out_stride),
                rows => unreachable!("a tile of {rows} rows"),
            }
        }
    }
}

/// 16 columns.
///
/// # Safety
/// `w`, `a` and `out` must have the lengths that [`neon_wide`] checks, with `ROWS` rows and 16 columns.
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
