//! The truth: kernels as plain loops, in the order of operations that every other table keeps.

use super::kernels::{K_GROUP, Kernels, Panel, ROW_GROUP};
use super::operand::OperandTile;

/// The scalar table.
pub(super) static KERNELS: Kernels = Kernels {
    name: "scalar",
    tile,
    wide,
};

fn tile(panel: &Panel<'_>, activations: &OperandTile<'_>, out: &mut [f32]) {
    let half_len = K_GROUP / panel.halves;
    out[..activations.rows * ROW_GROUP].fill(0.0);
    for (g, codes) in panel.codes.chunks_exact(K_GROUP * ROW_GROUP).enumerate() {
        for t in 0..activations.rows {
            let cell = g * activations.stride + t;
            let quantised = &activations.codes[cell * K_GROUP..(cell + 1) * K_GROUP];
            let (scale, sums) = (activations.scales[cell], activations.sums[cell]);
            for half in 0..panel.halves {
                let sum = if panel.halves == 1 {
                    sums[0] + sums[1]
                } else {
                    sums[half]
                };
                for n in 0..ROW_GROUP {
                    let mut product = -panel.offset * sum;
                    for k in half * half_len..(half + 1) * half_len {
                        product += i32::from(codes[(k / 4 * ROW_GROUP + n) * 4 + k % 4])
                            * i32::from(quantised[k]);
                    }
                    let at = (g * panel.halves + half) * ROW_GROUP + n;
                    let out = &mut out[t * ROW_GROUP + n];
                    *out = (product as f32 * panel.scales[at]).mul_add(scale, *out);
                    if !panel.mins.is_empty() {
                        *out = (-panel.mins[at]).mul_add(scale * sum as f32, *out);
                    }
                }
            }
        }
    }
}

fn wide(weights: &[f32], activations: &[f32], cols: usize, out: &mut [f32]) {
    for (row, out) in activations
        .chunks_exact(cols)
        .zip(out.chunks_exact_mut(ROW_GROUP))
    {
        out.fill(0.0);
        for (weights, &value) in weights.chunks_exact(ROW_GROUP).zip(row) {
            for (out, &weight) in out.iter_mut().zip(weights) {
                *out = weight.mul_add(value, *out);
            }
        }
    }
}
