//! Q4_1: 32 weights; f16 `d`, f16 `m`, then nibbles as in Q4_0. weight = d * q + m.

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 4, group: 32, offset: 0, has_mins: true, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q4_1, name: "Q4_1", block_len: 32, block_bytes: 20, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.dmin = -half_at(block, 2); // a minimum is subtracted in the integer view
    view.scales[..2].fill(1);
    view.mins[..2].fill(1);
    for (i, &byte) in block[4..20].iter().enumerate() {
        view.codes[i] = byte & 15;
        view.codes[i + 16] = byte >> 4;
    }
}
