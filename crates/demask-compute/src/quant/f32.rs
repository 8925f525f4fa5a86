//! F32: plain little-endian floats.

use super::{QuantRow, QuantType};

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::F32, name: "F32", block_len: 1, block_bytes: 4, decode, codes: None };

fn decode(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}
