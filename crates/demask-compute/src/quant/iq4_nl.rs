//! IQ4_NL: 32 weights; f16 `d`, then nibbles as in Q4_0 that index a table of 16 unevenly spaced values.
//! weight = d * (TABLE[q] - 128).

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

/// The values that a nibble stands for, plus the offset 128: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53,
/// 69, 89, 113.
pub(super) const TABLE: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

const CODES: CodesRow = CodesRow { bits: 4, group: 32, offset: 128, has_mins: false, table: Some(&TABLE), read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Iq4Nl, name: "IQ4_NL", block_len: 32, block_bytes: 18, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.scales[..2].fill(1);
    read_nibbles(&block[2..18], &mut view.codes);
}

/// 16 bytes of nibbles: weight i in the low nibble of byte i, weight i + 16 in the high one.
pub(super) fn read_nibbles(packed: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((low, high), &byte) in low.iter_mut().zip(high).zip(packed) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}
