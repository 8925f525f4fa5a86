//! Token bytes back to text, all at once or as they come.

use super::Tokenizer;

/// Turns tokens that arrive one by one into text, never giving out half a character.
///
/// The pieces joined, with [`finish`] at the end, equal [`Tokenizer::decode`] of all tokens: bytes that can't be part
/// of any character become U+FFFD as soon as that is certain, bytes that may still be completed wait.
///
/// [`finish`]: StreamDecoder::finish
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    waiting: Vec<u8>,
}

impl<'a> StreamDecoder<'a> {
    /// A decoder with nothing waiting.
    pub fn new(tokenizer: &'a Tokenizer) -> StreamDecoder<'a> {
        StreamDecoder { tokenizer, waiting: Vec::new() }
    }

    /// Takes one token and gives the text that is complete now, which may be empty. Special tokens have no text.
    pub fn push(&mut self, id: u32) -> String {
        self.waiting.extend_from_slice(self.tokenizer.text_bytes(id));
        let mut text = String::new();
        let mut rest = self.waiting.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, broken) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = broken;
                    let Some(length) = error.error_len() else {
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &broken[length..];
                }
            }
        }
        self.waiting = rest.to_vec();
        text
    }

    /// Ends the text: what still waits is half a character, and becomes U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.waiting).into_owned()
    }
}
