//! Types with a scale and a minimum: weight = scale * code - minimum, the minimum not below 0.

use super::{code, half_of};

/// Weights of a group.
const GROUP: usize = 32;
/// Groups of a K-quant block.
const GROUPS: usize = 8;

/// How scales are searched for: the code span from `most + first` on, in steps of 0.1.
struct Search {
    most: i32,
    first: f32,
    steps: usize,
}

/// A group's scale and minimum.
#[derive(Clone, Copy, Default)]
struct Fit {
    scale: f32,
    min: f32,
}

pub(super) fn q4_k(values: &[f32], block: &mut [u8]) {
    let codes = k_block(values, block, &Search { most: 15, first: -1.0, steps: 21 });
    // 32 bytes hold two groups: the first in the low nibbles, the second in the high ones.
    for (pair, bytes) in codes.chunks_exact(2 * GROUP).zip(block[16..144].chunks_exact_mut(GROUP)) {
        for (j, byte) in bytes.iter_mut().enumerate() {
            *byte = pair[j] | pair[GROUP + j] << 4;
        }
    }
}

pub(super) fn q5_k(values: &[f32], block: &mut [u8]) {
    let codes = k_block(values, block, &Search { most: 31, first: -0.5, steps: 16 });
    let (top, low) = block[16..176].split_at_mut(GROUP);
    top.fill(0);
    for (pair, (both, bytes)) in codes.chunks_exact(2 * GROUP).zip(low.chunks_exact_mut(GROUP)).enumerate() {
        for (j, byte) in bytes.iter_mut().enumerate() {
            let (first, second) = (both[j], both[GROUP + j]);
            *byte = (first & 15) | (second & 15) << 4;
            top[j] |= (first >> 4) << (2 * pair) | (second >> 4) << (2 * pair + 1);
        }
    }
}

/// f16 scale, f16 minimum, the fifth bits of 32 codes, their nibbles.
pub(super) fn q5_1(values: &[f32], block: &mut [u8]) {
    let (least, most) = bounds(values);
    let scale = (most - least) / 31.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    block[0..2].copy_from_slice(&half_of(scale).to_le_bytes());
    block[2..4].copy_from_slice(&half_of(least).to_le_bytes());
    let mut top = 0u32;
    for j in 0..16 {
        let first = code((values[j] - least) * inverse, 0, 31) as u32;
        let second = code((values[16 + j] - least) * inverse, 0, 31) as u32;
        block[8 + j] = ((first & 15) | (second & 15) << 4) as u8;
        top |= (first >> 4) << j | (second >> 4) << (16 + j);
    }
    block[4..8].copy_from_slice(&top.to_le_bytes());
}

/// Chooses scales and minima of all groups, writes the block's first 16 bytes, and returns the codes.
fn k_block(values: &[f32], block: &mut [u8], search: &Search) -> [u8; GROUP * GROUPS] {
    let mut fits = [Fit::default(); GROUPS];
    for (group, fit) in values.chunks_exact(GROUP).zip(&mut fits) {
        *fit = best_fit(group, search);
    }
    let largest = |of: fn(&Fit) -> f32| fits.iter().map(of).fold(0.0, f32::max);
    let (d, dmin) = (half_of(largest(|fit| fit.scale) / 63.0), half_of(largest(|fit| fit.min) / 63.0));
    block[0..2].copy_from_slice(&d.to_le_bytes());
    block[2..4].copy_from_slice(&dmin.to_le_bytes());
    let (d, dmin) = (d.to_f32(), dmin.to_f32());
    let six_bits = |value: f32, unit: f32| if unit > 0.0 { code(value / unit, 0, 63) as u8 } else { 0 };
    let (mut scales, mut mins) = ([0u8; GROUPS], [0u8; GROUPS]);
    let mut codes = [0u8; GROUP * GROUPS];
    for (g, fit) in fits.iter().enumerate() {
        (scales[g], mins[g]) = (six_bits(fit.scale, d), six_bits(fit.min, dmin));
        // The codes for the scale and the minimum that are left after rounding.
        let (scale, min) = (d * f32::from(scales[g]), dmin * f32::from(mins[g]));
        if scale > 0.0 {
            for (out, &value) in codes[g * GROUP..].iter_mut().zip(&values[g * GROUP..(g + 1) * GROUP]) {
                *out = code((value + min) / scale, 0, search.most) as u8;
            }
        }
    }
    pack_scales(&scales, &mins, &mut block[4..16]);
    codes
}

