//! Q8_0: 32 weights; f16 `d`, then 32 signed bytes. weight = d * q.

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 8, group: 32, offset: 128, has_mins: false, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q8_0, name: "Q8_0", block_len: 32, block_bytes: 34, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.scales[..2].fill(1);
    for (code, &q) in view.codes.iter_mut().zip(&block[2..34]) {
        *code = q ^ 0x80; // two's complement to offset 128
    }
}
