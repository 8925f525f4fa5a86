//! AVX-512 with VNNI: `vpdpbusd` multiplies four unsigned activations by four signed weights per 32-bit lane.
//!
//! Activations carry a bias of 128 (`u8 = i8 + 128`), weights are signed codes (offset taken off), so a row's integer
//! sum is 128 times the sum of its weights too large whatever the activation: the sum starts below by that much
//! ([`Panel::starts`]), and at the bits of [`MAGIC`], which makes it an f32.
//!
//! A tile is 32 weight rows (two registers) by up to 6 activation rows: 12 integer and 12 f32 sums stay in registers,
//! each broadcast activation serves two multiplications. Per 32 weights and activation row of 16 weight rows: 8
//! multiplications, 2 fused multiply-adds to scale, 1 more for minima.

use std::arch::x86_64::*;

use super::super::form::{CodesForm, unpack_units};
use super::super::kernels::{GROUP_CODES, K_GROUP, Kernels, MAGIC, PANEL_ROWS, Panel};
use super::super::operand::OperandTile;
use super::rows::row_kernels;
use super::{Pointers, dispatch, peaks, unpack, wide};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx512vnni",
    max_tile: 6,
    activation_bias: 128,
    activation_words: false,
    pack: super::pack_avx2,
    unpack: unpack_panel,
    tile,
    wide: wide::avx512_wide,
    rows: row_kernels!("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq"),
    peaks: peaks::AVX512_VNNI,
    limit: |form| (usize::from(form.is_none()), 1),
};

/// Lanes of a register.
const LANES: usize = 16;
/// Registers per quad: 32 rows.
const REGISTERS: usize = PANEL_ROWS / LANES;

fn unpack_panel(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    assert!(units.len() / form.unit_bytes * form.groups * GROUP_CODES <= panel.codes.len());
    // SAFETY: the table is handed out only after its features were detected.
    unsafe { unpack_codes(form, units, panel) }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn unpack_codes(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    unpack_units(form, units, GROUP_CODES, panel, |planes, codes| {
        unpack::group_avx512(form, form.offset as u8, planes, codes)
    });
    let ones = _mm512_set1_epi8(1);
    let magic = _mm512_castps_si512(_mm512_set1_ps(MAGIC));
    let quads = 8 / form.halves;
    let halves = panel.codes[..panel.groups * GROUP_CODES].chunks_exact(quads * 4 * PANEL_ROWS);
    for (codes, starts) in halves.zip(panel.starts.as_chunks_mut::<PANEL_ROWS>().0) {
        for r in 0..REGISTERS {
            let mut sum = _mm512_setzero_si512();
            for quad in codes.as_chunks::<{ 4 * PANEL_ROWS }>().0 {
                // SAFETY: register r of a quad of 128 bytes.
                let weights = unsafe { _mm512_loadu_si512(quad.as_ptr().add(64 * r).cast()) };
                sum = _mm512_dpbusd_epi32(sum, ones, weights);
            }
            let start = _mm512_sub_epi32(magic, _mm512_slli_epi32::<7>(sum));
            // SAFETY: register r of 32 starts.
            unsafe { _mm512_storeu_si512(starts.as_mut_ptr().add(LANES * r).cast(), start) };
        }
    }
}

fn tile(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]) {
    let pointers = Pointers::new(form, panel, tile, 1, out);
    // SAFETY: lengths were checked by `Pointers::new`, features before the table was handed out.
    unsafe { dispatch!(tile_rows, tile.rows, form, pointers, [1, 2, 3, 4, 5, 6]) }
}

/// # Safety
/// `p` must come from [`Pointers::new`] for a tile of `ROWS` rows and a form with `HALVES` scales per k-group.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn tile_rows<const ROWS: usize, const HALVES: usize, const MINS: bool>(p: Pointers) {
    // SAFETY: all offsets below are inside what `Pointers::new` checked: groups, halves, quads, rows and registers
    // run over exactly the shapes in the documentation of `Panel` and `OperandTile`.
    unsafe {
        let down = _mm512_set1_ps(-MAGIC);
        let mut out = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
        for t in 0..ROWS {
            for r in 0..REGISTERS {
                out[t][r] = _mm512_loadu_ps(p.out.add(t * PANEL_ROWS + r * LANES));
            }
        }
        for g in 0..p.groups {
            let cell = g * p.stride;
            for half in 0..HALVES {
                let at = (g * HALVES + half) * PANEL_ROWS;
                let mut sums = [[_mm512_setzero_si512(); REGISTERS]; ROWS];
                for r in 0..REGISTERS {
                    let start = _mm512_loadu_si512(p.starts.add(at + r * LANES).cast());
                    for t in 0..ROWS {
                        sums[t][r] = start;
                    }
                }
                for q in half * 8 / HALVES..(half + 1) * 8 / HALVES {
                    let quad = p.codes.add(g * GROUP_CODES + q * 4 * PANEL_ROWS);
                    let mut weights = [_mm512_setzero_si512(); REGISTERS];
                    for r in 0..REGISTERS {
                        weights[r] = _mm512_loadu_si512(quad.add(4 * LANES * r).cast());
                    }
                    for t in 0..ROWS {
                        let four = p.quantised.add((cell + t) * K_GROUP + 4 * q).cast::<i32>();
                        let four = _mm512_set1_epi32(four.read_unaligned());
                        for r in 0..REGISTERS {
                            sums[t][r] = _mm512_dpbusd_epi32(sums[t][r], four, weights[r]);
                        }
                    }
                }
                for r in 0..REGISTERS {
                    let scale = _mm512_loadu_ps(p.scales.add(at + r * LANES));
                    let down = _mm512_mul_ps(scale, down);
                    let min = if MINS { _mm512_loadu_ps(p.mins.add(at + r * LANES)) } else { _mm512_setzero_ps() };
                    for t in 0..ROWS {
                        let sum = _mm512_castsi512_ps(sums[t][r]);
                        let scaled = _mm512_fmadd_ps(sum, scale, down);
                        let by = _mm512_set1_ps(*p.activation_scales.add(cell + t));
                        out[t][r] = _mm512_fmadd_ps(scaled, by, out[t][r]);
                        if MINS {
                            let total = p.half_total::<HALVES>(cell + t, half);
                            out[t][r] = _mm512_fnmadd_ps(min, _mm512_set1_ps(total), out[t][r]);
                        }
                    }
                }
            }
        }
        for t in 0..ROWS {
            for r in 0..REGISTERS {
                _mm512_storeu_ps(p.out.add(t * PANEL_ROWS + r * LANES), out[t][r]);
            }
        }
    }
}