/// The inverse of [`scales_and_mins`](crate::quant::scales_and_mins).
fn pack_scales(scales: &[u8; GROUPS], mins: &[u8; GROUPS], packed: &mut [u8]) {
    for i in 0..4 {
        packed[i] = scales[i] | (scales[i + 4] >> 4) << 6;
        packed[i + 4] = mins[i] | (mins[i + 4] >> 4) << 6;
        packed[i + 8] = (scales[i + 4] & 15) | (mins[i + 4] & 15) << 4;
    }
}

/// Scale and minimum with the smallest error, a weight counting by its size beside the group's.
fn best_fit(values: &[f32], search: &Search) -> Fit {
    let (least, most) = bounds(values);
    let least = least.min(0.0);
    let span = most - least;
    if !(span > 0.0 && span.is_finite()) {
        // All equal (and not above 0), or beyond what f32 can tell apart.
        return Fit { scale: 0.0, min: if span == 0.0 { -least } else { 0.0 } };
    }
    let rms = (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
    let rms = if rms.is_finite() { rms } else { span };
    let mut importance = [0.0f32; GROUP];
    for (importance, value) in importance.iter_mut().zip(values) {
        *importance = (rms + value.abs()) / (rms + span);
    }
    // Sums that no candidate changes.
    let mut sums = (0.0f32, 0.0f32);
    for (value, weight) in values.iter().zip(&importance) {
        sums = (sums.0 + weight, sums.1 + weight * value);
    }
    let plain = Fit { scale: span / search.most as f32, min: -least };
    let mut best = (error(values, &importance, plain, 1.0 / plain.scale, least, search.most), plain);
    for step in 0..search.steps {
        let inverse = (search.first + 0.1 * step as f32 + search.most as f32) / span;
        let fit = least_squares(values, &importance, sums, inverse, least, search.most);
        if let Some(fit) = fit {
            let error = error(values, &importance, fit, inverse, least, search.most);
            if error < best.0 {
                best = (error, fit);
            }
        }
    }
    best.1
}

/// The best scale and minimum for the codes that `inverse` gives.
fn least_squares(
    values: &[f32],
    importance: &[f32],
    (weights, weighted): (f32, f32),
    inverse: f32,
    least: f32,
    most: i32,
) -> Option<Fit> {
    let (mut q, mut qq, mut qx) = (0.0f32, 0.0f32, 0.0f32);
    for (value, weight) in values.iter().zip(importance) {
        let code = code(inverse * (value - least), 0, most) as f32;
        q += weight * code;
        qq += weight * code * code;
        qx += weight * code * value;
    }
    let determinant = weights * qq - q * q;
    if determinant <= 0.0 {
        return None;
    }
    let scale = (weights * qx - weighted * q) / determinant;
    let offset = (qq * weighted - q * qx) / determinant;
    // The format has no positive offset: the best without one.
    let (scale, offset) = if offset > 0.0 { (qx / qq, 0.0) } else { (scale, offset) };
    (scale > 0.0 && scale.is_finite() && offset.is_finite()).then_some(Fit { scale, min: -offset })
}

/// The weighted squared error of a fit with the codes that `inverse` gives.
fn error(values: &[f32], importance: &[f32], fit: Fit, inverse: f32, least: f32, most: i32) -> f32 {
    let mut sum = 0.0;
    for (value, weight) in values.iter().zip(importance) {
        let code = code(inverse * (value - least), 0, most) as f32;
        let difference = fit.scale * code - fit.min - value;
        sum += weight * difference * difference;
    }
    sum
}

fn bounds(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), &v| (least.min(v), most.max(v)))
}
