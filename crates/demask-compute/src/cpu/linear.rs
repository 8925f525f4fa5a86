//! The projections: row groups of a packed matrix times tiles of activations, handed out to the pool.

use super::Cpu;
use super::kernels::ROW_GROUP;
use super::operand::{MAX_TILE, Operand};
use super::packed::{Matrix, RowGroup};
use super::shared::SharedMut;

/// What happens to the product.
pub(super) enum Into<'a> {
    /// It replaces the output, plus a bias if there is one.
    Overwrite(Option<&'a Vec<f32>>),
    /// It is added to the output.
    Add,
}

/// `out (+)= x * w^T`, out `[rows, N]`.
pub(super) fn linear(cpu: &Cpu, x: &Operand, w: &Matrix, into: Into<'_>, out: &mut [f32]) {
    assert_eq!(x.width(), w.cols(), "operand and matrix agree on K");
    let features = w.rows();
    let out = SharedMut::new(out);
    cpu.pool.run(w.row_groups(), &|group, _| {
        let first = group * ROW_GROUP;
        let count = ROW_GROUP.min(features - first);
        products(cpu, x, w, group, &mut |row, product| {
            let out = out.slice(row * features + first, count);
            match into {
                Into::Overwrite(None) => out.copy_from_slice(&product[..count]),
                Into::Overwrite(Some(bias)) => {
                    for ((out, product), bias) in out.iter_mut().zip(product).zip(&bias[first..]) {
                        *out = product + bias;
                    }
                }
                Into::Add => out
                    .iter_mut()
                    .zip(product)
                    .for_each(|(out, product)| *out += product),
            }
        });
    });
}

/// Calls `take(row, products)` with the products of every row of `x` and the 16 weight rows of `group`.
pub(super) fn products(
    cpu: &Cpu,
    x: &Operand,
    w: &Matrix,
    group: usize,
    take: &mut dyn FnMut(usize, &[f32]),
) {
    let mut product = [0.0; MAX_TILE * ROW_GROUP];
    match w.row_group(group) {
        RowGroup::Codes(panel) => {
            for index in 0..x.tiles() {
                let tile = x.tile(index);
                (cpu.kernels.tile)(&panel, &tile, &mut product);
                for (t, product) in product.chunks_exact(ROW_GROUP).take(tile.rows).enumerate() {
                    take(tile.start + t, product);
                }
            }
        }
        RowGroup::Wide(weights) => {
            let cols = w.cols();
            for (index, rows) in x.wide().chunks(MAX_TILE * cols).enumerate() {
                (cpu.kernels.wide)(weights, rows, cols, &mut product);
                for (t, product) in product
                    .chunks_exact(ROW_GROUP)
                    .take(rows.len() / cols)
                    .enumerate()
                {
                    take(index * MAX_TILE + t, product);
                }
            }
        }
    }
}
