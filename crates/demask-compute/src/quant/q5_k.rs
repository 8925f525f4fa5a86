//! Q5_K: 256 weights in 8 groups of 32; as Q4_K, with 32 bytes of fifth bits before the nibbles: bit s of byte j
//! belongs to weight 32s + j. weight = d * scale * q - dmin * min.

use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at, scales_and_mins};

const CODES: CodesRow = CodesRow { bits: 5, group: 32, offset: 0, has_mins: true, table: None, read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Q5K, name: "Q5_K", block_len: 256, block_bytes: 176, decode, codes: Some(CODES) };

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
    let fifth = &block[16..48];
    for (p, quarter) in block[48..176].chunks_exact(32).enumerate() {
        for (j, &byte) in quarter.iter().enumerate() {
            view.codes[64 * p + j] = (byte & 15) | (fifth[j] >> (2 * p) & 1) << 4;
            view.codes[64 * p + 32 + j] = (byte >> 4) | (fifth[j] >> (2 * p + 1) & 1) << 4;
        }
    }
}
