//! Q6_K: 256 weights in 16 groups; 128 bytes of low nibbles, 64 bytes of top bits, 16 int8 scales, f16 `d`.
//! weight = d * scale * (q - 32).
//!
//! Half h (128 weights) has 64 bytes of nibbles and 32 of top bits. With j = 0..31: nibble byte j holds weight j
//! (low) and 64 + j (high), byte 32 + j holds 32 + j (low) and 96 + j (high); top-bit byte j holds the two top bits
//! of weights j, 32 + j, 64 + j, 96 + j at bits 0, 2, 4, 6.

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 6, group: 16, offset: 32, has_mins: false, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q6K, name: "Q6_K", block_len: 256, block_bytes: 210, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 208);
    for (scale, &byte) in view.scales.iter_mut().zip(&block[192..208]) {
        *scale = byte as i8;
    }
    for h in 0..2 {
        let (low, top) = (&block[64 * h..64 * h + 64], &block[128 + 32 * h..160 + 32 * h]);
        let codes = &mut view.codes[128 * h..128 * h + 128];
        for j in 0..32 {
            codes[j] = (low[j] & 15) | (top[j] & 3) << 4;
            codes[32 + j] = (low[32 + j] & 15) | (top[j] >> 2 & 3) << 4;
            codes[64 + j] = (low[j] >> 4) | (top[j] >> 4 & 3) << 4;
            codes[96 + j] = (low[32 + j] >> 4) | (top[j] >> 6) << 4;
        }
    }
}
