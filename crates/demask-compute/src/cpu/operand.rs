//! Activations as [`linear`](crate::Backend::linear) reads them: f32 rows for wide weights, and 8-bit codes with one
//! scale per 32 values for quantised weights.
//!
//! Rows are grouped into tiles of equal height (at most what the kernels take at once), so that any number of rows
//! runs through full-width kernels: with tiles of up to 6, 7 rows are 4 + 3, not 6 + 1. Within a tile the codes lie in
//! the order in which a kernel walks them: k-group, row, 32 values. A row's tail past `width` is zero.

use super::kernels::{K_GROUP, Kernels, MAGIC};
use super::rowwise::{LANES, sum};
use super::shared::SharedMut;
use std::ops::Range;

/// Activations `[rows, width]`.
pub struct Operand {
    max_rows: usize,
    width: usize,
    rows: usize,
    /// Rows per tile; the last tile may be lower but occupies the same space.
    tile: usize,
    max_tile: usize,
    bias: u8,
    wide: Vec<f32>,
    codes: Vec<u8>,
    scales: Vec<f32>,
    totals: Vec<f32>,
    sums: Vec<[i32; 2]>,
}

/// One tile of an operand, or some k-groups of it.
#[derive(Clone, Copy)]
pub struct OperandTile<'a> {
    /// First row.
    pub start: usize,
    /// Rows in this tile.
    pub rows: usize,
    /// Rows that the layout below has room for.
    pub stride: usize,
    /// `[k_groups, stride, 32]`: int8 codes plus [`Kernels::activation_bias`].
    pub codes: &'a [u8],
    /// `[k_groups, stride]`: the value of one code step.
    pub scales: &'a [f32],
    /// `[k_groups, stride]`: `scale` times the sum of the group's codes.
    pub totals: &'a [f32],
    /// `[k_groups, stride, 2]`: sums of the first and the last 16 codes of a group.
    pub sums: &'a [[i32; 2]],
}

impl<'a> OperandTile<'a> {
    /// The same rows, only these k-groups.
    pub(super) fn groups(&self, groups: Range<usize>) -> OperandTile<'a> {
        let cells = groups.start * self.stride..groups.end * self.stride;
        OperandTile {
            codes: &self.codes[cells.start * K_GROUP..cells.end * K_GROUP],
            scales: &self.scales[cells.clone()],
            totals: &self.totals[cells.clone()],
            sums: &self.sums[cells],
            ..*self
        }
    }
}

impl Operand {
    pub(super) fn new(max_rows: usize, width: usize, kernels: &Kernels) -> Operand {
        let groups = width.div_ceil(K_GROUP);
        // `tiles * tile` exceeds the rows by less than the number of tiles.
        let tiles = max_rows.div_ceil(kernels.max_tile).max(1);
        let space = groups * (max_rows + tiles);
        Operand {
            max_rows,
            width,
            rows: 0,
            tile: 1,
            max_tile: kernels.max_tile,
            bias: kernels.activation_bias,
            wide: vec![0.0; max_rows * width],
            codes: vec![0; space * K_GROUP],
            scales: vec![0.0; space],
            totals: vec![0.0; space],
            sums: vec![[0; 2]; space],
        }
    }

    /// Rows that are filled.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Groups of 32 values per row, the last one padded.
    pub fn k_groups(&self) -> usize {
        self.width.div_ceil(K_GROUP)
    }

    /// The f32 values of all rows, `[rows, width]`.
    pub fn wide(&self) -> &[f32] {
        &self.wide[..self.rows * self.width]
    }

    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(self.tile)
    }

    /// Rows of tile `index`.
    pub(super) fn tile_rows(&self, index: usize) -> Range<usize> {
        index * self.tile..self.rows.min((index + 1) * self.tile)
    }

    /// Tile `index`.
    pub fn tile(&self, index: usize) -> OperandTile<'_> {
        let cells = self.k_groups() * self.tile;
        let rows = self.tile_rows(index);
        let cells = index * cells..(index + 1) * cells;
        OperandTile {
            start: rows.start,
            rows: rows.len(),
            stride: self.tile,
            codes: &self.codes[cells.start * K_GROUP..cells.end * K_GROUP],
            scales: &self.scales[cells.clone()],
            totals: &self.totals[cells.clone()],
            sums: &self.sums[cells],
        }
    }

    /// Makes room for `rows` rows and hands out one writer for all of them.
    pub(super) fn begin(&mut self, rows: usize) -> OperandWriter<'_> {
        assert!(rows <= self.max_rows, "operand of {} rows is asked for {rows}", self.max_rows);
        self.rows = rows;
        let tiles = rows.div_ceil(self.max_tile).max(1);
        self.tile = rows.div_ceil(tiles).max(1);
        OperandWriter {
            width: self.width,
            tile: self.tile,
            bias: self.bias,
            wide: SharedMut::new(&mut self.wide),
            codes: SharedMut::new(&mut self.codes),
            scales: SharedMut::new(&mut self.scales),
            totals: SharedMut::new(&mut self.totals),
            sums: SharedMut::new(&mut self.sums),
        }
    }
}

