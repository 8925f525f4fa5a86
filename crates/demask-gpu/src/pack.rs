//! Weights in the order in which the lanes of `mma` take them (`kernels/gemm_codes.cu`).
//!
//! A tile is 16 rows by 32 weights, a *group*. Lane 4 r + q owns, of rows r and r + 8, weights 4 q to 4 q + 3 and those 16
//! further on: four registers of four codes, numbered 2 * half + (row / 8). Four arrays, each `[row tiles, groups]`:
//!
//! * `low`: a register per lane if codes have 8 bits, signed; else nibbles, where registers 0 and 1 (2 and 3) share
//!   four bytes;
//! * `high`: bits above a nibble. Fifth bits: 16 per lane, 4 per register. Fifth and sixth: a byte per weight of a register, two
//!   bits for each register;
//! * `scales`: of 16 rows, for each half if halves have their own; then minima likewise. Bytes, or f16 if no f16 factor
//!   stands above them;
//! * `factors`, `[row tiles, groups / 8]`: f16 `d` of 16 rows, then `dmin` likewise.

use demask_compute::quant::{BlockCodes, CodesRow, GROUP, QuantRow};
use demask_compute::{QuantType, Weights};

use crate::kernels::{
    CODES_4100, CODES_4110, CODES_4111, CODES_4201, CODES_4211, CODES_5100, CODES_5110, CODES_5111, CODES_6201,
    CODES_8100, CODES_8101,
};

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Weights of a group.
pub(crate) const K_GROUP: usize = 32;
const LANES: usize = 32;

/// How a type's codes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Stored bits of a code: 4, 5, 6 or 8.
    pub(crate) bits: usize,
    /// Scales per group.
    pub(crate) halves: usize,
    pub(crate) mins: bool,
    /// Scales are integers times an f16 per 8 groups.
    pub(crate) integer: bool,
    /// The module of its kernels.
    pub(crate) module: usize,
    /// Subtracted from stored codes by the kernel.
    pub(crate) offset: u8,
}

/// A packed matrix, still on the host.
#[derive(Default)]
pub(crate) struct Packed {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    pub(crate) scales: Vec<u8>,
    pub(crate) factors: Vec<u8>,
}

impl Form {
    /// The form of a type; `None` for wide types. Codes of 2 and 3 bits take 4, table types 8.
    pub(crate) fn of(quant: &QuantRow) -> Option<Form> {
        let codes = quant.codes.as_ref()?;
        let bits = match (codes.table, codes.bits) {
            (Some(_), _) => 8,
            (None, 2 | 3) => 4,
            (None, bits) => usize::from(bits),
        };
        let (halves, integer) = (K_GROUP / codes.group, quant.block_len > K_GROUP);
        let module = match (bits, halves, codes.has_mins, integer) {
            (4, 1, true, true) => CODES_4111,
            (5, 1, true, true) => CODES_5111,
            (6, 2, false, true) => CODES_6201,
            (8, 1, false, false) => CODES_8100,
            (8, 1, false, true) => CODES_8101,
            (4, 1, false, false) => CODES_4100,
            (4, 1, true, false) => CODES_4110,
            (5, 1, false, false) => CODES_5100,
            (5, 1, true, false) => CODES_5110,
            (4, 2, true, true) => CODES_4211,
            (4, 2, false, true) => CODES_4201,
            other => unreachable!("{} has no kernel for {other:?}", quant.name),
        };
        let offset = if bits == 8 { 0 } else { codes.offset as u8 };
        Some(Form { bits, halves, mins: codes.has_mins, integer, module, offset })
    }

    fn low_bytes(&self) -> usize {
        LANES * if self.bits == 8 { 16 } else { 8 }
    }

    fn high_bytes(&self) -> usize {
        LANES * [0, 2, 4][if self.bits < 8 { self.bits - 4 } else { 0 }]
    }

    fn scale_bytes(&self) -> usize {
        TILE_ROWS * if self.integer { 1 } else { 2 } * self.halves * (1 + usize::from(self.mins))
    }

    fn factor_bytes(&self) -> usize {
        if self.integer { TILE_ROWS * 2 * (1 + usize::from(self.mins)) } else { 0 }
    }

    /// Bytes of each array for a matrix.
    fn lens(&self, rows: usize, cols: usize) -> [usize; 4] {
        let groups = rows.div_ceil(TILE_ROWS) * (cols / K_GROUP);
        [
            groups * self.low_bytes(),
            groups * self.high_bytes(),
            groups * self.scale_bytes(),
            groups / 8 * self.factor_bytes(),
        ]
    }

