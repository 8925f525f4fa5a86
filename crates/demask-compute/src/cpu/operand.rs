//! Activations as [`linear`](crate::Backend::linear) reads them: f32 rows for wide weights, and int8 codes with one
//! scale per 32 values for quantised weights.
//!
//! Rows are grouped into tiles of equal height (at most [`MAX_TILE`]), so that any number of rows runs through
//! full-width kernels: 17 rows are 9 + 8, not 16 + 1. Within a tile the codes lie in the order in which a kernel
//! walks them: k-group, row, 32 values. A row's tail past `width` is zero.

use super::kernels::K_GROUP;

/// Most rows of a tile.
pub(super) const MAX_TILE: usize = 16;

/// Activations `[rows, width]`.
pub struct Operand {
    max_rows: usize,
    width: usize,
    rows: usize,
    /// Rows per tile; the last tile may be lower but occupies the same space.
    tile: usize,
    wide: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<[i32; 2]>,
}

/// One tile of an operand.
#[derive(Clone, Copy)]
pub struct OperandTile<'a> {
    /// First row.
    pub start: usize,
    /// Rows in this tile.
    pub rows: usize,
    /// Rows that the layout below has room for.
    pub stride: usize,
    /// `[k_groups, stride, 32]`.
    pub codes: &'a [i8],
    /// `[k_groups, stride]`: the value of one code step.
    pub scales: &'a [f32],
    /// `[k_groups, stride, 2]`: sums of the first and the last 16 codes of a group.
    pub sums: &'a [[i32; 2]],
}

impl Operand {
    pub(super) fn new(max_rows: usize, width: usize) -> Operand {
        let groups = width.div_ceil(K_GROUP);
        // `tiles * tile` never exceeds the rows rounded up to whole tiles.
        let space = groups * max_rows.next_multiple_of(MAX_TILE).max(MAX_TILE);
        Operand {
            max_rows,
            width,
            rows: 0,
            tile: 1,
            wide: vec![0.0; max_rows * width],
            codes: vec![0; space * K_GROUP],
            scales: vec![0.0; space],
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

    /// Tile `index`.
    pub fn tile(&self, index: usize) -> OperandTile<'_> {
        let cells = self.k_groups() * self.tile;
        let start = index * self.tile;
        OperandTile {
            start,
            rows: self.tile.min(self.rows - start),
            stride: self.tile,
            codes: &self.codes[index * cells * K_GROUP..(index + 1) * cells * K_GROUP],
            scales: &self.scales[index * cells..(index + 1) * cells],
            sums: &self.sums[index * cells..(index + 1) * cells],
        }
    }

    /// Makes room for `rows` rows and hands out one writer per row.
    pub(super) fn begin(&mut self, rows: usize) -> OperandWriter<'_> {
        assert!(
            rows <= self.max_rows,
            "operand of {} rows is asked for {rows}",
            self.max_rows
        );
        self.rows = rows;
        let tiles = rows.div_ceil(MAX_TILE).max(1);
        self.tile = rows.div_ceil(tiles).max(1);
        OperandWriter {
            width: self.width,
            tile: self.tile,
            wide: super::shared::SharedMut::new(&mut self.wide),
            codes: super::shared::SharedMut::new(&mut self.codes),
            scales: super::shared::SharedMut::new(&mut self.scales),
            sums: super::shared::SharedMut::new(&mut self.sums),
        }
    }
}

/// Writes rows of an operand, different rows from different threads.
pub(super) struct OperandWriter<'a> {
    width: usize,
    tile: usize,
    wide: super::shared::SharedMut<'a, f32>,
    codes: super::shared::SharedMut<'a, i8>,
    scales: super::shared::SharedMut<'a, f32>,
    sums: super::shared::SharedMut<'a, [i32; 2]>,
}

impl OperandWriter<'_> {
    /// Lets `fill` write the f32 values of row `row`, then quantises them. A row belongs to one caller at a time.
    pub(super) fn row(&self, row: usize, fill: impl FnOnce(&mut [f32])) {
        let values = self.wide.slice(row * self.width, self.width);
        fill(values);
        let groups = self.width.div_ceil(K_GROUP);
        let (tile, lane) = (row / self.tile, row % self.tile);
        for (g, group) in values.chunks(K_GROUP).enumerate() {
            let cell = (tile * groups + g) * self.tile + lane;
            let codes = self.codes.slice(cell * K_GROUP, K_GROUP);
            let greatest = group.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let inverse = if greatest > 0.0 {
                127.0 / greatest
            } else {
                0.0
            };
            codes.fill(0);
            for (code, &value) in codes.iter_mut().zip(group) {
                // NaN becomes 0 here and shows up through the scale below.
                *code = (value * inverse).round_ties_even() as i8;
            }
            let sum = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum();
            // `max` skips NaN, so a group's own values say whether it is finite.
            let finite = group.iter().all(|v| v.is_finite());
            self.scales.slice(cell, 1)[0] = if finite { greatest / 127.0 } else { f32::NAN };
            self.sums.slice(cell, 1)[0] = [sum(&codes[..16]), sum(&codes[16..])];
        }
    }
}
