//! Packing of the two types that most weights of a model have, a register at a time: loading a model should cost little
//! more than copying it. Everything else goes through [`super::super::form::pack_units`], which also is the truth that
//! tests hold this against.

use std::arch::x86_64::*;

use super::super::form::CodesForm;
use super::super::kernels::PANEL_ROWS;
use crate::quant::QuantType;

/// Bytes of a chunk: 4 weights of 32 rows.
const CHUNK: usize = 4 * PANEL_ROWS;
/// Rows whose words are transposed at a time.
const EIGHT: usize = 8;

/// Packs all quant blocks of 32 rows, if there is a function for the type.
#[target_feature(enable = "avx2")]
pub(super) fn pack_panel(form: &CodesForm, rows: &[&[u8]], units: &mut [u8]) -> bool {
    let [codes, scales, mins, d, _] = form.part_lens();
    let block = match form.ty {
        QuantType::Q4K => 144,
        QuantType::Q6K => 210,
        _ => return false,
    };
    let blocks = units.len() / form.unit_bytes;
    if rows.len() != PANEL_ROWS {
        return false;
    }
    assert!(rows.iter().all(|row| row.len() >= blocks * block), "rows have a block per unit");
    for (index, unit) in units.chunks_exact_mut(form.unit_bytes).enumerate() {
        let (codes, rest) = unit.split_at_mut(codes);
        let (scales, rest) = rest.split_at_mut(scales);
        let (mins, rest) = rest.split_at_mut(mins);
        let (d, dmin) = rest.split_at_mut(d);
        for first in (0..PANEL_ROWS).step_by(EIGHT) {
            // Plain loops here and below: what iterators are made of isn't always compiled into a kernel.
            let mut blocks: [&[u8]; EIGHT] = [&[]; EIGHT];
            for n in 0..EIGHT {
                blocks[n] = &rows[first + n][index * block..(index + 1) * block];
            }
            match form.ty {
                QuantType::Q4K => q4_k(&blocks, first, codes, scales, mins, d, dmin),
                _ => q6_k(&blocks, first, codes, scales, d),
            }
        }
    }
    true
}

/// 32 bytes from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8], at: usize) -> __m256i {
    let bytes = &bytes[at..at + 32];
    // SAFETY: 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Of 32 weights in the low nibbles and 32 in the high ones: four words with quad c in the low and quad c + 4 in the high
