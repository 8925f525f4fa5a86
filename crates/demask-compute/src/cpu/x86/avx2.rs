//! AVX2 without VNNI: `vpmaddubsw` multiplies unsigned weights by signed activations and adds pairs in 16 bits.
//!
//! What makes it fast is that the 16-bit sums of several quads can be added exactly before `vpmaddwd` widens them: a
//! pair is at most `2 * code * 127`, so all eight quads of 4-bit codes fit (30,480), four of 5-bit codes (31,496) and
//! two of 6-bit codes (32,004). 8-bit codes fit no pair: they are unpacked to 16 bits, and so are the activations that
//! `vpmaddwd` multiplies them by.
//!
//! Narrow weights keep their unsigned codes; the offset times the activations' sum is taken off where the integer sum
//! becomes an f32 (see [`MAGIC`]). A tile is 16 weight rows (two registers) by up to 4 activation rows.

use std::arch::x86_64::*;

use super::super::form::{CodesForm, Factors, unpack_units};
use super::super::kernels::{GROUP_CODES, K_GROUP, Kernels, MAGIC, PANEL_ROWS, Panel};
use super::super::operand::OperandTile;
use super::super::pointers::Pointers;
use super::rows::row_kernels;
use super::{flush, peaks, pin, unpack, wide};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx2",
    max_tile: MAX_TILE,
    activation_words: true,
    signed_bytes: true,
    pack: super::pack_avx2,
    unpack: unpack_panel,
    prefetch: super::prefetch,
    tile,
    wide: wide::avx2_wide,
    rows: row_kernels!("avx2,fma"),
    peaks: peaks::AVX2,
    limit: |form| match form.map(CodesForm::kernel_bits) {
        None => (4, 1),
        Some(..=4) => (0, 1),
        Some(5) => (1, 1),
        Some(6) => (2, 1),
        Some(_) => (3, 1),
    },
};

/// Lanes of a register.
const LANES: usize = 8;
const MAX_TILE: usize = 4;
/// Quads of a k-group.
const QUADS: usize = 8;

fn unpack_panel(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    assert!(units.len() / form.unit_bytes * form.groups * 2 * GROUP_CODES <= panel.codes.len());
    // SAFETY: the table is handed out only after its features were detected.
    unsafe { unpack_codes(form, units, panel) }
}

#[target_feature(enable = "avx2,fma")]
fn unpack_codes(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    let multiply = |factors: &Factors, integers: &[u8; PANEL_ROWS], signed: bool, out: &mut Factors| {
        unpack::multiply(factors, integers, signed, out);
    };
    if form.kernel_bits() == 8 {
        let unpack = |planes: &[u8], codes: &mut [u8]| {
            let mut whole = [0; GROUP_CODES];
            unpack::group_avx2(form, planes, &mut whole);
            unpack::widen_signed(&whole, form.offset as u8, codes);
        };
        unpack_units(form, units, 2 * GROUP_CODES, panel, unpack, multiply);
    } else {
        let unpack = |planes: &[u8], codes: &mut [u8]| unpack::group_avx2(form, planes, codes);
        unpack_units(form, units, GROUP_CODES, panel, unpack, multiply);
    }
}

/// Calls [`tile_rows`] with the constants of the tile and the form.
macro_rules! dispatch {
    ($pointers:expr, $rows:expr, $form:expr, [$($count:literal),*]) => {
        match ($rows, $form.halves, $form.has_mins, $form.kernel_bits()) {
            $(
                ($count, 1, false, ..=4) => tile_rows::<$count, 2, 1, false, 4>($pointers),
                ($count, 1, true, ..=4) => tile_rows::<$count, 2, 1, true, 4>($pointers),
                ($count, _, false, ..=4) => tile_rows::<$count, 2, 2, false, 4>($pointers),
                ($count, _, true, ..=4) => tile_rows::<$count, 2, 2, true, 4>($pointers),
                ($count, 1, false, 5) => tile_rows::<$count, 2, 1, false, 5>($pointers),
                ($count, 1, true, 5) => tile_rows::<$count, 2, 1, true, 5>($pointers),
                ($count, 2, false, 6) => tile_rows::<$count, 2, 2, false, 6>($pointers),
                ($count, 1, false, 8) => tile_rows::<$count, 2, 1, false, 8>($pointers),
            )*
            (rows, halves, mins, bits) => unreachable!(
                "a tile of {rows} rows, {halves} scales per 32 weights, minima: {mins}, {bits} bits"
            ),
        }
    };
}

fn tile(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]) {
    let planes = if form.kernel_bits() == 8 { 2 } else { 1 };
    let pointers = Pointers::new(form, panel, tile, planes, out);
    for first in (0..PANEL_ROWS).step_by(2 * LANES) {
        // SAFETY: lengths were checked by `Pointers::new` for all 32 rows, features before the table was handed out.
        unsafe {
            let pointers = pointers.starting_at(first);
            dispatch!(pointers, tile.rows, form, [1, 2, 3, 4])
        }
    }
}

/// # Safety
/// `p` must come from [`Pointers::new`] for a tile of `ROWS` rows and a form with `HALVES` scales per k-group and
/// codes of at most `BITS` bits (8: in 16 bits, two planes), moved to a row that leaves `REGISTERS` times 8.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_rows<
    const ROWS: usize,
    const REGISTERS: usize,
    const HALVES: usize,
    const MINS: bool,
    const BITS: u8,
