//! f32 tiles: 32 weight rows by up to 6 activation rows, one fused multiply-add per weight in ascending order of k.

use std::arch::x86_64::*;

use super::super::kernels::{PANEL_ROWS, WideTile};
use super::super::pointers::{WidePointers, dispatch_rows};

pub(super) fn avx512_wide(tile: WideTile<'_>) {
    let (rows, p) = (tile.rows, WidePointers::new(tile));
    // SAFETY: lengths were checked above, features before the table was handed out.
    unsafe { dispatch_rows!(rows, avx512_rows(p), [1, 2, 3, 4, 5, 6]) }
}

/// # Safety
/// `p` must come from [`WidePointers::new`] for a tile of `ROWS` rows.
#[target_feature(enable = "avx512f")]
unsafe fn avx512_rows<const ROWS: usize>(p: WidePointers) {
    // SAFETY: inside the slices by this function's contract.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for t in 0..ROWS {
            for r in 0..2 {
                sums[t][r] = _mm512_loadu_ps(p.out.add(t * p.out_stride + 16 * r));
            }
        }
        for k in 0..p.depth {
            let weights = [_mm512_loadu_ps(p.w.add(k * p.w_stride)), _mm512_loadu_ps(p.w.add(k * p.w_stride + 16))];
            for t in 0..ROWS {
                let value = _mm512_set1_ps(*p.a.add(t * p.a_stride + k));
                for r in 0..2 {
                    sums[t][r] = _mm512_fmadd_ps(weights[r], value, sums[t][r]);
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..2 {
                _mm512_storeu_ps(p.out.add(t * p.out_stride + 16 * r), sums[t][r]);
            }
        }
    }
}

pub(super) fn avx2_wide(tile: WideTile<'_>) {
    let (rows, p) = (tile.rows, WidePointers::new(tile));
    for first in (0..PANEL_ROWS).step_by(16) {
        // SAFETY: lengths were checked above for 32 columns, features before the table was handed out.
        unsafe { dispatch_rows!(rows, avx2_rows(p.at_column(first)), [1, 2, 3, 4, 5, 6]) }
    }
}

/// 16 columns.
///
/// # Safety
/// As [`avx512_rows`], with 16 columns.
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_rows<const ROWS: usize>(p: WidePointers) {
    // SAFETY: inside the slices by this function's contract.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for t in 0..ROWS {
            for r in 0..2 {
                sums[t][r] = _mm256_loadu_ps(p.out.add(t * p.out_stride + 8 * r));
            }
        }
        for k in 0..p.depth {
            let weights = [_mm256_loadu_ps(p.w.add(k * p.w_stride)), _mm256_loadu_ps(p.w.add(k * p.w_stride + 8))];
            for t in 0..ROWS {
                let value = _mm256_set1_ps(*p.a.add(t * p.a_stride + k));
                for r in 0..2 {
                    sums[t][r] = _mm256_fmadd_ps(weights[r], value, sums[t][r]);
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..2 {
                _mm256_storeu_ps(p.out.add(t * p.out_stride + 8 * r), sums[t][r]);
            }
        }
    }
}
