//! The kernel table: plain functions, one set per instruction set, chosen once at run time.

use super::operand::OperandTile;
use crate::weights::ComputeError;

/// Weight rows of a tile: the rows that a panel interleaves.
pub const ROW_GROUP: usize = 16;
/// Weights along K that share one activation scale.
pub const K_GROUP: usize = 32;

/// Sixteen rows of a packed matrix, unpacked to bytes.
///
/// `codes` is `[k_groups, 8, 16, 4]`: per k-group eight quads of four consecutive weights, each for 16 rows.
/// Weight = `scale * (code - offset) - min`.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    /// Unsigned codes.
    pub codes: &'a [u8],
    /// `[k_groups, halves, 16]` scales; `halves` is 2 for 16-weight groups, else 1.
    pub scales: &'a [f32],
    /// As `scales`, or empty.
    pub mins: &'a [f32],
    /// Subtracted from every code.
    pub offset: i32,
    /// Scales per k-group: 1 or 2.
    pub halves: usize,
}

/// Multiplies a panel by a tile: `out[t * 16 + n] = sum over k`, for each of the tile's rows t and 16 weight rows n.
///
/// Per k-group the integer products are exact; then, in f32 and in this order, per half:
/// `out = fma(int * scale, activation_scale, out)`, and with minima `out = fma(-min, activation_scale * sum, out)`.
pub type TileKernel = fn(&Panel<'_>, &OperandTile<'_>, &mut [f32]);
/// The same for wide weights: `weights` is `[cols, 16]`, `activations` is `[rows, cols]`.
pub type WideKernel = fn(weights: &[f32], activations: &[f32], cols: usize, out: &mut [f32]);

/// One instruction set's kernels.
pub struct Kernels {
    /// Name as `DEMASK_ISA` and reports use it.
    pub name: &'static str,
    /// Integer tile.
    pub tile: TileKernel,
    /// f32 tile.
    pub wide: WideKernel,
}

/// Every kernel table that this processor can run, best first; the last is the scalar truth.
pub fn available() -> Vec<&'static Kernels> {
    #[allow(unused_mut)]
    let mut tables: Vec<&'static Kernels> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    super::x86::push_available(&mut tables);
    tables.push(&super::scalar::KERNELS);
    tables
}

/// The table called `name`, or the best one.
pub fn choose(name: Option<&str>) -> Result<&'static Kernels, ComputeError> {
    let tables = available();
    match name {
        None => Ok(tables[0]),
        Some(name) => tables
            .iter()
            .copied()
            .find(|t| t.name == name)
            .ok_or_else(|| ComputeError::UnknownIsa {
                name: name.to_owned(),
                available: tables.iter().map(|t| t.name).collect::<Vec<_>>().join(", "),
            }),
    }
}
