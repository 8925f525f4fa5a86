//! Codes out of their bit planes (see [`super::super::form`]), and scales, a register at a time.

use std::arch::x86_64::*;

use super::super::form::{CodesForm, Factors};
use super::super::kernels::{GROUP_CODES, PANEL_ROWS};

/// Bytes of a chunk or quad.
const QUAD: usize = 4 * PANEL_ROWS;

/// Defines `$name(form, planes, codes)`, which unpacks one k-group: its codes, through the form's table if it has one.
macro_rules! unpack_group {
    (
        $name:ident, $quads:ident, $features:literal, $bytes:literal,
        $load:ident, $store:ident, $set:ident, $and:ident, $or:ident, $right:ident, $left:ident,
        $shuffle:ident, $spread:ident
    ) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name(form: &CodesForm, planes: &[u8], codes: &mut [u8]) {
            match (form.bits, form.table) {
                (2, _) => $quads::<2, false>(None, planes, codes),
                (3, _) => $quads::<3, false>(None, planes, codes),
                (4, None) => $quads::<4, false>(None, planes, codes),
                (4, table) => $quads::<4, true>(table, planes, codes),
                (5, _) => $quads::<5, false>(None, planes, codes),
                (6, _) => $quads::<6, false>(None, planes, codes),
                _ => $quads::<8, false>(None, planes, codes),
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn $quads<const BITS: usize, const TABLE: bool>(table: Option<&[u8; 16]>, planes: &[u8], codes: &mut [u8]) {
            assert!(planes.len() >= BITS * QUAD && codes.len() >= GROUP_CODES);
            let shift = |n: usize| _mm_cvtsi32_si128(n as i32);
            // SAFETY: 16 bytes.
            let table = table.map(|t| $spread(unsafe { _mm_loadu_si128(t.as_ptr().cast()) }));
            // Where the 4-bit, 2-bit and 1-bit planes begin.
            let (two_at, one_at) = match BITS {
                2 => (0, 0),
                3 => (0, 2 * QUAD),
                _ => (4 * QUAD, 4 * QUAD),
            };
            for q in 0..8 {
                for at in (0..QUAD).step_by($bytes) {
                    // SAFETY: plane chunks and quads are `QUAD` bytes long and inside the slices by the assertion.
                    unsafe {
                        let load = |chunk: usize| $load(planes.as_ptr().add(chunk + at).cast());
                        let nibble = |q: usize| $and($right(load(q % 4 * QUAD), shift(q / 4 * 4)), $set(15));
                        let two = |q: usize, up: usize| {
                            let low = $and($right(load(two_at + q % 2 * QUAD), shift(q / 2 * 2)), $set(3));
                            $left(low, shift(up))
                        };
                        let one = |q: usize, up: usize| $left($and($right(load(one_at), shift(q)), $set(1)), shift(up));
                        let code = match BITS {
                            2 => two(q, 0),
                            3 => $or(two(q, 0), one(q, 2)),
                            4 => nibble(q),
                            5 => $or(nibble(q), one(q, 4)),
                            6 => $or(nibble(q), two(q, 4)),
                            _ => load(q * QUAD),
                        };
                        let code = match table {
                            Some(table) if TABLE => $shuffle(table, code),
                            _ => code,
                        };
                        let out = codes.as_mut_ptr().add(q * QUAD + at);
                        $store(out.cast(), code);
                    }
                }
            }
        }
    };
}

unpack_group!(
    group_avx2,
    quads_avx2,
    "avx2",
    32,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi8,
    _mm256_and_si256,
    _mm256_or_si256,
    _mm256_srl_epi16,
    _mm256_sll_epi16,
    _mm256_shuffle_epi8,
    _mm256_broadcastsi128_si256
);
unpack_group!(
    group_avx512,
    quads_avx512,
    "avx512f,avx512bw",
    64,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi8,
    _mm512_and_si512,
    _mm512_or_si512,
    _mm512_srl_epi16,
    _mm512_sll_epi16,
    _mm512_shuffle_epi8,
    _mm512_broadcast_i32x4
);

/// Codes of a k-group less `offset` in 16 bits: of each quad first weights 0 and 2 of every row, then weights 1 and 3.
#[target_feature(enable = "avx2")]
pub(super) fn widen_signed(codes: &[u8; GROUP_CODES], offset: u8, out: &mut [u8]) {
    let offset = _mm256_set1_epi8(offset as i8);
    assert!(out.len() >= 2 * GROUP_CODES);
    for (quad, out) in codes.chunks_exact(QUAD).zip(out.chunks_exact_mut(2 * QUAD)) {
        for at in (0..QUAD).step_by(32) {
            // SAFETY: 32 bytes from `at` on are inside the quad, and inside both halves of `out`.
            unsafe {
                let codes = _mm256_sub_epi8(_mm256_loadu_si256(quad.as_ptr().add(at).cast()), offset);
                let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(codes));
                _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), even);
                _mm256_storeu_si256(out.as_mut_ptr().add(QUAD + at).cast(), _mm256_srai_epi16::<8>(codes));
            }
        }
    }
}

/// [`super::super::form::multiply`]: left to itself the compiler does it number by number.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn multiply(factors: &Factors, integers: &[u8; PANEL_ROWS], signed: bool, out: &mut Factors) {
    for at in (0..PANEL_ROWS).step_by(8) {
        // SAFETY: 8 numbers from `at` on are inside all three.
        unsafe {
            let eight = _mm_loadl_epi64(integers.as_ptr().add(at).cast());
            let eight = if signed { _mm256_cvtepi8_epi32(eight) } else { _mm256_cvtepu8_epi32(eight) };
            let product = _mm256_mul_ps(_mm256_loadu_ps(factors.as_ptr().add(at)), _mm256_cvtepi32_ps(eight));
            _mm256_storeu_ps(out.as_mut_ptr().add(at), product);
        }
    }
}
