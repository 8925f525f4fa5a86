//! AVX-VNNI: `vpdpbusd` on 256-bit registers, for processors without AVX-512. The arithmetic is that of
//! [`super::avx512vnni`].
//!
//! A tile is 16 weight rows (two registers) by up to 6 activation rows, so that 12 integer sums fit the 16 registers;
//! a panel takes two passes, and f32 sums stay in the first-level cache.

use std::arch::x86_64::*;

use super::super::form::{CodesForm, unpack_units};
use super::super::kernels::{GROUP_CODES, K_GROUP, Kernels, MAGIC, PANEL_ROWS, Panel};
use super::super::operand::OperandTile;
use super::super::pointers::{Pointers, dispatch};
use super::rows::row_kernels;
use super::{flush, peaks, pin, unpack, wide};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avxvnni",
    max_tile: 6,
    activation_words: false,
    signed_bytes: false,
    pack: super::pack_avx2,
    unpack: unpack_panel,
    prefetch: super::prefetch,
    tile,
    wide: wide::avx2_wide,
    rows: row_kernels!("avx2,fma"),
    peaks: peaks::AVX_VNNI,
    limit: |form| (usize::from(form.is_none()), 1),
};

/// Lanes of a register.
const LANES: usize = 8;
/// Registers per pass: 16 rows.
const REGISTERS: usize = 2;

fn unpack_panel(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    assert!(units.len() / form.unit_bytes * form.groups * GROUP_CODES <= panel.codes.len());
    // SAFETY: the table is handed out only after its features were detected.
    unsafe { unpack_codes(form, units, panel) }
}

#[target_feature(enable = "avx2,fma,avxvnni")]
fn unpack_codes(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    let unpack = |planes: &[u8], codes: &mut [u8]| unpack::group_avx2(form, planes, codes);
    unpack_units(form, units, GROUP_CODES, panel, unpack, |factors, integers, signed, out| {
        unpack::multiply(factors, integers, signed, out)
    });
}

fn tile(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]) {
    let pointers = Pointers::new(form, panel, tile, 1, out);
    for first in (0..PANEL_ROWS).step_by(REGISTERS * LANES) {
        // SAFETY: lengths were checked by `Pointers::new` for all 32 rows, features before the table was handed out.
        unsafe {
            let pointers = pointers.starting_at(first);
            dispatch!(tile_rows, tile.rows, form, pointers, [1, 2, 3, 4, 5, 6])
        }
    }
}

/// # Safety
/// `p` must come from [`Pointers::new`] for a tile of `ROWS` rows and a form with `HALVES` scales per k-group, moved
/// to a row that leaves 16.
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn tile_rows<const ROWS: usize, const HALVES: usize, const MINS: bool>(p: Pointers) {
    // SAFETY: all offsets below are inside what `Pointers::new` checked: groups, halves, quads, rows and registers
    // run over exactly the shapes in the documentation of `Panel` and `OperandTile`.
    unsafe {
        let magic = _mm256_set1_ps(-MAGIC);
        for g in 0..p.groups {
            let cell = g * p.stride;
            for half in 0..HALVES {
                let at = (g * HALVES + half) * PANEL_ROWS;
                let mut sums = [[_mm256_setzero_si256(); REGISTERS]; ROWS];
                for t in 0..ROWS {
                    // Types with minima have no offset.
                    let start = match MINS {
                        true => MAGIC.to_bits() as i32,
                        false => *p.starts.add((cell + t) * HALVES + half),
                    };
                    sums[t] = [_mm256_set1_epi32(start); REGISTERS];
                }
                for q in half * 8 / HALVES..(half + 1) * 8 / HALVES {
                    let quad = p.codes.add(g * GROUP_CODES + q * 4 * PANEL_ROWS);
                    let mut weights = [_mm256_setzero_si256(); REGISTERS];
                    for r in 0..REGISTERS {
                        weights[r] = _mm256_loadu_si256(quad.add(4 * LANES * r).cast());
                    }
                    for t in 0..ROWS {
                        let four = p.quantised.add((cell + t) * K_GROUP + 4 * q).cast::<i32>();
                        let four = _mm256_set1_epi32(four.read_unaligned());
                        for r in 0..REGISTERS {
                            sums[t][r] = _mm256_dpbusd_avx_epi32(sums[t][r], weights[r], four);
                            pin(&mut sums[t][r]);
                        }
                    }
                }
                flush();
                for r in 0..REGISTERS {
                    let scale = _mm256_loadu_ps(p.scales.add(at + r * LANES));
                    let down = _mm256_mul_ps(scale, magic);
                    let min = if MINS { _mm256_loadu_ps(p.mins.add(at + r * LANES)) } else { _mm256_setzero_ps() };
                    for t in 0..ROWS {
                        let out = p.out.add(t * PANEL_ROWS + r * LANES);
                        let sum = _mm256_castsi256_ps(sums[t][r]);
                        let scaled = _mm256_fmadd_ps(sum, scale, down);
                        let by = _mm256_set1_ps(*p.activation_scales.add(cell + t));
                        let mut value = _mm256_fmadd_ps(scaled, by, _mm256_loadu_ps(out));
                        if MINS {
                            let total = p.half_total::<HALVES>(cell + t, half);
                            value = _mm256_fnmadd_ps(min, _mm256_set1_ps(total), value);
                        }
                        _mm256_storeu_ps(out, value);
                    }
                }
            }
        }
    }
}
