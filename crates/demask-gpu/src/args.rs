//! Arguments of a kernel, as bytes.

use bytemuck::Pod;

/// The arguments of a launch in order, each padded to whole words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    words: Vec<u64>,
    /// First word and bytes of each argument.
    parts: Vec<(u32, u32)>,
}

impl Args {
    /// The same and one more.
    pub fn with<T: Pod>(mut self, value: T) -> Args {
        let bytes = bytemuck::bytes_of(&value);
        self.parts.push((self.words.len() as u32, bytes.len() as u32));
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_le_bytes(word));
        }
        self
    }

    /// The bytes of each argument.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        self.parts.iter().map(move |&(word, len)| &bytes[word as usize * 8..][..len as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_bytes() {
        let args = Args::default().with(7u32).with([1u64, 2]).with(1.5f32);
        let found: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
        let wanted: [&[u8]; 3] = [&7u32.to_le_bytes(), bytemuck::bytes_of(&[1u64, 2]), &1.5f32.to_le_bytes()];
        assert_eq!(found, wanted);
    }
}
