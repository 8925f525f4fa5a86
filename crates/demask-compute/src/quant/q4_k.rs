//! Q4_K: 256 weights in 8 groups of 32; f16 `d`, f16 `dmin`, 12 bytes of 6-bit scales and minima, 128 bytes of
//! nibbles. weight = d * scale * q - dmin * min.
//!
//! Codes: byte j of quarter p (32 bytes each) holds weight 64p + j (low nibble) and 64p + 32 + j (high nibble).

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at, scales_and_mins};

const CODES: CodesRow = CodesRow { bits: 4, group: 32, offset: 0, has_mins: true, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q4K, name: "Q4_K", block_len: 256, block_bytes: 144, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    view.dmin = half_at(block, 2);
    let (scales, mins) = scales_and_mins(&block[4..16]);
    for i in 0..16 {
        view.scales[i] = scales[i / 2] as i8;
        view.mins[i] = mins[i / 2];
    }
    for (p, quarter) in block[16..144].chunks_exact(32).enumerate() {
        for (j, &byte) in quarter.iter().enumerate() {
            view.codes[64 * p + j] = byte & 15;
            view.codes[64 * p + 32 + j] = byte >> 4;
        }
    }
}
