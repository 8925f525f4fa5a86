//! The truth: kernels as plain loops, in the order of operations that every other table keeps.

use super::form::{CodesForm, multiply, pack_units, unpack_group, unpack_units};
use super::kernels::{GROUP_CODES, K_GROUP, Kernels, PANEL_ROWS, Panel, WideTile};
use super::operand::{OperandTile, quantize_groups};
use super::{head, rowwise};

/// The scalar table.
pub(super) static KERNELS: Kernels = Kernels {
    name: "scalar",
    max_tile: 6,
    activation_words: false,
    signed_bytes: false,
    pack: pack_units,
    unpack,
    prefetch: |_| (),
    tile,
    wide,
    rows: rowwise::RowKernels {
        rms_norm: rowwise::rms_norm,
        silu_mul: rowwise::silu_mul,
        softmax: rowwise::softmax,
        greatest: rowwise::greatest,
        scale: rowwise::scale,
        widen_f16: rowwise::widen_f16,
        widen_bf16: rowwise::widen_bf16,
        quantize: quantize_groups,
        statistics: head::statistics,
    },
    peaks: &[],
    limit: |_| (0, 1),
};

/// Codes as stored, before the offset.
fn unpack(form: &CodesForm, units: &[u8], panel: &mut Panel) {
    unpack_units(form, units, GROUP_CODES, panel, |planes, codes| unpack_group(form, planes, codes), multiply);
}

fn tile(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]) {
    let half_len = K_GROUP / form.halves;
    for (g, codes) in panel.codes.chunks_exact(GROUP_CODES).take(panel.groups).enumerate() {
        for t in 0..tile.rows {
            let cell = g * tile.stride + t;
            let quantised = &tile.codes[cell * K_GROUP..(cell + 1) * K_GROUP];
            for half in 0..form.halves {
                let sum = match form.halves {
                    1 => tile.sums[cell][0] + tile.sums[cell][1],
                    _ => tile.sums[cell][half],
                };
                for n in 0..PANEL_ROWS {
                    let mut product = -form.offset * sum;
                    for k in half * half_len..(half + 1) * half_len {
                        product +=
                            i32::from(codes[(k / 4 * PANEL_ROWS + n) * 4 + k % 4]) * i32::from(quantised[k] as i8);
                    }
                    let at = (g * form.halves + half) * PANEL_ROWS + n;
                    let out = &mut out[t * PANEL_ROWS + n];
                    *out = (product as f32 * panel.scales[at]).mul_add(tile.scales[cell], *out);
                    if form.has_mins {
                        *out = (-panel.mins[at]).mul_add(tile.scales[cell] * sum as f32, *out);
                    }
                }
            }
        }
    }
}

fn wide(WideTile { w, w_stride, a, a_stride, rows, depth, out, out_stride }: WideTile<'_>) {
    for t in 0..rows {
        let out = &mut out[t * out_stride..][..PANEL_ROWS];
        for k in 0..depth {
            let value = a[t * a_stride + k];
            for (out, &weight) in out.iter_mut().zip(&w[k * w_stride..][..PANEL_ROWS]) {
                *out = weight.mul_add(value, *out);
            }
        }
    }
}
