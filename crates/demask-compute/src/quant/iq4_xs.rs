//! IQ4_XS: 256 weights in 8 groups of 32; f16 `d`, u16 with the top two bits of eight scales, 4 bytes with their low
//! nibbles, 128 bytes of nibbles (16 per group, as in IQ4_NL). weight = d * (scale - 32) * (TABLE[q] - 128).

use super::iq4_nl::{TABLE, read_nibbles};
use super::{BlockCodes, CodesRow, QuantRow, QuantType, decode_codes, half_at};

const CODES: CodesRow = CodesRow { bits: 4, group: 32, offset: 128, has_mins: false, table: Some(&TABLE), read };

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::Iq4Xs, name: "IQ4_XS", block_len: 256, block_bytes: 136, decode, codes: Some(CODES) };

fn decode(block: &[u8], out: &mut [f32]) {
    decode_codes(&CODES, block, out);
}

fn read(block: &[u8], view: &mut BlockCodes) {
    view.d = half_at(block, 0);
    let top = u16::from_le_bytes([block[2], block[3]]);
    for g in 0..8 {
        let low = block[4 + g / 2] >> (4 * (g % 2)) & 15;
        let scale = (low | ((top >> (2 * g) & 3) as u8) << 4) as i8 - 32;
        view.scales[2 * g..2 * g + 2].fill(scale);
        read_nibbles(&block[8 + 16 * g..24 + 16 * g], &mut view.codes[32 * g..32 * g + 32]);
    }
}
