//! The weight types: one file and one row of [`QUANT_TYPES`] each.
//!
//! A *quant block* is the unit in which a GGUF tensor row is stored: `block_len` consecutive weights in
//! `block_bytes` bytes. Every type gives two views of a block:
//!
//! * [`QuantRow::decode`], the truth: the weights as f32, as the `gguf` Python package dequantises them;
//! * [`QuantRow::codes`], the integer view that the packed matrices are built from: small unsigned codes with
//!   a scale and a minimum per group, see [`BlockCodes`]. Wide types (F32, F16, BF16) have none.
//!
//! Layouts are those of ggml (`ggml-common.h`, MIT), described again in each file.

mod bf16;
mod encode;
mod f16;
mod f32;
mod iq4_nl;
mod iq4_xs;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;

use half::f16 as Half;

/// Weights that share one scale in the finest types; 32-weight groups are two equal ones.
pub const GROUP: usize = 16;
/// The longest quant block: the super-block of the K-quants.
pub const MAX_BLOCK_LEN: usize = 256;

/// A weight type that matrices can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are ggml's
pub enum QuantType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
}

/// The integer view of one quant block.
///
/// Weight `i` is `d * scales[i / 16] * (codes[i] - offset) - dmin * mins[i / 16]`, with `offset` from the
/// type's row (and the code looked up in its table first, if it has one). Only the first `block_len` codes (and `block_len / 16` scales and mins) are meaningful.
pub struct BlockCodes {
    /// Unsigned codes, below `1 << bits`.
    pub codes: [u8; MAX_BLOCK_LEN],
    /// Integer scale per 16 weights (6-bit or int8 in the K-quants, 1 elsewhere).
    pub scales: [i8; MAX_BLOCK_LEN / GROUP],
    /// Integer minimum per 16 weights.
    pub mins: [u8; MAX_BLOCK_LEN / GROUP],
    /// Scale of the scales.
    pub d: Half,
    /// Scale of the minima; 0 for types without minima.
    pub dmin: Half,
}

impl BlockCodes {
    /// All zero: a block of weights that are 0.
    pub const ZERO: BlockCodes = BlockCodes {
        codes: [0; MAX_BLOCK_LEN],
        scales: [0; MAX_BLOCK_LEN / GROUP],
        mins: [0; MAX_BLOCK_LEN / GROUP],
        d: Half::ZERO,
        dmin: Half::ZERO,
    };
}

/// How a type's integer view looks: what the packed forms are chosen by.
#[derive(Clone, Copy)]
pub struct CodesRow {
    /// Bits of a code: 2 to 6, or 8.
    pub bits: u8,
    /// Weights per scale: 16 or 32.
    pub group: usize,
    /// Subtracted from every code.
    pub offset: i32,
    /// Whether `mins` and `dmin` are used.
    pub has_mins: bool,
    /// What 4-bit codes stand for in the formula, if not themselves.
    pub table: Option<&'static [u8; 16]>,
    /// Reads one quant block (`block_bytes` long) into its integer view.
    pub read: fn(&[u8], &mut BlockCodes),
}

/// What is known of one weight type.
pub struct QuantRow {
    /// The type.
    pub ty: QuantType,
    /// ggml's name of it.
    pub name: &'static str,
    /// Weights per quant block.
    pub block_len: usize,
    /// Bytes per quant block.
    pub block_bytes: usize,
    /// Decodes one quant block (`block_bytes` long) into `block_len` f32 weights.
    pub decode: fn(&[u8], &mut [f32]),
    /// The integer view; `None` for wide types, which are multiplied in f32.
    pub codes: Option<CodesRow>,
}

/// Every weight type that can run.
pub static QUANT_TYPES: &[QuantRow] = &[
    f32::ROW,
    f16::ROW,
    bf16::ROW,
    q8_0::ROW,
    q4_0::ROW,
    q4_1::ROW,
    q5_0::ROW,
    q5_1::ROW,
    q2_k::ROW,
    q3_k::ROW,
    q4_k::ROW,
    q5_k::ROW,
    q6_k::ROW,
    iq4_nl::ROW,
    iq4_xs::ROW,
];

impl QuantType {
    /// The type's row in [`QUANT_TYPES`].
    pub fn row(self) -> &'static QuantRow {
        QUANT_TYPES.iter().find(|row| row.ty == self).expect("every QuantType has a row")
    }

    /// The type with ggml's name `name` (`Q4_K`, `F16`...), if it can run.
    pub fn from_name(name: &str) -> Option<QuantType> {
        QUANT_TYPES.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.ty)
    }

    /// ggml's name of the type.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Bytes of a row of `len` weights; `None` if `len` isn't a whole number of quant blocks.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        let row = self.row();
        len.is_multiple_of(row.block_len).then(|| len / row.block_len * row.block_bytes)
    }

    /// Decodes whole quant blocks: `bytes` into `out`, both exactly as long as the row's block count says.
    ///
    /// # Panics
    /// If the two lengths don't belong together.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let row = self.row();
        assert_eq!(self.row_bytes(out.len()), Some(bytes.len()), "{} bytes for {} weights", row.name, out.len());
        for (block, out) in bytes.chunks_exact(row.block_bytes).zip(out.chunks_exact_mut(row.block_len)) {
            (row.decode)(block, out);
        }
    }
}

/// The f16 at byte `at` of `block`.
fn half_at(block: &[u8], at: usize) -> Half {
    Half::from_le_bytes([block[at], block[at + 1]])
}

/// Decodes through the integer view: the decoder of every type whose formula is exactly [`BlockCodes`]'.
fn decode_codes(row: &CodesRow, block: &[u8], out: &mut [f32]) {
    let mut view = BlockCodes::ZERO;
    (row.read)(block, &mut view);
    let (d, dmin) = (view.d.to_f32(), view.dmin.to_f32());
    for (i, out) in out.iter_mut().enumerate() {
        let code = match row.table {
            Some(table) => table[usize::from(view.codes[i])],
            None => view.codes[i],
        };
        let scale = d * f32::from(view.scales[i / GROUP]);
        *out = scale * (i32::from(code) - row.offset) as f32 - dmin * f32::from(view.mins[i / GROUP]);
    }
}

/// The 6-bit scales and minima of Q4_K and Q5_K: eight of each in 12 bytes.
///
/// Bytes 0-3 hold scales 0-3 in their low 6 bits, bytes 4-7 minima 0-3; bytes 8-11 hold the low 4 bits of scale
/// (low nibble) and minimum (high nibble) 4-7, whose top 2 bits are the top bits of bytes 0-7.
fn scales_and_mins(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for i in 0..4 {
        scales[i] = packed[i] & 63;
        mins[i] = packed[i + 4] & 63;
        scales[i + 4] = (packed[i + 8] & 15) | (packed[i] >> 6) << 4;
        mins[i + 4] = (packed[i + 8] >> 4) | (packed[i + 4] >> 6) << 4;
    }
    (scales, mins)
}

#[cfg(test)]
mod tests;
