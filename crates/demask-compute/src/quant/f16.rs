//! F16: IEEE half precision, little endian.

use super::{QuantRow, QuantType, half_at};

pub(super) const ROW: QuantRow =
    QuantRow { ty: QuantType::F16, name: "F16", block_len: 1, block_bytes: 2, decode, codes: None };

fn decode(block: &[u8], out: &mut [f32]) {
    out[0] = half_at(block, 0).to_f32();
}