/// Writes rows of an operand, different rows from different threads.
pub(super) struct OperandWriter<'a> {
    width: usize,
    tile: usize,
    bias: u8,
    wide: SharedMut<'a, f32>,
    codes: SharedMut<'a, u8>,
    scales: SharedMut<'a, f32>,
    totals: SharedMut<'a, f32>,
    sums: SharedMut<'a, [i32; 2]>,
}

impl OperandWriter<'_> {
    /// The f32 values of columns `columns` of row `row`, to be filled before the row is quantised. A part of a row
    /// belongs to one caller at a time.
    pub(super) fn columns(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(columns.end <= self.width, "columns of a row");
        self.wide.slice(row * self.width + columns.start, columns.len())
    }

    /// The f32 values of row `row`.
    pub(super) fn values(&self, row: usize) -> &mut [f32] {
        self.wide.slice(row * self.width, self.width)
    }
}

/// Codes of the greatest magnitude in a group, tried in turn: a slightly coarser step often meets the values better.
const PEAKS: [f32; 2] = [127.0, 124.0];

/// Quantises the f32 values of row `row`, which belongs to one caller at a time, each group with the codes and the scale
/// of least squared error among [`PEAKS`]. The scale of a group with a value that isn't finite is NaN.
#[inline(always)]
pub(super) fn quantize_row(writer: &OperandWriter<'_>, row: usize) {
    let values = writer.values(row);
    let groups = writer.width.div_ceil(K_GROUP);
    let (tile, lane) = (row / writer.tile, row % writer.tile);
    let mut padded = [0.0; K_GROUP];
    for (g, group) in values.chunks(K_GROUP).enumerate() {
        let cell = (tile * groups + g) * writer.tile + lane;
        let group: &[f32; K_GROUP] = group.try_into().unwrap_or_else(|_| {
            padded[..group.len()].copy_from_slice(group);
            &padded
        });
        // As integers, magnitudes order like floats, with everything that isn't finite on top.
        let greatest = group.iter().fold(0, |m: u32, v| m.max(v.to_bits() & 0x7fff_ffff));
        let greatest = f32::from_bits(greatest);
        let mut best = GroupCodes::ZERO;
        if greatest > 0.0 {
            for peak in PEAKS {
                let found = GroupCodes::new(group, greatest, peak);
                if found.explained > best.explained {
                    best = found;
                }
            }
        }
        let stored = writer.codes.slice(cell * K_GROUP, K_GROUP);
        for (stored, &code) in stored.iter_mut().zip(&best.codes) {
            *stored = (code as u8).wrapping_add(writer.bias);
        }
        let sums = [best.codes[..K_GROUP / 2].iter().sum::<i32>(), best.codes[K_GROUP / 2..].iter().sum::<i32>()];
        let scale = if greatest.is_finite() { best.scale } else { f32::NAN };
        writer.scales.slice(cell, 1)[0] = scale;
        writer.totals.slice(cell, 1)[0] = scale * (sums[0] + sums[1]) as f32;
        writer.sums.slice(cell, 1)[0] = sums;
    }
}

/// A group's codes, with the scale that fits them best.
struct GroupCodes {
    codes: [i32; K_GROUP],
    /// `sum(v q) / sum(q^2)`: the scale of least squared error for these codes.
    scale: f32,
    /// `sum(v q)^2 / sum(q^2)`: what that scale explains of `sum(v^2)`, with v in units of the greatest magnitude; the
    /// rest is the squared error.
    explained: f32,
}

impl GroupCodes {
    const ZERO: GroupCodes = GroupCodes { codes: [0; K_GROUP], scale: 0.0, explained: 0.0 };

    #[inline(always)]
    fn new(group: &[f32; K_GROUP], greatest: f32, peak: f32) -> GroupCodes {
        let inverse = peak / greatest;
        let mut codes = [0i32; K_GROUP];
        for (code, &value) in codes.iter_mut().zip(group) {
            // Rounds half to even: see `MAGIC`. What isn't finite gives some code, and a scale that tells.
            *code = i32::from(value.mul_add(inverse, MAGIC).to_bits() as u8 as i8);
        }
        let square: i32 = codes.iter().map(|q| q * q).sum();
        // In steps of the scale, so that nothing underflows; summed in lanes.
        let mut lanes = [0.0f32; LANES];
        for (values, codes) in group.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
            for ((lane, &value), &code) in lanes.iter_mut().zip(values).zip(codes) {
                *lane = (value * inverse).mul_add(code as f32, *lane);
            }
        }
        let product = sum(&lanes);
        let factor = product / square as f32;
        GroupCodes { codes, scale: factor * (greatest / peak), explained: product * factor / (peak * peak) }
    }
}