/// nibbles, for the former and for the latter.
#[inline]
#[target_feature(enable = "avx2")]
fn nibble_words(bytes: __m256i) -> __m256i {
    let low = _mm256_permute2x128_si256::<0x00>(bytes, bytes);
    let high = _mm256_permute2x128_si256::<0x11>(bytes, bytes);
    let low = _mm256_srlv_epi32(low, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    let high = _mm256_sllv_epi32(high, _mm256_setr_epi32(4, 4, 4, 4, 0, 0, 0, 0));
    let mask = _mm256_set1_epi8(15);
    _mm256_or_si256(_mm256_and_si256(low, mask), _mm256_andnot_si256(mask, high))
}

/// Four chunks from `first` on and four from `second` on.
#[inline(always)]
fn consecutive(first: usize, second: usize) -> [usize; EIGHT] {
    [first, first + 1, first + 2, first + 3, second, second + 1, second + 2, second + 3]
}

/// Writes word w of eight rows to chunk `chunks[w]`, from row `first` on.
#[inline]
#[target_feature(enable = "avx2")]
fn store_words(rows: [__m256i; EIGHT], first: usize, chunks: [usize; EIGHT], codes: &mut [u8]) {
    let [a, b, c, d, e, f, g, h] = rows;
    let pairs = [
        (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)),
        (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d)),
        (_mm256_unpacklo_epi32(e, f), _mm256_unpackhi_epi32(e, f)),
        (_mm256_unpacklo_epi32(g, h), _mm256_unpackhi_epi32(g, h)),
    ];
    // Words w and w + 4 of four rows, for w = 0, 1, 2, 3.
    let four = |x: (__m256i, __m256i), y: (__m256i, __m256i)| {
        [
            _mm256_unpacklo_epi64(x.0, y.0),
            _mm256_unpackhi_epi64(x.0, y.0),
            _mm256_unpacklo_epi64(x.1, y.1),
            _mm256_unpackhi_epi64(x.1, y.1),
        ]
    };
    let (upper, lower) = (four(pairs[0], pairs[1]), four(pairs[2], pairs[3]));
    for w in 0..4 {
        store(_mm256_permute2x128_si256::<0x20>(upper[w], lower[w]), chunks[w] * CHUNK + 4 * first, codes);
        store(_mm256_permute2x128_si256::<0x31>(upper[w], lower[w]), chunks[w + 4] * CHUNK + 4 * first, codes);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(value: __m256i, at: usize, out: &mut [u8]) {
    let out = &mut out[at..at + 32];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn q4_k(
    rows: &[&[u8]; EIGHT],
    first: usize,
    codes: &mut [u8],
    scales: &mut [u8],
    mins: &mut [u8],
    d: &mut [u8],
    dmin: &mut [u8],
) {
    for quarter in 0..4 {
        let mut words = [_mm256_setzero_si256(); EIGHT];
        for n in 0..EIGHT {
            words[n] = nibble_words(load(rows[n], 16 + 32 * quarter));
        }
        // Two k-groups of four chunks.
        let chunk = 8 * quarter;
        store_words(words, first, consecutive(chunk, chunk + 4), codes);
    }
    for n in 0..EIGHT {
        let (row, at) = (rows[n], first + n);
        let word = |i: usize| u32::from_le_bytes([row[i], row[i + 1], row[i + 2], row[i + 3]]);
        let (a, b, c) = (word(4), word(8), word(12));
        let top = |word: u32| (word >> 6 & 0x0303_0303) << 4;
        let both = [[a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | top(a)], [b & 0x3f3f_3f3f, (c >> 4 & 0x0f0f_0f0f) | top(b)]];
        for i in 0..8 {
            scales[i * PANEL_ROWS + at] = (both[0][i / 4] >> (i % 4 * 8)) as u8;
            mins[i * PANEL_ROWS + at] = (both[1][i / 4] >> (i % 4 * 8)) as u8;
        }
        (d[2 * at], d[2 * at + 1]) = (row[0], row[1]);
        (dmin[2 * at], dmin[2 * at + 1]) = (row[2], row[3]);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn q6_k(rows: &[&[u8]; EIGHT], first: usize, codes: &mut [u8], scales: &mut [u8], d: &mut [u8]) {
    for half in 0..2 {
        let mut words = [[_mm256_setzero_si256(); EIGHT]; 3];
        for n in 0..EIGHT {
            words[0][n] = nibble_words(load(rows[n], 64 * half));
            words[1][n] = nibble_words(load(rows[n], 64 * half + 32));
            words[2][n] = top_words(load(rows[n], 128 + 32 * half));
        }
        // Six chunks per k-group: four of nibbles, two of top bits.
        let group = |g: usize| 6 * (4 * half + g);
        store_words(words[0], first, consecutive(group(0), group(2)), codes);
        store_words(words[1], first, consecutive(group(1), group(3)), codes);
        let mut tops = [0; EIGHT];
        for w in 0..EIGHT {
            tops[w] = group(w / 2) + 4 + w % 2;
        }
        store_words(words[2], first, tops, codes);
    }
    for n in 0..EIGHT {
        let (row, at) = (rows[n], first + n);
        for i in 0..16 {
            scales[i * PANEL_ROWS + at] = row[192 + i];
        }
        (d[2 * at], d[2 * at + 1]) = (row[208], row[209]);
    }
}

/// Of 32 bytes with the top bits of weights j, 32 + j, 64 + j and 96 + j at bits 0, 2, 4 and 6: two words for each of the
/// four k-groups, word c with quads c, c + 2, c + 4, c + 6 from the lowest bits up.
#[inline]
#[target_feature(enable = "avx2")]
fn top_words(bytes: __m256i) -> __m256i {
    let (mask, shifts) = (_mm256_set1_epi8(3), _mm256_setr_epi64x(0, 2, 4, 6));
    let pair = |quads: __m256i| _mm256_and_si256(_mm256_srlv_epi64(quads, shifts), mask);
    let first = pair(_mm256_permute4x64_epi64::<0x00>(bytes));
    let second = _mm256_slli_epi64::<2>(pair(_mm256_permute4x64_epi64::<0x55>(bytes)));
    let third = _mm256_slli_epi64::<4>(pair(_mm256_permute4x64_epi64::<0xaa>(bytes)));
    let fourth = _mm256_slli_epi64::<6>(pair(_mm256_permute4x64_epi64::<0xff>(bytes)));
    _mm256_or_si256(_mm256_or_si256(first, second), _mm256_or_si256(third, fourth))
}
