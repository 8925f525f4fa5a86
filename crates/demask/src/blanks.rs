//! Texts with blanks: `[[]]` and `[[N]]` mark open positions.

use std::ops::Range;

use crate::text::{Specials, Tokenizer};
use crate::{EndPolicy, Request};

/// Open positions of `[[]]`.
pub const DEFAULT: usize = 4;
/// The most that one blank has: more than any context, few enough to count through.
const MOST: usize = 1_000_000;

/// Why a text is no text with blanks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlanksError {
    /// There is no marker in it.
    #[error("the text has no blank to fill")]
    None,
    /// A marker with a number of positions that can't be.
    #[error("[[{digits}]] can't be used: a blank has 1 to {MOST} positions")]
    Count {
        /// What stands between the brackets.
        digits: String,
    },
}

impl BlanksError {
    /// What helps.
    pub fn hint(&self) -> String {
        match self {
            BlanksError::None => format!("mark each with `[[N]]` (N open positions) or `[[]]` ({DEFAULT} of them)"),
            BlanksError::Count { digits } => format!("for plain text, write `\\[[{digits}]]`"),
        }
    }
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Blank(usize),
}

/// A text that was taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked(Vec<Piece>);

impl Marked {
    /// Finds the blanks. A backslash in front of a marker makes it text, two are one backslash in front of a blank.
    ///
    /// # Errors
    /// A text without a blank; a blank without a position, or with more than a million.
    pub fn new(text: &str) -> Result<Marked, BlanksError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("[[") {
            let (before, from) = rest.split_at(at);
            let Some((digits, after)) = marker(from) else {
                literal.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            };
            let unescaped = before.trim_end_matches('\\');
            let backslashes = before.len() - unescaped.len();
            literal.push_str(&before[..unescaped.len() + backslashes / 2]);
            if backslashes % 2 == 1 {
                literal.push_str(&from[..from.len() - after.len()]);
            } else {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Blank(count(digits)?));
            }
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        if !pieces.iter().any(|piece| matches!(piece, Piece::Blank(_))) {
            return Err(BlanksError::None);
        }
        Ok(Marked(pieces))
    }

    /// Open positions in all.
    pub fn open(&self) -> usize {
        self.0.iter().map(|piece| if let Piece::Blank(n) = piece { *n } else { 0 }).sum()
    }

    /// The canvas: what is fixed as tokens, what is open as `None`; and where the blanks are. The pieces are tokenised
    /// one by one, so that the text around a blank keeps its spaces.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> (Vec<Option<u32>>, Vec<Range<usize>>) {
        let mut tokens: Vec<Option<u32>> = tokenizer.encode_prompt_raw("").into_iter().map(Some).collect();
        let mut blanks = Vec::new();
        for piece in &self.0 {
            let start = tokens.len();
            match piece {
                Piece::Text(text) => tokens.extend(tokenizer.encode(text, Specials::Text).into_iter().map(Some)),
                Piece::Blank(n) => {
                    tokens.resize(start + n, None);
                    blanks.push(start..tokens.len());
                }
            }
        }
        (tokens, blanks)
    }

    /// The request for this text: its blanks are the open positions, and an end token in one doesn't end the others.
    pub fn request(&self, request: Request) -> Request {
        let eos = if request.eos == EndPolicy::Stop { EndPolicy::Keep } else { request.eos };
        Request { max_tokens: self.open(), eos, ..request }
    }
}

/// The digits of a marker that `text` begins with, and what follows it.
fn marker(text: &str) -> Option<(&str, &str)> {
    let (digits, after) = text.strip_prefix("[[")?.split_once("]]")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some((digits, after))
}

fn count(digits: &str) -> Result<usize, BlanksError> {
    if digits.is_empty() {
        return Ok(DEFAULT);
    }
    let count = digits.parse().ok().filter(|n| (1..=MOST).contains(n));
    count.ok_or_else(|| BlanksError::Count { digits: digits.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> String {
        let marked = Marked::new(text).expect(text);
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => format!("<{text}>"),
            Piece::Blank(n) => n.to_string(),
        };
        marked.0.iter().map(piece).collect()
    }

    #[test]
    fn markers_are_blanks_and_everything_else_is_text() {
        for (text, wanted) in [
            ("a [[]] b", "<a >4< b>"),
            ("[[3]][[12]]", "312"),
            ("[[1]] [[x]] [[ 2 ]] [2] ]]", "1< [[x]] [[ 2 ]] [2] ]]>"),
            ("[[[2]]]", "<[>2<]>"),
            (r"\[[3]] [[3]]", "<[[3]] >3"),
            (r"a\\[[3]]", r"<a\>3"),
            (r"\\\[[]] [[1]]", r"<\[[]] >1"),
            (r"C:\dir [[1]] \n", r"<C:\dir >1< \n>"),
            ("ünï [[2]] 🦀[[", "<ünï >2< 🦀[[>"),
        ] {
            assert_eq!(spelled(text), wanted, "{text}");
        }
        assert_eq!(Marked::new("[[3]] [[]]").expect("two blanks").open(), 7);
    }

    #[test]
    fn texts_without_a_blank_and_blanks_without_a_position_are_misuse() {
        for (text, words) in [
            ("", "no blank"),
            (r"\[[3]]", "no blank"),
            ("[[x]]", "no blank"),
            ("[[0]]", "[[0]] can't"),
            ("[[99999999999999999999]]", "1 to 1000000"),
        ] {
            let error = Marked::new(text).expect_err(text);
            assert!(error.to_string().contains(words) && !error.hint().is_empty(), "{text}: {error}");
        }
    }
}
