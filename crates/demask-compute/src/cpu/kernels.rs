//! The kernel table: plain functions, one set per instruction set, chosen once at run time.

use super::buffer::Buffer;
use super::form::{CodesForm, PackBuffer};
use super::operand::OperandTile;
use crate::quant::CodesRow;
use crate::weights::ComputeError;

/// Weight rows of a panel: the rows that a packed matrix interleaves and a tile multiplies at once.
pub const PANEL_ROWS: usize = 32;
/// Weights along K that share one activation scale.
pub const K_GROUP: usize = 32;
/// Bytes of one k-group of a panel's codes: 8 quads of 4 weights for each row.
pub(super) const GROUP_CODES: usize = K_GROUP * PANEL_ROWS;
/// Most k-groups that a panel holds at once (512 weights): 16 KB of codes, which stay in the first-level cache while
/// all activation tiles pass by.
pub(super) const PANEL_GROUPS: usize = 16;

/// `1.5 * 2^23`: the f32 whose bits, plus a small integer, are the f32 of that much more. Integer sums start from
/// these bits, and `fma(sum, scale, -MAGIC * scale)` converts and scales them in one rounding, like
/// `(sum as f32) * scale`: exact as long as the sum is below `2^22` and `3 * scale` needs at most 24 bits, which the
/// scales of all types do (an f16 times a 6- or 8-bit integer).
pub(super) const MAGIC: f32 = 12_582_912.0;

/// Thirty-two rows of a packed matrix, unpacked for a kernel: k-groups of codes and their scales.
///
/// Weight = `scale * (code - offset) - min`. What `codes` holds is between a table's own [`Kernels::unpack`] and
/// [`Kernels::tile`].
pub struct Panel {
    /// `[k_groups, 8, 32, 4]`: per k-group eight quads of four consecutive weights, each for 32 rows.
    pub(super) codes: Buffer<u8>,
    /// `[k_groups, halves, 32]`; `halves` is 2 for types with 16-weight groups, else 1.
    pub(super) scales: Buffer<f32>,
    /// As `scales`; only meaningful for types with minima.
    pub(super) mins: Buffer<f32>,
    /// k-groups that are filled.
    pub groups: usize,
}

impl Panel {
    /// An empty panel with room for [`PANEL_GROUPS`] k-groups of every type.
    pub(super) fn new() -> Panel {
        Panel {
            codes: Buffer::zeroed(2 * PANEL_GROUPS * GROUP_CODES),
            scales: Buffer::zeroed(2 * PANEL_GROUPS * PANEL_ROWS),
            mins: Buffer::zeroed(2 * PANEL_GROUPS * PANEL_ROWS),
            groups: 0,
        }
    }
}

/// Packs all quant blocks of up to 32 rows, given their bytes, into units.
pub(super) type PackKernel =
    fn(form: &CodesForm, codes: &CodesRow, rows: &[&[u8]], buffer: &mut PackBuffer, units: &mut [u8]);
/// Unpacks whole units (see [`CodesForm`]) into a panel.
pub type UnpackKernel = fn(form: &CodesForm, units: &[u8], panel: &mut Panel);
/// Multiplies a panel by a tile: adds to `out[t * 32 + n]` the sum over the panel's k of activation row t times
/// weight row n.
///
/// Per k-group and half the integer products are exact; then, in f32 and in this order:
/// `out = fma(int * scale, activation_scale, out)`, and with minima `out = fma(-min, activation_scale * sum, out)`.
/// So every table gives the same bits.
pub type TileKernel = fn(form: &CodesForm, panel: &Panel, tile: &OperandTile<'_>, out: &mut [f32]);
/// f32 tile: adds to `out[t * out_stride + n]` the sum over k of `a[t * a_stride + k] * w[k * w_stride + n]`, one
/// fused multiply-add per k in ascending order, for t below `rows`, k below `depth`, n below 32.
pub type WideKernel = fn(WideTile<'_>);

/// What an f32 tile reads and writes.
pub struct WideTile<'a> {
    /// Weights, and how far apart those of two k are.
    pub w: &'a [f32],
    /// See `w`.
    pub w_stride: usize,
    /// Activations, and how far apart two rows are.
    pub a: &'a [f32],
    /// See `a`.
    pub a_stride: usize,
    /// Activation rows, at most [`Kernels::max_tile`].
    pub rows: usize,
    /// Weights per sum; not 0 if there are rows.
    pub depth: usize,
    /// Sums, and how far apart two rows are.
    pub out: &'a mut [f32],
    /// See `out`.
    pub out_stride: usize,
}

/// A loop that does nothing but arithmetic, to measure kernels against.
pub struct Peak {
    /// What it does.
    pub name: &'static str,
    /// Runs it for a fraction of a millisecond; returns the multiply-accumulates done.
    pub run: fn() -> usize,
}

/// One instruction set's kernels.
pub struct Kernels {
    /// Name as `DEMASK_ISA` and reports use it.
    pub name: &'static str,
    /// Activation rows of a full tile.
    pub max_tile: usize,
    /// Whether the tile also wants activation codes in 16 bits.
    pub activation_words: bool,
    /// Packs codes.
    pub(super) pack: PackKernel,
    /// Unpacks packed codes.
    pub unpack: UnpackKernel,
    /// Fetches bytes into the second-level cache; does nothing where that can't be asked for.
    pub prefetch: fn(&[u8]),
    /// Integer tile.
    pub tile: TileKernel,
    /// f32 tile.
    pub wide: WideKernel,
    /// Row-wise operations.
    pub rows: super::rowwise::RowKernels,
    /// Limits of the instructions that the tiles use.
    pub peaks: &'static [Peak],
    /// Whether 8-bit codes are unpacked with their offset taken off.
    pub signed_bytes: bool,
    /// Index into `peaks` of the limit for a type, and how many times its multiplications are needed; `None` is a
    /// wide type.
    pub limit: fn(Option<&CodesForm>) -> (usize, usize),
}

impl Kernels {
    /// What a tile takes off every code of a form.
    pub(super) fn code_offset(&self, form: &CodesForm) -> i32 {
        if self.signed_bytes && form.kernel_bits() == 8 { 0 } else { form.offset }
    }
}

/// Every kernel table that this processor can run, best first; the last is the scalar truth.
pub fn available() -> Vec<&'static Kernels> {
    #[allow(unused_mut)]
    let mut tables: Vec<&'static Kernels> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    super::x86::push_available(&mut tables);
    #[cfg(target_arch = "aarch64")]
    super::arm::push_available(&mut tables);
    tables.push(&super::scalar::KERNELS);
    tables
}

/// The table called `name`, or the best one.
pub fn choose(name: Option<&str>) -> Result<&'static Kernels, ComputeError> {
    let tables = available();
    match name {
        None => Ok(tables[0]),
        Some(name) => tables.iter().copied().find(|t| t.name == name).ok_or_else(|| ComputeError::UnknownIsa {
            name: name.to_owned(),
            available: tables.iter().map(|t| t.name).collect::<Vec<_>>().join(", "),
        }),
    }
}
