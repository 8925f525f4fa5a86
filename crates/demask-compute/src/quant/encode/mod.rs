//! The way back: f32 weights into quant blocks, for the types that `demask quantize` writes.
//!
//! A block is chosen by search: candidates of scale (and minimum), each with the codes that rounding gives and then the
//! best scale for those codes by least squares; the candidate with the smallest weighted error wins. Like llama.cpp's
//! quantiser, large weights count more; the fixtures hold its error per tensor, and ours must not be above it.

mod affine;
mod symmetric;

use half::f16 as Half;

use super::QuantType;

/// Encodes one quant block: exactly `block_len` weights into `block_bytes` bytes.
type Encode = fn(&[f32], &mut [u8]);

/// Every type that can be written.
static ENCODERS: &[(QuantType, Encode)] = &[
    (QuantType::F32, f32),
    (QuantType::F16, f16),
    (QuantType::BF16, bf16),
    (QuantType::Q8_0, symmetric::q8_0),
    (QuantType::Q5_0, symmetric::q5_0),
    (QuantType::Q5_1, affine::q5_1),
    (QuantType::Q4K, affine::q4_k),
    (QuantType::Q5K, affine::q5_k),
    (QuantType::Q6K, symmetric::q6_k),
];

impl QuantType {
    /// Whether [`QuantType::encode`] knows the type.
    pub fn can_encode(self) -> bool {
        ENCODERS.iter().any(|(ty, _)| *ty == self)
    }

    /// Encodes whole quant blocks: `values` into `out`, both exactly as long as the block count says. Values must be
    /// finite; what is beyond the range of the type's scales is clamped to it.
    ///
    /// # Panics
    /// If the two lengths don't belong together, or the type can't be written.
    pub fn encode(self, values: &[f32], out: &mut [u8]) {
        let row = self.row();
        let (_, encode) = ENCODERS.iter().find(|(ty, _)| *ty == self).expect("a type that can be written");
        assert_eq!(self.row_bytes(values.len()), Some(out.len()), "{} weights as {}", values.len(), row.name);
        for (values, block) in values.chunks_exact(row.block_len).zip(out.chunks_exact_mut(row.block_bytes)) {
            encode(values, block);
        }
    }
}

fn f32(values: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&values[0].to_le_bytes());
}

fn f16(values: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&half_of(values[0]).to_le_bytes());
}

fn bf16(values: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&half::bf16::from_f32(values[0]).to_le_bytes());
}

/// The nearest f16 that is finite: an infinite scale would make a block of NaN.
fn half_of(value: f32) -> Half {
    let limit = Half::MAX.to_f32();
    Half::from_f32(value.clamp(-limit, limit))
}

/// The nearest code from `least` to `most`.
fn code(value: f32, least: i32, most: i32) -> i32 {
    // NaN (0 times infinity) becomes 0.
    (value.round_ties_even() as i32).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole blocks of every type, and many: the error of one block of 32 is that of its largest weight. (llama.cpp's Q5_0
    /// has 0.024 to 0.064 on these blocks, 0.042 over all.)
    const WEIGHTS: usize = 1 << 14;

    /// Weights as they are in models: many small, few large, and edge cases.
    fn cases(len: usize) -> Vec<Vec<f32>> {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let mut cases: Vec<Vec<f32>> = vec![
            vec![0.0; len],
            vec![1.0; len],
            vec![-3.5; len],
            vec![1e-30; len],
            vec![3e38; len],
            (0..len).map(|i| if i == 7 { 1000.0 } else { 0.0 }).collect(),
            (0..len).map(|i| i as f32).collect(),
            (0..len).map(|i| -(i as f32)).collect(),
            (0..len).map(|i| if i % 2 == 0 { 3e38 } else { -3e38 }).collect(),
        ];
        for scale in [1e-3, 1.0, 1e4] {
            // Twelve uniform numbers are close to a normal one.
            cases.push((0..len).map(|_| (0..12).map(|_| random()).sum::<f32>() * scale).collect());
        }
        cases
    }

    #[test]
    fn encoded_weights_come_back() {
        // Largest relative RMS error of normal weights, by bits.
        let bars = [(4, 0.09), (5, 0.045), (6, 0.022), (8, 0.007)];
        for (ty, _) in ENCODERS {
            let row = ty.row();
            for (at, values) in cases(WEIGHTS).iter().enumerate() {
                let mut bytes = vec![0xaa; ty.row_bytes(values.len()).expect("whole blocks")];
                ty.encode(values, &mut bytes);
                let mut back = vec![f32::NAN; values.len()];
                ty.decode(&bytes, &mut back);
                assert!(back.iter().all(|value| value.is_finite()), "{} case {at}: {back:?}", row.name);
                if at >= 9 {
                    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v * v)).sum::<f64>();
                    let error = square(&mut values.iter().zip(&back).map(|(a, b)| a - b));
                    let relative = (error / square(&mut values.iter().copied())).sqrt();
                    let bits = row.codes.map_or(16, |codes| codes.bits);
                    let bar = bars.iter().find(|(n, _)| *n == bits).map_or(0.005, |(_, bar)| *bar);
                    assert!(relative < bar, "{} case {at}: {relative}", row.name);
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for (ty, _) in ENCODERS {
            let len = ty.row().block_len;
            let (mut bytes, mut back) = (vec![0xaa; ty.row().block_bytes], vec![1.0; len]);
            ty.encode(&vec![0.0; len], &mut bytes);
            ty.decode(&bytes, &mut back);
            assert!(back.iter().all(|&value| value == 0.0), "{}", ty.name());
        }
    }
}
