//! Q2_K: 256 weights in 16 groups; 16 bytes of scale (low nibble) and minimum (high nibble), 64 bytes of 2-bit
//! codes, f16 `d`, f16 `dmin`. weight = d * scale * q - dmin * min.
//!
//! Codes: byte j of half h (32 bytes each) holds weights 128h + 32s + j at bits 2s, s = 0..3.

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 2, group: 16, offset: 0, has_mins: true, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q2K, name: "Q2_K", block_len: 256, block_bytes: 84, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 80);
    view.dmin = half_at(block, 82);
    for (i, &byte) in block[..16].iter().enumerate() {
        view.scales[i] = (byte & 15) as i8;
        view.mins[i] = byte >> 4;
    }
    for (h, codes) in view.codes.chunks_exact_mut(128).enumerate() {
        let packed = &block[16 + 32 * h..48 + 32 * h];
        for (s, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in codes.iter_mut().zip(packed) {
                *code = byte >> (2 * s) & 3;
            }
        }
    }
}
