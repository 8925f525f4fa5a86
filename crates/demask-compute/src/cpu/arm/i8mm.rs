//! NEON with the matrix extension: `smmla` multiplies eight signed weights of two rows by eight signed activations of two
//! rows: twice the work of `sdot` per instruction.
//!
//! Quads are unpacked in twos, so that 16 bytes hold eight weights of two rows. A tile is 16 weight rows (eight registers
//! of sums per two activation rows) by up to 4 activation rows; of a last odd row the products are computed twice.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::form::CodesForm;
use super::super::kernels::{GROUP_CODES, K_GROUP, Kernels, MAGIC, PANEL_ROWS, Panel};
use super::super::operand::OperandTile;
use super::super::pointers::{Pointers, dispatch};
use super::{peaks, wide};

pub(super) static KERNELS: Kernels = Kernels {
    name: "i8mm",
    max_tile: 4,
    activation_words: false,
    signed_bytes: true,
    pack: super::super::form::pack_units,
    unpack,
    prefetch: super::prefetch,
    tile,
    wide: wide::neon_wide,
    rows: super::ROWS,
    peaks: peaks::I8MM,
    limit: |form| (usize::from(form.is_none()), 1),
};

/// Weight rows per pass.
const PASS: usize = 16;
/// Registers of two weight rows per pass.
const PAIRS: usize = PASS / 2;
/// Bytes of a quad: four weights of 32 rows.
const QUAD: usize = 4 * PANEL_ROWS;
/// Lanes of a register of f32.
const LANES: usize = 4;

fn unpack(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    super::unpack_signed(form, units, panel, |codes| {
        for two in codes.chunks_exact_mut(2 * QUAD) {
            let mut arranged = [0; 2 * QUAD];
            for (n, eight) in arranged.chunks_exact_mut(8).enumerate() {
                eight[..4].copy_from_slice(&two[4 * n..4 * n + 4]);
                eight[4..].copy_from_slice(&two[QUAD + 4 * n..QUAD + 4 * n + 4]);
            }
            two.copy_from_slice(&arranged);
        }
    });
}

fn tile(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]) {
    let pointers = Pointers::new(form, panel, tile, 1, out);
    for first in (0..PANEL_ROWS).step_by(PASS) {
        // SAFETY: lengths were checked by `Pointers::new` for all 32 rows, features before the table was handed out.
        // Rows of weights lie twice as far apart as `starting_at` takes them to.
        unsafe {
            let mut pointers = pointers.starting_at(first);
            pointers.codes = pointers.codes.add(4 * first);
            dispatch!(tile_rows, tile.rows, form, pointers, [1, 2, 3, 4])
        }
    }
}

/// Adds the products of two activation rows and two weight rows of eight values.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn smmla(mut sums: int32x4_t, activations: int8x16_t, weights: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sums, in(vreg) activations, in(vreg) weights,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// # Safety
/// `p` must come from [`Pointers::new`] for a tile of `ROWS` rows and a form with `HALVES` scales per k-group, moved
/// to a row that leaves 16.
#[target_feature(enable = "neon,i8mm")]
unsafe fn tile_rows<const ROWS: usize, const HALVES: usize, const MINS: bool>(p: Pointers) {
    // SAFETY: all offsets below are inside what `Pointers::new` checked: groups, halves, quads, rows and registers
    // run over exactly the shapes in the documentation of `Panel` and `OperandTile`.
    unsafe {
        let magic = vdupq_n_f32(-MAGIC);
        for g in 0..p.groups {
            let cell = g * p.stride;
            let codes = p.codes.add(g * GROUP_CODES);
            for half in 0..HALVES {
                let at = (g * HALVES + half) * PANEL_ROWS;
                for first in (0..ROWS).step_by(2) {
                    // The second row of two; the first one again if there is none.
                    let second = (first + 1).min(ROWS - 1);
                    let start = |t: usize| match MINS {
                        // Types with minima have no offset.
                        true => MAGIC.to_bits() as i32,
                        false => *p.starts.add((cell + t) * HALVES + half),
                    };
                    let start = vcombine_s32(vdup_n_s32(start(first)), vdup_n_s32(start(second)));
                    let mut sums = [start; PAIRS];
                    for two in half * 4 / HALVES..(half + 1) * 4 / HALVES {
                        let row = |t: usize| vld1_s8(p.quantised.add((cell + t) * K_GROUP + 8 * two).cast());
                        let activations = vcombine_s8(row(first), row(second));
                        for pair in 0..PAIRS {
                            let weights = vld1q_s8(codes.add(two * 2 * QUAD + pair * 16).cast());
                            sums[pair] = smmla(sums[pair], activations, weights);
                        }
                    }
                    for r in 0..PASS / LANES {
                        let scale = vld1q_f32(p.scales.add(at + r * LANES));
                        let down = vmulq_f32(scale, magic);
                        let (a, b) = (vreinterpretq_f64_s32(sums[2 * r]), vreinterpretq_f64_s32(sums[2 * r + 1]));
                        let rows = [(first, vzip1q_f64(a, b)), (second, vzip2q_f64(a, b))];
                        for (t, sum) in rows.into_iter().take(second - first + 1) {
                            let out = p.out.add(t * PANEL_ROWS + r * LANES);
                            let scaled = vfmaq_f32(down, vreinterpretq_f32_f64(sum), scale);
                            let by = vdupq_n_f32(*p.activation_scales.add(cell + t));
                            let mut value = vfmaq_f32(vld1q_f32(out), scaled, by);
                            if MINS {
                                let min = vld1q_f32(p.mins.add(at + r * LANES));
                                let total = p.half_total::<HALVES>(cell + t, half);
                                value = vfmsq_f32(value, min, vdupq_n_f32(total));
                            }
                            vst1q_f32(out, value);
                        }
                    }
                }
            }
        }
    }
}
