//! Activation quantisation on 256-bit registers: [`super::super::operand::quantize_groups`], step by step.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::kernels::{K_GROUP, MAGIC};
use super::super::operand::{OperandWriter, PEAKS, Quantised, each_group};

/// A group of 32 values. Lane i of the portable code's 16 lanes is lane i of the registers 0 and 2 or lane i - 8 of
/// the registers 1 and 3.
type Group = [__m256; 4];

pub(super) fn quantize_groups(writer: &OperandWriter<'_>, row: usize, groups: Range<usize>) {
    // SAFETY: every table here is handed out only where AVX2 and FMA were detected.
    unsafe { quantize(writer, row, groups) }
}

#[target_feature(enable = "avx2,fma")]
fn quantize(writer: &OperandWriter<'_>, row: usize, groups: Range<usize>) {
    each_group(writer, row, groups, |group| group_codes(group));
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn group_codes(values: &[f32; K_GROUP]) -> Quantised {
    let mut group = [_mm256_setzero_ps(); 4];
    for (register, values) in group.iter_mut().zip(values.as_chunks::<8>().0) {
        // SAFETY: 8 values.
        *register = unsafe { _mm256_loadu_ps(values.as_ptr()) };
    }
    let greatest = magnitude(&group);
    let inverses = [PEAKS[0] / greatest, PEAKS[1] / greatest];
    let inverses = if inverses[0].is_finite() { inverses } else { [0.0; 2] };
    let (first, second) = (fit(&group, inverses[0]), fit(&group, inverses[1]));
    let explained = |(product, square): (f32, f32), peak: f32| product * product / (square * (peak * peak));
    let (peak, inverse, (product, square)) = if explained(second, PEAKS[1]) > explained(first, PEAKS[0]) {
        (PEAKS[1], inverses[1], second)
    } else {
        (PEAKS[0], inverses[0], first)
    };
    let magic = _mm256_set1_ps(MAGIC);
    let inverse = _mm256_set1_ps(inverse);
    let mut steps = [magic; 4];
    let mut integers = [_mm256_setzero_si256(); 4];
    for i in 0..4 {
        let shifted = _mm256_fmadd_ps(group[i], inverse, magic);
        steps[i] = _mm256_sub_ps(shifted, magic);
        integers[i] = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(magic));
    }
    let narrow =
        _mm256_packs_epi16(_mm256_packs_epi32(integers[0], integers[1]), _mm256_packs_epi32(integers[2], integers[3]));
    // Packing works within 128-bit halves: put the quads back in order.
    let narrow = _mm256_permutevar8x32_epi32(narrow, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    let mut codes = [0; K_GROUP];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), narrow) };
    let sums = [sum(steps[0], steps[1]), sum(steps[2], steps[3])];
    Quantised { codes, greatest, peak, product, square, sums }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn magnitude(group: &Group) -> f32 {
    let mask = _mm256_set1_epi32(0x7fff_ffff);
    let mut lanes = _mm256_setzero_si256();
    for &values in group {
        lanes = _mm256_max_epi32(lanes, _mm256_and_si256(_mm256_castps_si256(values), mask));
    }
    let four = _mm_max_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b_01_00_11_10>(four));
    let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b_10_11_00_01>(two));
    f32::from_bits(_mm_cvtsi128_si32(one) as u32)
}

/// `sum(v q)` and `sum(q^2)`, with v in steps.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn fit(group: &Group, inverse: f32) -> (f32, f32) {
    let (magic, inverse) = (_mm256_set1_ps(MAGIC), _mm256_set1_ps(inverse));
    let (mut product, mut square) = ([_mm256_setzero_ps(); 2], [_mm256_setzero_ps(); 2]);
    for i in 0..4 {
        let steps = _mm256_sub_ps(_mm256_fmadd_ps(group[i], inverse, magic), magic);
        product[i % 2] = _mm256_fmadd_ps(_mm256_mul_ps(group[i], inverse), steps, product[i % 2]);
        square[i % 2] = _mm256_fmadd_ps(steps, steps, square[i % 2]);
    }
    (sum(product[0], product[1]), sum(square[0], square[1]))
}

/// The sum of 16 lanes, halves first.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum(low: __m256, high: __m256) -> f32 {
    let eight = _mm256_add_ps(low, high);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}
