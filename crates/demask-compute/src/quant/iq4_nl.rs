//! IQ4_NL: 32 weights; f16 `d`, then nibbles as in Q4_0 that index a table of 16 unevenly spaced values.
//! weight = d * VALUES[q].

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

/// The values that a nibble stands for.
const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

const CODES: CodesRow = CodesRow {
    bits: 8,
    group: 32,
    offset: 128,
    has_mins: false,
    read,
};

pub(super) const ROW: QuantRow = QuantRow {
    ty: QuantType::Iq4Nl,
    name: "IQ4_NL",
    block_len: 32,
    block_bytes: 18,
    decode,
    codes: Some(CODES),
};

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.scales[..2].fill(1);
    read_nibbles(&block[2..18], &mut view.codes);
}

/// 16 bytes of nibbles (weight i low, i + 16 high) through the table, as codes of offset 128.
pub(super) fn read_nibbles(packed: &[u8], codes: &mut [u8]) {
    for (i, &byte) in packed.iter().enumerate() {
        codes[i] = VALUES[usize::from(byte & 15)] as u8 ^ 0x80;
        codes[i + 16] = VALUES[usize::from(byte >> 4)] as u8 ^ 0x80;
    }
}