>(
    p: Pointers,
) {
    // SAFETY: all offsets below are inside what `Pointers::new` checked: groups, halves, quads, rows and registers
    // run over exactly the shapes in the documentation of `Panel` and `OperandTile`.
    unsafe {
        let planes = if BITS == 8 { 2 } else { 1 };
        let ones = _mm256_set1_epi16(1);
        let magic = _mm256_set1_ps(-MAGIC);
        for g in 0..p.groups {
            let cell = g * p.stride;
            let codes = p.codes.add(g * planes * GROUP_CODES);
            for half in 0..HALVES {
                let quads = half * QUADS / HALVES..(half + 1) * QUADS / HALVES;
                let mut sums = [[_mm256_setzero_si256(); REGISTERS]; ROWS];
                // Macros, since a closure would not be compiled for this function's features when called from
                // elsewhere.
                macro_rules! weights {
                    ($quad:expr) => {{
                        let mut w = [_mm256_setzero_si256(); REGISTERS];
                        for r in 0..REGISTERS {
                            let at = codes.add(($quad * PANEL_ROWS + r * LANES) * 4);
                            w[r] = _mm256_loadu_si256(at.cast());
                        }
                        w
                    }};
                }
                macro_rules! four {
                    ($t:expr, $quad:expr) => {{
                        let at = p.quantised.add((cell + $t) * K_GROUP + 4 * $quad);
                        _mm256_set1_epi32(at.cast::<i32>().read_unaligned())
                    }};
                }
                match BITS {
                    // The first quad's products start the sums.
                    4 | 5 => {
                        let step = if BITS == 4 { QUADS / HALVES } else { 4 };
                        for first in quads.step_by(step) {
                            let mut narrow = [[_mm256_setzero_si256(); REGISTERS]; ROWS];
                            let w = weights!(first);
                            for t in 0..ROWS {
                                let x = four!(t, first);
                                for r in 0..REGISTERS {
                                    narrow[t][r] = _mm256_maddubs_epi16(w[r], x);
                                    pin(&mut narrow[t][r]);
                                }
                            }
                            for q in first + 1..first + step {
                                let w = weights!(q);
                                for t in 0..ROWS {
                                    let x = four!(t, q);
                                    for r in 0..REGISTERS {
                                        let pair = _mm256_maddubs_epi16(w[r], x);
                                        narrow[t][r] = _mm256_add_epi16(narrow[t][r], pair);
                                        pin(&mut narrow[t][r]);
                                    }
                                }
                            }
                            for t in 0..ROWS {
                                for r in 0..REGISTERS {
                                    let wide = _mm256_madd_epi16(narrow[t][r], ones);
                                    sums[t][r] = _mm256_add_epi32(sums[t][r], wide);
                                    pin(&mut sums[t][r]);
                                }
                            }
                        }
                    }
                    6 => {
                        for q in quads.step_by(2) {
                            let w = [weights!(q), weights!(q + 1)];
                            for t in 0..ROWS {
                                let x = [four!(t, q), four!(t, q + 1)];
                                for r in 0..REGISTERS {
                                    let pairs = _mm256_add_epi16(
                                        _mm256_maddubs_epi16(w[0][r], x[0]),
                                        _mm256_maddubs_epi16(w[1][r], x[1]),
                                    );
                                    let wide = _mm256_madd_epi16(pairs, ones);
                                    sums[t][r] = _mm256_add_epi32(sums[t][r], wide);
                                    pin(&mut sums[t][r]);
                                }
                            }
                        }
                    }
                    _ => {
                        for q in quads {
                            // Weights 0 and 2 of the four, then 1 and 3.
                            for pair in 0..2 {
                                let w = weights!(2 * q + pair);
                                for t in 0..ROWS {
                                    let at = p.words.add((cell + t) * K_GROUP + 4 * q + 2 * pair);
                                    let x = _mm256_set1_epi32(at.cast::<i32>().read_unaligned());
                                    for r in 0..REGISTERS {
                                        let pair = _mm256_madd_epi16(w[r], x);
                                        sums[t][r] = _mm256_add_epi32(sums[t][r], pair);
                                        pin(&mut sums[t][r]);
                                    }
                                }
                            }
                        }
                    }
                }
                flush();
                let at = (g * HALVES + half) * PANEL_ROWS;
                for r in 0..REGISTERS {
                    let scale = _mm256_loadu_ps(p.scales.add(at + r * LANES));
                    let down = _mm256_mul_ps(scale, magic);
                    let min = if MINS { _mm256_loadu_ps(p.mins.add(at + r * LANES)) } else { _mm256_setzero_ps() };
                    for t in 0..ROWS {
                        let out = p.out.add(t * PANEL_ROWS + r * LANES);
                        let start = match MINS {
                            true => MAGIC.to_bits() as i32,
                            false => *p.starts.add((cell + t) * HALVES + half),
                        };
                        let start = _mm256_set1_epi32(start);
                        let sum = _mm256_castsi256_ps(_mm256_add_epi32(sums[t][r], start));
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
