//! Q3_K: 256 weights in 16 groups; 32 bytes of third bits, 64 bytes of 2-bit codes (as in Q2_K), 12 bytes of
//! 6-bit scales, f16 `d`. weight = d * (scale - 32) * (q - 4).
//!
//! Third bits: bit 4h + s of byte j belongs to weight 128h + 32s + j. Scales: 16 values; the low nibbles of
//! scales 0-7 are the low nibbles of bytes 0-7, of scales 8-15 the high nibbles; the two top bits of scale
//! i are bits 2 * (i / 4) of byte 8 + i % 4.

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 3, group: 16, offset: 4, has_mins: false, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q3K, name: "Q3_K", block_len: 256, block_bytes: 110, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    let (third, low, packed) = (&block[..32], &block[32..96], &block[96..108]);
    view.d = half_at(block, 108);
    for (i, scale) in view.scales.iter_mut().enumerate() {
        let nibble = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let top = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        *scale = (nibble | top << 4) as i8 - 32;
    }
    for (h, codes) in view.codes.chunks_exact_mut(128).enumerate() {
        let low = &low[32 * h..32 * h + 32];
        for (s, codes) in codes.chunks_exact_mut(32).enumerate() {
            for ((code, &byte), &third) in codes.iter_mut().zip(low).zip(third) {
                *code = (byte >> (2 * s) & 3) | (third >> (4 * h + s) & 1) << 2;
            }
        }
    }
}
