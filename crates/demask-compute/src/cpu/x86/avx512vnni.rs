//! AVX-512 with VNNI: `vpdpbusd` multiplies four unsigned weight codes by four signed activations per 32-bit lane.
//!
//! The offset of the codes times the activations' sum is taken off where an integer sum starts (see
//! [`OperandTile::starts`]).
//!
//! A tile is 32 weight rows (two registers) by up to 6 activation rows: 12 integer and 12 f32 sums stay in registers,
//! each broadcast activation serves two multiplications. Per 32 weights and activation row of 16 weight rows: 8
//! multiplications, 2 fused multiply-adds to scale, 1 more for minima.

use std::arch::x86_64::*;

use super::super::form::{CodesForm, unpack_units};
use super::super::kernels::{GROUP_CODES, K_GROUP, Kernels, MAGIC, PANEL_ROWS, Panel};
use super::super::operand::OperandTile;
use super::super::pointers::{Pointers, dispatch};
use super::rows::row_kernels;
use super::{flush, peaks, unpack, wide};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx512vnni",
    max_tile: 6,
    activation_words: false,
    signed_bytes: false,
    pack: super::pack_avx2,
    unpack: unpack_panel,
    prefetch: super::prefetch,
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
    let unpack = |planes: &[u8], codes: &mut [u8]| unpack::group_avx512(form, planes, codes);
    unpack_units(form, units, GROUP_CODES, panel, unpack, |factors, integers, signed, out| {
        unpack::multiply(factors, integers, signed, out)
    });
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
        let magic = _mm512_set1_ps(-MAGIC);
        let mut out = [[_mm512_setzero_ps(); REGISTERS]; ROWS];
        for t in 0..ROWS {
            for r in 0..REGISTERS {
                out[t][r] = _mm512_loadu_ps(p.out.add(t * PANEL_ROWS + r * LANES));
            }
        }
        for g in 0..p.groups {
            let cell = g * p.stride;
            // Spelled out, since a loop over halves wouldn't always be unrolled.
            macro_rules! half {
                ($half:expr) => {
                    let half: usize = $half;
                    let at = (g * HALVES + half) * PANEL_ROWS;
                    let mut sums = [[_mm512_setzero_si512(); REGISTERS]; ROWS];
                    for t in 0..ROWS {
                        // Types with minima have no offset.
                        let start = match MINS {
                            true => MAGIC.to_bits() as i32,
                            false => *p.starts.add((cell + t) * HALVES + half),
                        };
                        sums[t] = [_mm512_set1_epi32(start); REGISTERS];
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
                                sums[t][r] = _mm512_dpbusd_epi32(sums[t][r], weights[r], four);
                            }
                        }
                    }
                    // What is loaded on one side of this isn't moved to the other, where no register is left for it.
                    flush();
                    let (mut scales, mut downs, mut mins) =
                        ([magic; REGISTERS], [magic; REGISTERS], [magic; REGISTERS]);
                    for r in 0..REGISTERS {
                        scales[r] = _mm512_loadu_ps(p.scales.add(at + r * LANES));
                        downs[r] = _mm512_mul_ps(scales[r], magic);
                        if MINS {
                            mins[r] = _mm512_loadu_ps(p.mins.add(at + r * LANES));
                        }
                    }
                    for t in 0..ROWS {
                        let by = _mm512_set1_ps(*p.activation_scales.add(cell + t));
                        for r in 0..REGISTERS {
                            let sum = _mm512_castsi512_ps(sums[t][r]);
                            let scaled = _mm512_fmadd_ps(sum, scales[r], downs[r]);
                            out[t][r] = _mm512_fmadd_ps(scaled, by, out[t][r]);
                        }
                        if MINS {
                            let total = _mm512_set1_ps(p.half_total::<HALVES>(cell + t, half));
                            for r in 0..REGISTERS {
                                out[t][r] = _mm512_fnmadd_ps(mins[r], total, out[t][r]);
                            }
                        }
                    }
                    flush();
                };
            }
            half!(0);
            if HALVES == 2 {
                half!(1);
            }
        }
        for t in 0..ROWS {
            for r in 0..REGISTERS {
                _mm512_storeu_ps(p.out.add(t * PANEL_ROWS + r * LANES), out[t][r]);
            }
        }
    }
}
