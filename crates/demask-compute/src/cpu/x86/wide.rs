//! f32 tiles: 32 weight rows by up to 6 activation rows, one fused multiply-add per weight in ascending order of k.

use std::arch::x86_64::*;

use super::super::kernels::PANEL_ROWS;
use super::super::pointers::{check_wide, dispatch_rows};

pub(super) fn avx512_wide(
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
    // SAFETY: lengths were checked above, features before the table was handed out.
    unsafe { dispatch_rows!(rows, avx512_rows(w, w_stride, a, a_stride, depth, out, out_stride), [1, 2, 3, 4, 5, 6]) }
}

/// # Safety
/// `w`, `a` and `out` must have the lengths that [`check_wide`] asks for, with `ROWS` rows.
#[target_feature(enable = "avx512f")]
unsafe fn avx512_rows<const ROWS: usize>(
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
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for t in 0..ROWS {
            for r in 0..2 {
                sums[t][r] = _mm512_loadu_ps(out.add(t * out_stride + 16 * r));
            }
        }
        for k in 0..depth {
            let weights = [_mm512_loadu_ps(w.add(k * w_stride)), _mm512_loadu_ps(w.add(k * w_stride + 16))];
            for t in 0..ROWS {
                let value = _mm512_set1_ps(*a.add(t * a_stride + k));
                for r in 0..2 {
                    sums[t][r] = _mm512_fmadd_ps(weights[r], value, sums[t][r]);
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..2 {
                _mm512_storeu_ps(out.add(t * out_stride + 16 * r), sums[t][r]);
            }
        }
    }
}

pub(super) fn avx2_wide(
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
    for first in (0..PANEL_ROWS).step_by(16) {
        // SAFETY: lengths were checked above for 32 columns, features before the table was handed out.
        unsafe {
            let (w, out) = (w.add(first), out.add(first));
            dispatch_rows!(rows, avx2_rows(w, w_stride, a, a_stride, depth, out, out_stride), [1, 2, 3, 4, 5, 6])
        }
    }
}

/// 16 columns.
///
/// # Safety
/// As [`avx512_rows`], with 16 columns.
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_rows<const ROWS: usize>(
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
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for t in 0..ROWS {
            for r in 0..2 {
                sums[t][r] = _mm256_loadu_ps(out.add(t * out_stride + 8 * r));
            }
        }
        for k in 0..depth {
            let weights = [_mm256_loadu_ps(w.add(k * w_stride)), _mm256_loadu_ps(w.add(k * w_stride + 8))];
            for t in 0..ROWS {
                let value = _mm256_set1_ps(*a.add(t * a_stride + k));
                for r in 0..2 {
                    sums[t][r] = _mm256_fmadd_ps(weights[r], value, sums[t][r]);
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..2 {
                _mm256_storeu_ps(out.add(t * out_stride + 8 * r), sums[t][r]);
            }
        }
    }
}
