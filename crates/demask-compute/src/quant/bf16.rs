//! BF16: the upper half of an f32, little endian.

use super::{QuantRow, QuantType};

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::BF16, name: "BF16", block_len: 1, block_bytes: 2, decode, codes: None };

fn decode(block: &[u8], out: &mut [f32]) {
    out[0] = half::bf16::from_le_bytes([block[0], block[1]]).to_f32();
}
