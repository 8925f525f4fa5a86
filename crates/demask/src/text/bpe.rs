//! Byte-level byte-pair encoding: merges by rank, lowest first, leftmost on a tie.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::error::{TextError, shown};

/// The merges of a vocabulary, and the token of each single byte.
#[derive(Debug)]
pub(crate) struct Bpe {
    /// Token of each byte; `None` where the vocabulary has none.
    bytes: [Option<u32>; 256],
    /// (left, right) to (rank, merged token).
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Words that are tokens, for vocabularies that take them whole; empty for the others.
    words: HashMap<Box<[u8]>, u32>,
}

impl Bpe {
    /// Builds the tables. `ids` maps token texts, as the file spells them, to ids; `byte_tokens` holds the fallback
    /// for bytes without a letter of their own in `ids`.
    ///
    /// A merge line is two known tokens with one space between, and the two joined are a token too; anything else is
    /// refused with the number of the line. A merge whose result is not in `ids` only because it is a control token
    /// is left out: no text may become one.
    pub(crate) fn new(
        ids: &HashMap<&[u8], u32>,
        merges: &[&[u8]],
        byte_tokens: &[Option<u32>; 256],
        is_control: impl Fn(&[u8]) -> bool,
    ) -> Result<Bpe, TextError> {
        let mut bytes = *byte_tokens;
        let mut letter = [0u8; 4];
        for (byte, id) in bytes.iter_mut().enumerate() {
            let spelled = byte_to_char(byte as u8).encode_utf8(&mut letter);
            *id = ids.get(spelled.as_bytes()).copied().or(*id);
        }
        let mut table = HashMap::with_capacity(merges.len());
        let mut joined = Vec::new();
        for (rank, line) in merges.iter().enumerate() {
            let bad = |detail: String| TextError::BadVocabulary {
                key: "tokenizer.ggml.merges",
                detail: format!("entry {rank} (\"{}\"): {detail}", shown(line)),
            };
            let mut parts = line.split(|&b| b == b' ');
            let (left, right) = match (parts.next(), parts.next(), parts.next()) {
                (Some(left), Some(right), None) if !left.is_empty() && !right.is_empty() => {
                    (left, right)
                }
                _ => return Err(bad("expected two tokens with one space between".to_owned())),
            };
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            let id_of = |part: &[u8]| {
                ids.get(part)
                    .copied()
                    .ok_or_else(|| bad(format!("\"{}\" is not in the vocabulary", shown(part))))
            };
            if is_control(&joined) && !ids.contains_key(joined.as_slice()) {
                continue;
            }
            let key = (id_of(left)?, id_of(right)?);
            let merged = id_of(&joined)?;
            table.entry(key).or_insert((rank as u32, merged));
        }
        Ok(Bpe {
            bytes,
            merges: table,
            words: HashMap::new(),
        })
    }

    /// Makes `words` tokens that are taken whole.
    pub(crate) fn take_whole(&mut self, words: impl Iterator<Item = (Box<[u8]>, u32)>) {
        for (word, id) in words {
            self.words.entry(word).or_insert(id);
        }
    }

    /// How many of the 256 bytes have no token.
    pub(crate) fn missing_bytes(&self) -> usize {
        self.bytes.iter().filter(|id| id.is_none()).count()
    }

    /// Appends the tokens of one word. n bytes take at most n log n time. Bytes without a token are left out.
    pub(crate) fn encode_word(&self, word: &[u8], out: &mut Vec<u32>) {
        if let Some(&id) = self.words.get(word) {
            out.push(id);
            return;
        }
        let mut symbols = Symbols::new(word.iter().filter_map(|&b| self.bytes[usize::from(b)]));
        let mut queue = BinaryHeap::new();
        for left in 0..symbols.ids.len().saturating_sub(1) {
            self.offer(&symbols, left, &mut queue);
        }
        while let Some(Reverse(candidate)) = queue.pop() {
            let (_rank, left, pair, merged) = candidate;
            if symbols.pair(left) == Some(pair) {
                let before = symbols.join(left, merged);
                if let Some(before) = before {
                    self.offer(&symbols, before, &mut queue);
                }
                self.offer(&symbols, left, &mut queue);
            }
        }
        out.extend(symbols.remaining());
    }

    fn offer(&self, symbols: &Symbols, left: usize, queue: &mut BinaryHeap<Reverse<Candidate>>) {
        if let Some(pair) = symbols.pair(left)
            && let Some(&(rank, merged)) = self.merges.get(&pair)
        {
            queue.push(Reverse((rank, left, pair, merged)));
        }
    }
}

/// (rank, index of the left symbol, the pair as it was when offered, the token it becomes).
type Candidate = (u32, usize, (u32, u32), u32);

const NONE: usize = usize::MAX;

/// The symbols of a word: a doubly linked list in three arrays, so that a merge costs constant time.
struct Symbols {
    /// Token of each symbol; `None` once it was merged into the symbol on its left.
    ids: Vec<Option<u32>>,
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Symbols {
    fn new(ids: impl Iterator<Item = u32>) -> Symbols {
        let ids: Vec<_> = ids.map(Some).collect();
        let n = ids.len();
        let next = (1..=n).map(|i| if i == n { NONE } else { i }).collect();
        let before = (0..n).map(|i| if i == 0 { NONE } else { i - 1 }).collect();
        Symbols { ids, next, before }
    }

    /// The tokens of a symbol and of the one behind it.
    fn pair(&self, left: usize) -> Option<(u32, u32)> {
        let right = self.next[left];
        if right == NONE {
            return None;
        }
        Some((self.ids[left]?, self.ids[right]?))
    }

    /// Replaces a symbol and the one behind it by `merged`, at the left index; gives the index before it.
    fn join(&mut self, left: usize, merged: u32) -> Option<usize> {
        let right = self.next[left];
        self.ids[left] = Some(merged);
        self.ids[right] = None;
        self.next[left] = self.next[right];
        if self.next[left] != NONE {
            let behind = self.next[left];
            self.before[behind] = left;
        }
        (self.before[left] != NONE).then(|| self.before[left])
    }

    fn remaining(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().flatten().copied()
    }
}

/// The letter that stands for a byte in the token texts of byte-level vocabularies: printable bytes stand for
/// themselves, the other 68 for the code points from U+0100 on.
pub(crate) fn byte_to_char(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0..=b' ' => char::from_u32(0x100 + u32::from(byte)).unwrap_or(' '),
        0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte - 0x7f)).unwrap_or(' '),
        0xad => '\u{143}',
    }
}

/// The byte that a letter of a token text stands for.
pub(crate) fn char_to_byte(letter: char) -> Option<u8> {
    match letter as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}
