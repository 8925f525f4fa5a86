//! A quick hash for tables with hundreds of thousands of keys from a file, seeded anew for each table so that no file
//! can choose keys that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Seeds for [`Fold`].
#[derive(Debug, Clone)]
pub(crate) struct Seed(u64);

impl Default for Seed {
    fn default() -> Seed {
        Seed(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for Seed {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

/// Multiplies eight bytes at a time into 128 bits and folds them.
#[derive(Debug)]
pub(crate) struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let wide = u128::from(self.0 ^ word) * u128::from(ODD ^ self.0.rotate_left(32) | 1);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
