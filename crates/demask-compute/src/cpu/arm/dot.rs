//! NEON with the dot product extension: `sdot` multiplies four signed weights of four rows by four signed activations.
//!
//! A tile is 16 weight rows (four registers) by up to 4 activation rows, so that 16 sums, the weights and the
//! activations fit the 32 registers; a panel takes two passes, and f32 sums stay in the first-level cache.

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::form::CodesForm;
use super::super::kernels::{GROUP_CODES, K_GROUP, Kernels, MAGIC, PANEL_ROWS, Panel};
use super::super::operand::OperandTile;
use super::super::pointers::{Pointers, dispatch};
use super::{peaks, wide};

pub(super) static KERNELS: Kernels = Kernels {
    name: "dotprod",
    max_tile: 4,
    activation_words: false,
    signed_bytes: true,
    pack: super::super::form::pack_units,
    unpack,
    prefetch: super::prefetch,
    tile,
    wide: wide::neon_wide,
    rows: super::ROWS,
    peaks: peaks::DOT,
    limit: |form| (usize::from(form.is_none()), 1),
};

/// Lanes of a register.
const LANES: usize = 4;
/// Registers per pass: 16 rows.
const REGISTERS: usize = 4;

fn unpack(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    super::unpack_signed(form, units, panel, |_| ());
}

fn tile(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]) {
    let pointers = Pointers::new(form, panel, tile, 1, out);
    for first in (0..PANEL_ROWS).step_by(REGISTERS * LANES) {
        // SAFETY: lengths were checked by `Pointers::new` for all 32 rows, features before the table was handed out.
        unsafe {
            let pointers = pointers.starting_at(first);
            dispatch!(tile_rows, tile.rows, form, pointers, [1, 2, 3, 4])
        }
    }
}

/// Adds to each lane the product of its four weights and activations `4 * QUAD` to `4 * QUAD + 3`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot<const QUAD: usize>(mut sums: int32x4_t, weights: int8x16_t, activations: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{quad}]",
            inout(vreg) sums, in(vreg) weights, in(vreg) activations, quad = const QUAD,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// # Safety
/// `p` must come from [`Pointers::new`] for a tile of `ROWS` rows and a form with `HALVES` scales per k-group, moved
/// to a row that leaves 16.
#[target_feature(enable = "neon,dotprod")]
unsafe fn tile_rows<const ROWS: usize, const HALVES: usize, const MINS: bool>(p: Pointers) {
    // SAFETY: all offsets below are inside what `Pointers::new` checked: groups, halves, quads, rows and registers
    // run over exactly the shapes in the documentation of `Panel` and `OperandTile`.
    unsafe {
        let magic = vdupq_n_f32(-MAGIC);
        for g in 0..p.groups {
            let cell = g * p.stride;
            let codes = p.codes.add(g * GROUP_CODES);
            let mut sums = [[vdupq_n_s32(0); REGISTERS]; ROWS];
            for part in 0..2 {
                let half = if HALVES == 2 { part } else { 0 };
                if part == 0 || HALVES == 2 {
                    for t in 0..ROWS {
                        // Types with minima have no offset.
                        let start = match MINS {
                            true => MAGIC.to_bits() as i32,
                            false => *p.starts.add((cell + t) * HALVES + half),
                        };
                        sums[t] = [vdupq_n_s32(start); REGISTERS];
                    }
                }
                // Four quads of each activation row in a register.
                let mut activations = [vdupq_n_s8(0); ROWS];
                for t in 0..ROWS {
                    activations[t] = vld1q_s8(p.quantised.add((cell + t) * K_GROUP + 16 * part).cast());
                }
                macro_rules! quad {
                    ($quad:literal) => {
                        for r in 0..REGISTERS {
                            let at = codes.add(((4 * part + $quad) * PANEL_ROWS + r * LANES) * 4);
                            let weights = vld1q_s8(at.cast());
                            for t in 0..ROWS {
                                sums[t][r] = sdot::<$quad>(sums[t][r], weights, activations[t]);
                            }
                        }
                    };
                }
                quad!(0);
                quad!(1);
                quad!(2);
                quad!(3);
                if HALVES == 1 && part == 0 {
                    continue;
                }
                let at = (g * HALVES + half) * PANEL_ROWS;
                for r in 0..REGISTERS {
                    let scale = vld1q_f32(p.scales.add(at + r * LANES));
                    let down = vmulq_f32(scale, magic);
                    let min = if MINS { vld1q_f32(p.mins.add(at + r * LANES)) } else { magic };
                    for t in 0..ROWS {
                        let out = p.out.add(t * PANEL_ROWS + r * LANES);
                        let scaled = vfmaq_f32(down, vreinterpretq_f32_s32(sums[t][r]), scale);
                        let by = vdupq_n_f32(*p.activation_scales.add(cell + t));
                        let mut value = vfmaq_f32(vld1q_f32(out), scaled, by);
                        if MINS {
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
