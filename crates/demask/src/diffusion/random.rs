//! Random numbers by address: Philox4x32-10 (Salmon et al. 2011) keyed by seed, step, position and purpose.
//!
//! A draw depends on nothing but its address, so the text of a generation doesn't depend on thread count, batching or
//! the order in which rows are sampled. Other implementations can reproduce it from this contract:
//!
//! * key = (low, high) 32 bits of the seed; counter = (index / 2, step, position, stream);
//! * the four output words give two 64-bit draws, low word first; `index % 2` chooses one;
//! * uniform in (0, 1): `((draw >> 11) + 0.5) / 2^53`.

/// What a draw is for.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Stream {
    /// Choosing a token; the index is the vocabulary id for Gumbel noise, 0 for one categorical draw.
    Token = 0,
    /// Random confidence; index 0.
    Confidence = 1,
    /// Choosing positions; index 0.
    Position = 2,
}

/// The generator of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random {
    seed: u64,
}

/// The draws of one (step, position, stream).
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    key: [u32; 2],
    step: u32,
    position: u32,
    stream: Stream,
}

impl Random {
    /// A generator for `seed`.
    pub(super) fn new(seed: u64) -> Random {
        Random { seed }
    }

    /// The draws for one purpose at one place.
    pub(super) fn at(self, step: usize, position: usize, stream: Stream) -> Draws {
        Draws {
            key: [self.seed as u32, (self.seed >> 32) as u32],
            step: step as u32,
            position: position as u32,
            stream,
        }
    }
}

impl Draws {
    /// Uniform in the open interval (0, 1).
    pub(super) fn uniform(&self, index: usize) -> f64 {
        unit(self.pair(index / 2)[index % 2])
    }

    /// `-ln(-ln(uniform))`.
    pub(super) fn gumbel(&self, index: usize) -> f64 {
        -(-self.uniform(index).ln()).ln()
    }

    /// Calls `take(index, uniform)` for every index below `count`, at half the price of single draws.
    pub(super) fn each_uniform(&self, count: usize, mut take: impl FnMut(usize, f64)) {
        for block in 0..count.div_ceil(2) {
            let pair = self.pair(block);
            take(2 * block, unit(pair[0]));
            if 2 * block + 1 < count {
                take(2 * block + 1, unit(pair[1]));
            }
        }
    }

    fn pair(&self, block: usize) -> [u64; 2] {
        let words = philox([block as u32, self.step, self.position, self.stream as u32], self.key);
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [join(words[0], words[1]), join(words[2], words[3])]
    }
}

fn unit(draw: u64) -> f64 {
    ((draw >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Philox4x32 with ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = 0xD251_1F53u64 * u64::from(counter[0]);
        let b = 0xCD9E_8D57u64 * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_known_answers() {
        // Random123's kat_vectors for philox4x32-10.
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, wanted) in cases {
            assert_eq!(philox(counter, key), wanted);
        }
    }

    #[test]
    fn many_draws_are_the_single_draws() {
        let draws = Random::new(7).at(3, 9, Stream::Token);
        let mut seen = Vec::new();
        draws.each_uniform(5, |index, u| seen.push((index, u)));
        let single: Vec<(usize, f64)> = (0..5).map(|index| (index, draws.uniform(index))).collect();
        assert_eq!(seen, single);
        assert!(single.iter().all(|(_, u)| 0.0 < *u && *u < 1.0));
    }
}
