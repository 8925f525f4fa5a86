//! Byte-level byte-pair encoding: merges by rank, lowest first, leftmost on a tie.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::error::{TextError, shown};
use super::hash::Seed;

/// The merges of a vocabulary, and the token of each single byte.
#[derive(Debug)]
pub(crate) struct Bpe {
    /// Token of each byte; `None` where the vocabulary has none.
    bytes: [Option<u32>; 256],
    /// [`pair_key`] of two tokens to (rank, merged token).
    merges: HashMap<u64, (u32, u32), Seed>,
    /// Words that are tokens, for vocabularies that take them whole; empty for the others.
    words: HashMap<Box<[u8]>, u32, Seed>,
}

impl Bpe {
    /// Builds the tables. `ids` maps token texts, as the file spells them, to ids; `byte_tokens` holds the fallback
    /// for bytes without a letter of their own in `ids`.
    ///
    /// A merge line is two known tokens with one space between, and the two joined are a token too; anything else is
    /// refused with the number of the line. Merges from or to a control token are left out: no text may become one.
    pub(crate) fn new(
        ids: &HashMap<&[u8], u32, Seed>,
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
        let mut table = HashMap::with_capacity_and_hasher(merges.len(), Seed::default());
        let mut joined = Vec::new();
        for (rank, line) in merges.iter().enumerate() {
            let bad = |detail: String| TextError::BadVocabulary {
                key: "tokenizer.ggml.merges",
                detail: format!("entry {rank} (\"{}\"): {detail}", shown(line)),
            };
            let mut parts = line.split(|&b| b == b' ');
            let (left, right) = match (parts.next(), parts.next(), parts.next()) {
                (Some(left), Some(right), None) if !left.is_empty() && !right.is_empty() => (left, right),
                _ => return Err(bad("expected two tokens with one space between".to_owned())),
            };
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            let id_of = |part: &[u8]| match ids.get(part) {
                Some(&id) => Ok(Some(id)),
                None if is_control(part) => Ok(None),
                None => Err(bad(format!("\"{}\" is not in the vocabulary", shown(part)))),
            };
            let (Some(left), Some(right), Some(merged)) = (id_of(left)?, id_of(right)?, id_of(&joined)?) else {
                continue;
            };
            table.entry(pair_key(left, right)).or_insert((rank as u32, merged));
        }
        Ok(Bpe { bytes, merges: table, words: HashMap::default() })
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
        for piece in word.chunks(LONGEST_PIECE) {
            self.encode_piece(piece, out);
        }
    }

    fn encode_piece(&self, piece: &[u8], out: &mut Vec<u32>) {
        let ids: Vec<u32> = piece.iter().filter_map(|&b| self.bytes[usize::from(b)]).collect();
        let mut symbols = Symbols::new(ids);
        // Candidates by rank, then place. Those that a merge beside them made stale stay, and are skipped.
        let mut queue: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        for left in 0..symbols.ids.len() {
            queue.extend(self.look_up(&mut symbols, left as u32));
        }
        while let Some(Reverse((rank, left))) = queue.pop() {
            if symbols.ranks[left as usize] == rank {
                let before = symbols.merge(left);
                queue.extend(before.and_then(|before| self.look_up(&mut symbols, before)));
                queue.extend(self.look_up(&mut symbols, left));
            }
        }
        out.extend(symbols.ids.iter().filter(|&&id| id != NONE));
    }

    /// Notes what a symbol and the one behind it may become, and gives it as a candidate.
    fn look_up(&self, symbols: &mut Symbols, left: u32) -> Option<Reverse<(u32, u32)>> {
        let at = left as usize;
        let right = symbols.next[at];
        let pair = (right != NONE).then(|| pair_key(symbols.ids[at], symbols.ids[right as usize]));
        let found = pair.and_then(|pair| self.merges.get(&pair).copied());
        let (rank, merged) = found.unwrap_or((NONE, NONE));
        symbols.ranks[at] = rank;
        symbols.merged[at] = merged;
        found.map(|_| Reverse((rank, left)))
    }
}

/// Longer words are cut into pieces, so that places fit 32 bits.
const LONGEST_PIECE: usize = 1 << 30;

/// No token, no symbol, no rank.
const NONE: u32 = u32::MAX;

fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The symbols of a word: a doubly linked list in arrays, so that a merge costs constant time.
struct Symbols {
    /// Token of each symbol; [`NONE`] once it was merged into the symbol on its left.
    ids: Vec<u32>,
    next: Vec<u32>,
    before: Vec<u32>,
    /// Rank of the merge of each symbol with the one behind it, and the token it makes; [`NONE`] for no merge.
    ranks: Vec<u32>,
    merged: Vec<u32>,
}

impl Symbols {
    fn new(ids: Vec<u32>) -> Symbols {
        let count = ids.len() as u32;
        Symbols {
            next: (1..=count).map(|i| if i == count { NONE } else { i }).collect(),
            before: (0..count).map(|i| i.checked_sub(1).unwrap_or(NONE)).collect(),
            ranks: vec![NONE; ids.len()],
            merged: vec![NONE; ids.len()],
            ids,
        }
    }

    /// Merges a symbol with the one behind it, as noted; gives the symbol before it.
    fn merge(&mut self, left: u32) -> Option<u32> {
        let at = left as usize;
        let right = self.next[at] as usize;
        self.ids[at] = self.merged[at];
        self.ids[right] = NONE;
        self.ranks[right] = NONE;
        self.next[at] = self.next[right];
        if self.next[at] != NONE {
            self.before[self.next[at] as usize] = left;
        }
        (self.before[at] != NONE).then_some(self.before[at])
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
