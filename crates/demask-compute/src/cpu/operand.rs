//! Activations as [`linear`](crate::Backend::linear) reads them: f32 rows for wide weights, and 8-bit codes with one
//! scale per 32 values for quantised weights.
//!
//! Rows are grouped into tiles of equal height (at most what the kernels take at once), so that any number of rows
//! runs through full-width kernels: with tiles of up to 6, 7 rows are 4 + 3, not 6 + 1. Within a tile the codes lie in
//! the order in which a kernel walks them: k-group, row, 32 values. A row's tail past `width` is zero.

use super::buffer::Buffer;
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
    wide: Buffer<f32>,
    codes: Buffer<u8>,
    words: Buffer<i16>,
    scales: Buffer<f32>,
    totals: Buffer<f32>,
    sums: Buffer<[i32; 2]>,
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
    /// `[k_groups, stride, 32]`: int8 codes.
    pub codes: &'a [u8],
    /// `[k_groups, stride, 32]`: the same codes in 16 bits; within each four in the order 0, 2, 1, 3.
    /// Empty unless [`Kernels::activation_words`].
    pub words: &'a [i16],
    /// `[k_groups, stride]`: the value of one code step.
    pub scales: &'a [f32],
    /// `[k_groups, stride]`: `scale` times the sum of the group's codes.
    pub totals: &'a [f32],
    /// `[k_groups, stride, 2]`: sums of the first and the last 16 codes of a group.
    pub sums: &'a [[i32; 2]],
    /// `[k_groups, stride, halves]`: what the integer sums of unsigned codes start from: `-offset` times the
    /// activations' sum, and the bits of `MAGIC`, which make the sum an f32. Empty for types with minima, which have
    /// no offset.
    pub starts: &'a [i32],
    /// Values of `starts` per cell.
    halves: usize,
}

impl<'a> OperandTile<'a> {
    /// The same rows, only these k-groups.
    #[inline(always)]
    pub(super) fn groups(&self, groups: Range<usize>) -> OperandTile<'a> {
        let cells = groups.start * self.stride..groups.end * self.stride;
        OperandTile {
            codes: &self.codes[cells.start * K_GROUP..cells.end * K_GROUP],
            words: words(self.words, &cells),
            scales: &self.scales[cells.clone()],
            totals: &self.totals[cells.clone()],
            starts: &self.starts[self.halves * cells.start..self.halves * cells.end],
            sums: &self.sums[cells],
            ..*self
        }
    }
}

