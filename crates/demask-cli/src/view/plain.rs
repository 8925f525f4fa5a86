//! Text from the left, as far as it is final.

use anyhow::Result;
use demask::text::{StreamDecoder, Tokenizer};

use crate::output::Out;

/// Writes an answer to stdout as its tokens become final. It only ever appends.
pub(crate) struct Stream<'a> {
    decoder: StreamDecoder<'a>,
    tokens: usize,
}

impl<'a> Stream<'a> {
    /// Nothing written yet.
    pub(crate) fn new(tokenizer: &'a Tokenizer) -> Stream<'a> {
        Stream { decoder: StreamDecoder::new(tokenizer), tokens: 0 }
    }

    /// Writes what is new in `answer`: the decided tokens before the first that is open or ends the answer.
    pub(crate) fn advance(&mut self, answer: &[u32], out: &mut Out) -> Result<()> {
        let Some(new) = answer.get(self.tokens..).filter(|new| !new.is_empty()) else {
            return Ok(());
        };
        for &token in new {
            out.text(&self.decoder.push(token))?;
        }
        self.tokens = answer.len();
        out.flush()
    }

    /// Ends the text and its line.
    pub(crate) fn finish(self, out: &mut Out) -> Result<()> {
        out.text(&self.decoder.finish())?;
        out.bytes(b"\n")?;
        out.flush()
    }
}
