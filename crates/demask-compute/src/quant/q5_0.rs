//! Q5_0: 32 weights; f16 `d`, u32 of fifth bits (bit i for weight i), then nibbles as in Q4_0.
//! weight = d * (q - 16).

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 5, group: 32, offset: 16, has_mins: false, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q5_0, name: "Q5_0", block_len: 32, block_bytes: 22, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.scales[..2].fill(1);
    read_fives(&block[2..22], &mut view.codes);
}

/// The codes of Q5_0 and Q5_1: four bytes of fifth bits, then 16 bytes of nibbles.
pub(super) fn read_fives(packed: &[u8], codes: &mut [u8]) {
    let fifth = u32::from_le_bytes([packed[0], packed[1], packed[2], packed[3]]);
    for (i, &byte) in packed[4..20].iter().enumerate() {
        codes[i] = (byte & 15) | ((fifth >> i & 1) as u8) << 4;
        codes[i + 16] = (byte >> 4) | ((fifth >> (i + 16) & 1) as u8) << 4;
    }
}
