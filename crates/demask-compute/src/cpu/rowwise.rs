//! Operations on rows of f32: RMSNorm, the SwiGLU gate, softmax, quantisation.
//!
//! They are plain loops of a shape that compilers vectorise, and every table holds them compiled for its own
//! instruction set. Reductions run in [`LANES`] fixed lanes and products are fused explicitly, so
//! all tables give the same bits.

use super::form::half_to_f32;
use super::head::Partial;
use super::kernels::MAGIC;
use super::operand::OperandWriter;
use std::ops::Range;

/// Running values of a reduction: one 512-bit vector, two of 256 bits.
pub(super) const LANES: usize = 16;

/// The row-wise operations of one table.
pub struct RowKernels {
    /// `out = x / sqrt(mean(x^2) + eps) * weight`.
    pub rms_norm: fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]),
    /// `out = gate / (1 + e^-gate) * up`.
    pub silu_mul: fn(gate: &[f32], up: &[f32], out: &mut [f32]),
    /// `scores = e^(scores * scale - greatest)`; returns their sum.
    pub softmax: fn(scores: &mut [f32], scale: f32, greatest: f32) -> f32,
    /// The greatest value; `-inf` if there is none, NaN ignored.
    pub greatest: fn(values: &[f32]) -> f32,
    /// `values *= factor`.
    pub scale: fn(values: &mut [f32], factor: f32),
    /// f16 bits to f32.
    pub widen_f16: fn(halves: &[u16], out: &mut [f32]),
    /// bf16 bits to f32.
    pub widen_bf16: fn(halves: &[u16], out: &mut [f32]),
    /// Quantises the f32 values of k-groups of a row of an operand.
    pub(super) quantize: fn(writer: &OperandWriter<'_>, row: usize, groups: Range<usize>),
    /// Takes logits of 32 consecutive tokens for several rows: `logits` is `[rows, 32]`, of which `count` are real.
    pub(super) statistics: fn(partials: &mut [Partial], first: u32, logits: &[f32], count: usize, excluded: &[u32]),
}

/// Widens f16 bits.
#[inline(always)]
pub(super) fn widen_f16(halves: &[u16], out: &mut [f32]) {
    for (out, &half) in out.iter_mut().zip(halves) {
        *out = half_to_f32(half);
    }
}

/// Widens bf16 bits.
#[inline(always)]
pub(super) fn widen_bf16(halves: &[u16], out: &mut [f32]) {
    for (out, &half) in out.iter_mut().zip(halves) {
        *out = f32::from_bits(u32::from(half) << 16);
    }
}

#[inline(always)]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut lanes = [0.0f64; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = f64::from(value).mul_add(f64::from(value), *lane);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        *lane = f64::from(value).mul_add(f64::from(value), *lane);
    }
    let square: f64 = lanes.iter().sum();
    let scale = (1.0 / (square / x.len() as f64 + f64::from(eps)).sqrt()) as f32;
    for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[inline(always)]
pub(super) fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp(-gate)) * up;
    }
}

#[inline(always)]
pub(super) fn softmax(scores: &mut [f32], scale: f32, greatest: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, tail) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *score = exp(score.mul_add(scale, -greatest));
            *lane += *score;
        }
    }
    for (lane, score) in lanes.iter_mut().zip(tail) {
        *score = exp(score.mul_add(scale, -greatest));
        *lane += *score;
    }
    sum(&lanes)
}

#[inline(always)]
pub(super) fn greatest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = values.as_chunks::<LANES>();
    let max = |lane: &mut f32, value: f32| *lane = if value > *lane { value } else { *lane };
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            max(lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        max(lane, value);
    }
    lanes.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m })
}

#[inline(always)]
pub(super) fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|v| *v *= factor);
}

/// The sum of all lanes, halves first.
#[inline(always)]
pub(super) fn sum(lanes: &[f32; LANES]) -> f32 {
    let mut lanes = *lanes;
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// `e^x` within 2 units in the last place; 0 below -87, where results would be subnormal, and `e^88` above 88.
///
/// `e^x = 2^n * e^r` with `n` the integer nearest to `x / ln 2`; the polynomial for `|r| <= ln 2 / 2` has the
/// coefficients of Cephes' `expf` (Moshier).
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.0, 88.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, clamped));
    let p = 1.987_569_1e-4f32
        .mul_add(r, 1.398_2e-3)
        .mul_add(r, 8.333_452e-3)
        .mul_add(r, 4.166_579_6e-2)
        .mul_add(r, 0.166_666_66)
        .mul_add(r, 0.5);
    let value = p.mul_add(r * r, r) + 1.0;
    // The low bits of `shifted` are n: move them to the exponent.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.0 { 0.0 } else { value * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let wanted = f64::from(x).exp();
            let error = (f64::from(exp(x)) - wanted).abs() / wanted;
            worst = worst.max(error);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "relative error {worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::INFINITY) > 1e38);
    }
}
