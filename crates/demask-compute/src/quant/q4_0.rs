//! Q4_0: 32 weights; f16 `d`, then 16 bytes: weight i in the low nibble of byte i, weight i + 16 in the high one.
//! weight = d * (q - 8).

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 4, group: 32, offset: 8, has_mins: false, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q4_0, name: "Q4_0", block_len: 32, block_bytes: 18, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.scales[..2].fill(1);
    for (i, &byte) in block[2..18].iter().enumerate() {
        view.codes[i] = byte & 15;
        view.codes[i + 16] = byte >> 4;
    }
}
