//! Tokens that are not text: their types, their ids, and finding their names in a text.

use std::collections::HashMap;

use super::{TextError, TokenizerConfig};

/// What a token is, as `tokenizer.ggml.token_type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text (1).
    Normal,
    /// Stands for text that the vocabulary can't spell (2).
    Unknown,
    /// Steers the model and is never text (3).
    Control,
    /// A name that is always one token, also in a user's text (4).
    UserDefined,
    /// A hole in the vocabulary (5).
    Unused,
    /// One byte, spelled `<0x00>` (6).
    Byte,
}

impl TokenKind {
    /// The kind for a number in `tokenizer.ggml.token_type`. Numbers that mean nothing are normal tokens.
    pub fn from_number(number: i32) -> TokenKind {
        match number {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        }
    }
}

/// The ids with a meaning of their own. All of them are inside the vocabulary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn.
    pub eot: Option<u32>,
    /// Ends a message.
    pub eom: Option<u32>,
    /// Marks an open position.
    pub mask: Option<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
    /// Stands for what can't be spelled.
    pub unknown: Option<u32>,
}

/// Names that end a turn, tried in order where the file has no `tokenizer.ggml.eot_token_id`.
const EOT_NAMES: &[&str] =
    &["<|eot_id|>", "<|im_end|>", "<|role_end|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|endoftext|>"];

/// Names that end a text, tried in order where the file has no `tokenizer.ggml.eos_token_id`.
const EOS_NAMES: &[&str] = &["<|endoftext|>", "<|end_of_text|>", "</s>"];

impl SpecialIds {
    /// Reads the ids of a file. -1 means none; any other id outside the vocabulary is refused with its key.
    /// End tokens without a key are looked up by name among the tokens that are not text.
    pub(crate) fn read(config: &TokenizerConfig<'_>, kinds: &[TokenKind]) -> Result<SpecialIds, TextError> {
        let vocabulary = config.tokens.len();
        let id = |key: &'static str, value: Option<i64>| match value {
            None | Some(-1) => Ok(None),
            Some(id) => match u32::try_from(id) {
                Ok(inside) if (inside as usize) < vocabulary => Ok(Some(inside)),
                _ => Err(TextError::BadId { key, id, vocabulary }),
            },
        };
        let named = |names: &[&str]| {
            names.iter().find_map(|name| {
                let found = config.tokens.iter().position(|token| *token == name.as_bytes())?;
                let special = config.types.is_empty() || kinds[found] != TokenKind::Normal;
                special.then(|| u32::try_from(found).ok()).flatten()
            })
        };
        let ids = &config.ids;
        let eos = id("tokenizer.ggml.eos_token_id", ids.eos)?;
        let eot = id("tokenizer.ggml.eot_token_id", ids.eot)?;
        Ok(SpecialIds {
            bos: id("tokenizer.ggml.bos_token_id", ids.bos)?,
            eos: eos.or_else(|| named(EOS_NAMES)),
            eot: eot.or_else(|| named(EOT_NAMES)),
            eom: id("tokenizer.ggml.eom_token_id", ids.eom)?,
            mask: id("tokenizer.ggml.mask_token_id", ids.mask)?,
            pad: id("tokenizer.ggml.padding_token_id", ids.pad)?,
            unknown: id("tokenizer.ggml.unknown_token_id", ids.unknown)?,
        })
    }

    /// The ids that steer the model, whatever their type in the file says.
    pub(crate) fn steering(&self) -> impl Iterator<Item = u32> {
        [self.bos, self.eos, self.eot, self.eom, self.mask].into_iter().flatten()
    }
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    Token(u32),
}

/// Finds the names of tokens in a text: at each place the longest, from left to right.
#[derive(Debug)]
pub(crate) struct Names {
    children: HashMap<(u32, u8), u32>,
    /// Token that ends at each node of the tree; the root is node 0.
    ends: Vec<Option<u32>>,
    starts: [bool; 256],
}

impl Names {
    /// Only names with a character other than white space are kept: white space alone is text.
    pub(crate) fn new<'t>(names: impl Iterator<Item = (u32, &'t [u8])>) -> Names {
        let mut found = Names { children: HashMap::new(), ends: vec![None], starts: [false; 256] };
        for (id, name) in names {
            let spelled = std::str::from_utf8(name).is_ok_and(|text| text.chars().any(|c| !c.is_whitespace()));
            if spelled {
                found.insert(id, name);
            }
        }
        found
    }

    fn insert(&mut self, id: u32, name: &[u8]) {
        self.starts[usize::from(name[0])] = true;
        let mut node = 0;
        for &byte in name {
            let fresh = self.ends.len() as u32;
            node = *self.children.entry((node, byte)).or_insert(fresh);
            if node == fresh {
                self.ends.push(None);
            }
        }
        self.ends[node as usize].get_or_insert(id);
    }

    /// The longest name at the front: its token and its bytes.
    pub(crate) fn at(&self, text: &[u8]) -> Option<(u32, usize)> {
        if !self.starts[usize::from(*text.first()?)] {
            return None;
        }
        let mut node = 0;
        let mut longest = None;
        for (length, byte) in text.iter().enumerate() {
            let Some(&child) = self.children.get(&(node, *byte)) else {
                break;
            };
            node = child;
            if let Some(id) = self.ends[node as usize] {
                longest = Some((id, length + 1));
            }
        }
        longest
    }

    /// Cuts a text at the names in it. Texts between are not empty.
    pub(crate) fn split<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let bytes = text.as_bytes();
        let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            let Some((id, length)) = self.at(&bytes[at..]) else {
                at += 1;
                continue;
            };
            if from < at {
                parts.push(Part::Text(&text[from..at]));
            }
            parts.push(Part::Token(id));
            at += length;
            from = at;
        }
        if from < bytes.len() {
            parts.push(Part::Text(&text[from..]));
        }
        parts
    }
}