    /// Packs a matrix, on as many threads as there are processors.
    pub(crate) fn pack(&self, weights: &Weights) -> Packed {
        let quant = weights.ty.row();
        let codes = quant.codes.as_ref().expect("forms are of types with codes");
        let lens = self.lens(weights.rows, weights.cols);
        let mut packed = Packed::default();
        let arrays = [&mut packed.low, &mut packed.high, &mut packed.scales, &mut packed.factors];
        for (array, len) in arrays.into_iter().zip(lens) {
            array.resize(len, 0);
        }
        let tiles = weights.rows.div_ceil(TILE_ROWS);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(tiles.max(1));
        let step = tiles.div_ceil(threads).max(1);
        let bytes: &[u8] = &weights.bytes;
        std::thread::scope(|scope| {
            let mut rest = [&mut packed.low[..], &mut packed.high[..], &mut packed.scales[..], &mut packed.factors[..]];
            for first in (0..tiles).step_by(step) {
                let count = step.min(tiles - first);
                let parts = [0, 1, 2, 3].map(|i| {
                    let (part, tail) = std::mem::take(&mut rest[i]).split_at_mut(lens[i] / tiles * count);
                    rest[i] = tail;
                    part
                });
                scope.spawn(move || self.pack_tiles(weights, bytes, codes, first, count, parts));
            }
        });
        packed
    }

    fn pack_tiles(
        &self,
        weights: &Weights,
        bytes: &[u8],
        codes: &CodesRow,
        first: usize,
        count: usize,
        parts: [&mut [u8]; 4],
    ) {
        let quant = weights.ty.row();
        let (groups, block_groups) = (weights.cols / K_GROUP, quant.block_len / K_GROUP);
        let row_bytes = weights.bytes.len() / weights.rows.max(1);
        let [low, high, scales, factors] = parts;
        let mut view = BlockCodes::ZERO;
        for tile in 0..count {
            let rows = (first + tile) * TILE_ROWS..weights.rows.min((first + tile + 1) * TILE_ROWS);
            for (n, row) in rows.enumerate() {
                let blocks = bytes[row * row_bytes..(row + 1) * row_bytes].chunks_exact(quant.block_bytes);
                for (b, block) in blocks.enumerate() {
                    (codes.read)(block, &mut view);
                    for g in 0..block_groups {
                        let cell = tile * groups + b * block_groups + g;
                        self.put_codes(codes, &view.codes[g * K_GROUP..(g + 1) * K_GROUP], n, cell, low, high);
                        self.put_scales(&view, g, n, &mut scales[cell * self.scale_bytes()..][..self.scale_bytes()]);
                    }
                    if self.integer {
                        let at = (tile * groups / 8 + b) * self.factor_bytes() + 2 * n;
                        factors[at..at + 2].copy_from_slice(&view.d.to_le_bytes());
                        if self.mins {
                            let at = at + 2 * TILE_ROWS;
                            factors[at..at + 2].copy_from_slice(&view.dmin.to_le_bytes());
                        }
                    }
                }
            }
        }
    }

    /// Puts the codes of a group of row `n` of a tile.
    fn put_codes(&self, row: &CodesRow, codes: &[u8], n: usize, cell: usize, low: &mut [u8], high: &mut [u8]) {
        let upper = n / 8;
        let low = &mut low[cell * self.low_bytes()..][..self.low_bytes()];
        let high = &mut high[cell * self.high_bytes()..][..self.high_bytes()];
        for (k, &code) in codes.iter().enumerate() {
            let (half, quarter, byte) = (k / 16, k / 4 % 4, k % 4);
            let (lane, register) = (n % 8 * 4 + quarter, 2 * half + upper);
            if self.bits == 8 {
                let code = row.table.map_or(code, |table| table[usize::from(code)]);
                low[lane * 16 + register * 4 + byte] = (i32::from(code) - row.offset) as i8 as u8;
                continue;
            }
            low[lane * 8 + half * 4 + byte] |= (code & 15) << (4 * upper);
            match self.bits {
                5 => {
                    let bit = 4 * register + byte;
                    high[lane * 2 + bit / 8] |= (code >> 4) << (bit % 8);
                }
                6 => high[lane * 4 + byte] |= (code >> 4) << (2 * register),
                _ => {}
            }
        }
    }

    /// Puts scales and minima of group `g` of a block, for row `n` of a tile.
    fn put_scales(&self, view: &BlockCodes, g: usize, n: usize, out: &mut [u8]) {
        if !self.integer {
            out[2 * n..2 * n + 2].copy_from_slice(&view.d.to_le_bytes());
            if self.mins {
                let at = 2 * (TILE_ROWS + n);
                out[at..at + 2].copy_from_slice(&view.dmin.to_le_bytes());
            }
            return;
        }
        for half in 0..self.halves {
            let at = g * K_GROUP / GROUP + half * (K_GROUP / GROUP / self.halves);
            out[half * TILE_ROWS + n] = view.scales[at] as u8;
            if self.mins {
                out[(self.halves + half) * TILE_ROWS + n] = view.mins[at];
            }
        }
    }
}

/// Bytes that a matrix of a type takes on the device.
pub fn matrix_bytes(ty: QuantType, rows: usize, cols: usize) -> usize {
    match Form::of(ty.row()) {
        Some(form) => form.lens(rows, cols).iter().sum(),
        None => ty.row_bytes(cols).unwrap_or(0) * rows,
    }
}