/// The 16-bit codes of some cells, if there are any.
fn words<'a>(words: &'a [i16], cells: &Range<usize>) -> &'a [i16] {
    words.get(cells.start * K_GROUP..cells.end * K_GROUP).unwrap_or_default()
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
            wide: Buffer::zeroed(max_rows * width),
            codes: Buffer::zeroed(space * K_GROUP),
            words: Buffer::zeroed(if kernels.activation_words { space * K_GROUP } else { 0 }),
            scales: Buffer::zeroed(space),
            totals: Buffer::zeroed(space),
            sums: Buffer::zeroed(space),
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

    /// Tile `index`, with its part of `starts`, `halves` per cell.
    #[inline]
    pub(super) fn tile<'a>(&'a self, index: usize, starts: &'a [i32], halves: usize) -> OperandTile<'a> {
        let cells = self.k_groups() * self.tile;
        let rows = self.tile_rows(index);
        let cells = index * cells..(index + 1) * cells;
        OperandTile {
            start: rows.start,
            rows: rows.len(),
            stride: self.tile,
            codes: &self.codes[cells.start * K_GROUP..cells.end * K_GROUP],
            words: words(&self.words, &cells),
            scales: &self.scales[cells.clone()],
            totals: &self.totals[cells.clone()],
            starts: &starts[halves * cells.start..halves * cells.end],
            halves,
            sums: &self.sums[cells],
        }
    }

    /// [`OperandTile::starts`] of all tiles for a type with this offset and so many scales per k-group.
    pub(super) fn starts(&self, offset: i32, halves: usize, starts: &mut Vec<i32>) {
        let magic = MAGIC.to_bits() as i32;
        let sums = &self.sums[..self.tiles() * self.k_groups() * self.tile];
        starts.clear();
        match halves {
            1 => starts.extend(sums.iter().map(|sum| magic - offset * (sum[0] + sum[1]))),
            _ => starts.extend(sums.as_flattened().iter().map(|sum| magic - offset * sum)),
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
            wide: SharedMut::new(&mut self.wide),
            codes: SharedMut::new(&mut self.codes),
            with_words: !self.words.is_empty(),
            words: SharedMut::new(&mut self.words),
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
    wide: SharedMut<'a, f32>,
    codes: SharedMut<'a, u8>,
    with_words: bool,
    words: SharedMut<'a, i16>,
    scales: SharedMut<'a, f32>,
    totals: SharedMut<'a, f32>,
    sums: SharedMut<'a, [i32; 2]>,
}

impl OperandWriter<'_> {
    /// Groups of 32 values per row, the last one padded.
    pub(super) fn k_groups(&self) -> usize {
        self.width.div_ceil(K_GROUP)
    }

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
pub(super) const PEAKS: [f32; 2] = [127.0, 124.0];

/// A group's codes and what its scale is computed from.
pub(super) struct Quantised {
    /// int8 codes.
    pub(super) codes: [u8; K_GROUP],
    /// The greatest magnitude.
    pub(super) greatest: f32,
    /// Steps that the greatest magnitude makes.
    pub(super) peak: f32,
    /// `sum(v q)` over values v in steps and codes q.
    pub(super) product: f32,
    /// `sum(q^2)`.
    pub(super) square: f32,
    /// Sums of the first and the last 16 codes.
    pub(super) sums: [f32; 2],
}

/// Quantises the f32 values of k-groups of row `row`, which belong to one caller at a time, each group with the codes and
/// the scale of least squared error among [`PEAKS`]. The scale of a group with a value that isn't finite is NaN.
pub(super) fn quantize_groups(writer: &OperandWriter<'_>, row: usize, groups: Range<usize>) {
    each_group(writer, row, groups, quantize_group);
}

/// Quantises k-groups of a row with `quantize`.
#[inline(always)]
pub(super) fn each_group(
    writer: &OperandWriter<'_>,
    row: usize,
    groups: Range<usize>,
    quantize: impl Fn(&[f32; K_GROUP]) -> Quantised,
) {
    let (first, k_groups) = (groups.start, writer.k_groups());
    let (tile, lane) = (row / writer.tile, row % writer.tile);
    let store = |g: usize, group: &[f32; K_GROUP]| {
        let found = quantize(group);
        let scale = if !found.greatest.is_finite() {
            f32::NAN
        } else if found.square > 0.0 {
            found.product / found.square * (found.greatest / found.peak)
        } else {
            0.0
        };
        let cell = (tile * k_groups + g) * writer.tile + lane;
        writer.codes.slice(cell * K_GROUP, K_GROUP).copy_from_slice(&found.codes);
        if writer.with_words {
            let words = writer.words.slice(cell * K_GROUP, K_GROUP);
            for (words, codes) in words.as_chunks_mut::<4>().0.iter_mut().zip(found.codes.as_chunks::<4>().0) {
                *words = [0, 2, 1, 3].map(|i: usize| i16::from(codes[i] as i8));
            }
        }
        writer.scales.slice(cell, 1)[0] = scale;
        writer.totals.slice(cell, 1)[0] = scale * (found.sums[0] + found.sums[1]);
        writer.sums.slice(cell, 1)[0] = found.sums.map(|sum| sum as i32);
    };
    let columns = first * K_GROUP..writer.width.min(groups.end * K_GROUP);
    let (whole, tail) = writer.columns(row, columns).as_chunks::<K_GROUP>();
    for (g, group) in (first..).zip(whole) {
        store(g, group);
    }
    if !tail.is_empty() {
        let mut padded = [0.0; K_GROUP];
        padded[..tail.len()].copy_from_slice(tail);
        store(groups.end - 1, &padded);
    }
}

fn quantize_group(values: &[f32; K_GROUP]) -> Quantised {
    // As integers, magnitudes order like floats, with everything that isn't finite on top.
    let greatest = values.iter().fold(0, |m: u32, v| m.max(v.to_bits() & 0x7fff_ffff));
    let greatest = f32::from_bits(greatest);
    // No steps for a group of zeros, nor where their number per unit overflows.
    let inverses = PEAKS.map(|peak| peak / greatest);
    let inverses = if inverses[0].is_finite() { inverses } else { [0.0; 2] };
    // Rounds half to even, see `MAGIC`.
    let step = |value: f32, inverse: f32| value.mul_add(inverse, MAGIC) - MAGIC;
    let fit = |inverse: f32| {
        let (mut product, mut square) = ([0.0f32; LANES], [0.0f32; LANES]);
        for (i, &value) in values.iter().enumerate() {
            let (step, lane) = (step(value, inverse), i % LANES);
            product[lane] = (value * inverse).mul_add(step, product[lane]);
            square[lane] = step.mul_add(step, square[lane]);
        }
        (sum(&product), sum(&square))
    };
    // What the scale of least squared error, `product / square` steps, explains of the sum of squares, in units of the
    // greatest magnitude.
    let explained = |(product, square): (f32, f32), peak: f32| product * product / (square * (peak * peak));
    let (first, second) = (fit(inverses[0]), fit(inverses[1]));
    let (peak, inverse, (product, square)) = if explained(second, PEAKS[1]) > explained(first, PEAKS[0]) {
        (PEAKS[1], inverses[1], second)
    } else {
        (PEAKS[0], inverses[0], first)
    };
    let steps = values.map(|value| step(value, inverse));
    let half = |values: &[f32]| values.iter().sum();
    Quantised {
        codes: steps.map(|step| step as i8 as u8),
        greatest,
        peak,
        product,
        square,
        sums: [half(&steps[..K_GROUP / 2]), half(&steps[K_GROUP / 2..])],
    }
}
