//! Types with a scale alone: weight = scale * code, codes on both sides of 0.

use super::{code, half_of};

/// f16 scale, then 32 signed bytes.
pub(super) fn q8_0(values: &[f32], block: &mut [u8]) {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    block[0..2].copy_from_slice(&half_of(scale).to_le_bytes());
    for (byte, value) in block[2..34].iter_mut().zip(values) {
        // Away from 0 at ties, as others write it.
        *byte = ((value * inverse).round() as i32).clamp(-127, 127) as i8 as u8;
    }
}

/// f16 scale, the fifth bits of 32 codes, their nibbles; the largest weight gets code -16.
pub(super) fn q5_0(values: &[f32], block: &mut [u8]) {
    let scale = signed_largest(values) / -16.0;
    let inverse = if scale != 0.0 { 1.0 / scale } else { 0.0 };
    block[0..2].copy_from_slice(&half_of(scale).to_le_bytes());
    let mut top = 0u32;
    for j in 0..16 {
        let offset = |value: f32| ((value * inverse + 16.5) as i32).clamp(0, 31) as u32;
        let (first, second) = (offset(values[j]), offset(values[16 + j]));
        block[6 + j] = ((first & 15) | (second & 15) << 4) as u8;
        top |= (first >> 4) << j | (second >> 4) << (16 + j);
    }
    block[2..6].copy_from_slice(&top.to_le_bytes());
}

/// Weights of a group of Q6_K.
const GROUP: usize = 16;

/// Nibbles, top bits, 16 signed scales, f16 scale of the scales.
pub(super) fn q6_k(values: &[f32], block: &mut [u8]) {
    let mut fits = [0.0f32; 16];
    for (group, fit) in values.chunks_exact(GROUP).zip(&mut fits) {
        *fit = best_scale(group);
    }
    let d = half_of(signed_largest(&fits) / -128.0);
    let unit = d.to_f32();
    let mut codes = [32u8; 256];
    for (g, &fit) in fits.iter().enumerate() {
        let scale = if unit == 0.0 { 0 } else { code(fit / unit, -128, 127) };
        block[192 + g] = scale as i8 as u8;
        let scale = unit * scale as f32;
        if scale != 0.0 {
            for (out, &value) in codes[g * GROUP..].iter_mut().zip(&values[g * GROUP..(g + 1) * GROUP]) {
                *out = (code(value / scale, -32, 31) + 32) as u8;
            }
        }
    }
    block[208..210].copy_from_slice(&d.to_le_bytes());
    for h in 0..2 {
        let codes = &codes[128 * h..128 * h + 128];
        for j in 0..32 {
            let of = |quarter: usize| codes[32 * quarter + j];
            block[64 * h + j] = (of(0) & 15) | (of(2) & 15) << 4;
            block[64 * h + 32 + j] = (of(1) & 15) | (of(3) & 15) << 4;
            block[128 + 32 * h + j] = of(0) >> 4 | of(1) >> 4 << 2 | of(2) >> 4 << 4 | of(3) >> 4 << 6;
        }
    }
}

/// The scale of a group with codes from -32 to 31 whose error, a weight counting by its square, is smallest.
fn best_scale(values: &[f32]) -> f32 {
    let largest = signed_largest(values);
    if largest == 0.0 {
        return 0.0;
    }
    let mut best = (f32::NEG_INFINITY, 0.0);
    for step in -9..=9 {
        // Around the scale at which the largest weight gets code -32.
        let inverse = -(32.0 + 0.1 * step as f32) / largest;
        let (mut qx, mut qq) = (0.0f32, 0.0f32);
        for value in values {
            let code = code(inverse * value, -32, 31) as f32;
            let share = value / largest;
            qx += share * share * code * share;
            qq += share * share * code * code;
        }
        // By least squares the scale is qx / qq, and it takes qx * qx / qq off the error.
        let gain = qx * qx / qq;
        if qq > 0.0 && gain > best.0 {
            best = (gain, qx / qq * largest);
        }
    }
    if best.1.is_finite() { best.1 } else { largest / -32.0 }
}

/// The value that is farthest from 0, with its sign.
fn signed_largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest: f32, &value| if value.abs() > largest.abs() { value } else { largest })
}
