//! Text to tokens and back: the tokenizer of a GGUF file, its chat template, and text as a stream of tokens.
//!
//! What a user types is text: [`Tokenizer::encode`] and [`ChatTemplate::encode`] never turn the name of a control
//! token inside it into that token.

mod bpe;
mod chat;
mod config;
mod decode;
mod error;
mod guard;
mod hash;
pub mod pretokenize;
mod special;
mod template;

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

pub use chat::{ChatTemplate, Date, Message, Role};
pub use config::{ConfigIds, TokenizerConfig};
pub use decode::StreamDecoder;
pub use error::TextError;
pub use special::{SpecialIds, TokenKind};

use bpe::{Bpe, char_to_byte};
use error::shown;
use hash::Seed;
use pretokenize::SplitRule;
use special::{Names, Part};

/// Architectures whose models were trained on composed text: it is brought to Unicode's form C first.
const COMPOSED: &[&str] = &["dream"];

/// Architectures whose raw prompts begin with BOS where the file has no `tokenizer.ggml.add_bos_token`.
const BOS_BY_DEFAULT: &[&str] = &["llada"];

/// Whether the names of control tokens in a text mean those tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// They are text like any other: right for everything that a user typed.
    Text,
    /// They are the tokens: right for text that the program itself wrote.
    Parse,
}

/// A byte-level BPE tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    bpe: Bpe,
    rule: SplitRule,
    composed: bool,
    add_bos: bool,
    /// The bytes of all tokens, one behind the other, and where each begins (and the last ends).
    bytes: Vec<u8>,
    starts: Vec<usize>,
    kinds: Vec<TokenKind>,
    ids: SpecialIds,
    /// Names found in every text: user-defined tokens.
    defined: Names,
    /// Names found where control tokens are parsed: those, and control tokens.
    all: Names,
    /// Names of control tokens alone.
    control: Names,
    warnings: Vec<String>,
}

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    ///
    /// # Errors
    /// Anything that would give other ids than the model was trained on, or an id outside the vocabulary: an unknown
    /// family or split rule, no tokens, merges that don't fit the tokens, special ids past the end.
    pub fn new(config: &TokenizerConfig<'_>) -> Result<Tokenizer, TextError> {
        match config.model {
            Some("gpt2") => {}
            None => {
                return Err(TextError::MissingKey { key: "tokenizer.ggml.model" });
            }
            Some(other) => {
                return Err(TextError::UnsupportedModel { found: shown(other) });
            }
        }
        let count = config.tokens.len();
        if count == 0 {
            return Err(TextError::MissingKey { key: "tokenizer.ggml.tokens" });
        }
        if !config.types.is_empty() && config.types.len() != count {
            let detail = format!("{} types for {count} tokens", config.types.len());
            return Err(TextError::BadVocabulary { key: "tokenizer.ggml.token_type", detail });
        }
        let mut warnings = Vec::new();
        let (rule, warning) = SplitRule::resolve(config.pre, config.architecture)?;
        warnings.extend(warning);

        let number = |id: usize| config.types.get(id).copied().unwrap_or(1);
        let mut kinds: Vec<TokenKind> = (0..count).map(|id| TokenKind::from_number(number(id))).collect();
        let ids = SpecialIds::read(config, &kinds)?;
        for id in ids.steering() {
            kinds[id as usize] = TokenKind::Control;
        }
        let (bytes, starts) = spell(config, &kinds);
        let bytes_of = |id: usize| &bytes[starts[id]..starts[id + 1]];

        let mut texts: HashMap<&[u8], u32, Seed> = HashMap::with_capacity_and_hasher(count, Seed::default());
        let mut controls: HashMap<&[u8], u32> = HashMap::new();
        let mut single = [None; 256];
        for (id, (token, kind)) in config.tokens.iter().zip(&kinds).enumerate() {
            match kind {
                TokenKind::Normal | TokenKind::UserDefined => texts.entry(token).or_insert(id as u32),
                TokenKind::Control => controls.entry(token).or_insert(id as u32),
                TokenKind::Byte if bytes_of(id).len() == 1 => {
                    single[usize::from(bytes_of(id)[0])].get_or_insert(id as u32)
                }
                _ => continue,
            };
        }
        let mut bpe = Bpe::new(&texts, &config.merges, &single, |text| controls.contains_key(text))?;
        if rule.takes_whole_words() {
            let text = |id: &usize| matches!(kinds[*id], TokenKind::Normal | TokenKind::UserDefined);
            let words = (0..count).filter(text).map(|id| (bytes_of(id).into(), id as u32));
            bpe.take_whole(words);
        }
        if bpe.missing_bytes() > 0 {
            warnings.push(format!(
                "tokenizer.ggml.tokens: {} of 256 bytes have no token and are left out of prompts",
                bpe.missing_bytes()
            ));
        }
        let add_bos = config.add_bos_token.unwrap_or(BOS_BY_DEFAULT.contains(&config.architecture));
        if add_bos && ids.bos.is_none() {
            warnings.push("tokenizer.ggml.bos_token_id is missing: prompts begin without BOS".to_owned());
        }
        let named = |wanted: &[TokenKind]| {
            let ids = (0..count).filter(|&id| wanted.contains(&kinds[id]));
            Names::new(ids.map(|id| (id as u32, bytes_of(id))))
        };
        Ok(Tokenizer {
            defined: named(&[TokenKind::UserDefined]),
            all: named(&[TokenKind::UserDefined, TokenKind::Control]),
            control: named(&[TokenKind::Control]),
            composed: COMPOSED.contains(&config.architecture),
            bpe,
            rule,
            add_bos,
            bytes,
            starts,
            kinds,
            ids,
            warnings,
        })
    }

    /// Tokens of a text, without BOS. User-defined tokens are found in any text; control tokens only with
    /// [`Specials::Parse`]. Linear in the text, but for a logarithm in its longest word.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<u32> {
        let names = match specials {
            Specials::Text => &self.defined,
            Specials::Parse => &self.all,
        };
        let mut tokens = Vec::new();
        for part in names.split(text) {
            match part {
                Part::Token(id) => tokens.push(id),
                Part::Text(text) => self.encode_text(text, &mut tokens),
            }
        }
        tokens
    }

    /// Tokens of a prompt without a chat template: [`encode`] as text, with BOS in front iff the file says so with
    /// `tokenizer.ggml.add_bos_token` (where that is missing: for `llada`).
    ///
    /// [`encode`]: Tokenizer::encode
    pub fn encode_prompt_raw(&self, text: &str) -> Vec<u32> {
        let mut tokens: Vec<u32> = self.leading_bos().into_iter().collect();
        tokens.extend(self.encode(text, Specials::Text));
        tokens
    }

    fn encode_text(&self, text: &str, tokens: &mut Vec<u32>) {
        let text = match self.composed && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            true => Cow::Owned(text.nfc().collect::<String>()),
            false => Cow::Borrowed(text),
        };
        for word in self.rule.words(&text) {
            self.bpe.encode_word(word.as_bytes(), tokens);
        }
    }

    /// The text of tokens: the bytes of all that are text, joined. What is not UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids)).into_owned()
    }

    /// The bytes of [`Tokenizer::decode`], exactly: for text `t`, `decode_bytes(encode(t, Text))` is `t` (composed
    /// first, for models that want it).
    pub fn decode_bytes(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.text_bytes(id)).copied().collect()
    }

    /// What a token adds to a text: nothing for special tokens and ids outside the vocabulary.
    pub(crate) fn text_bytes(&self, id: u32) -> &[u8] {
        if self.is_special(id) { &[] } else { self.token_bytes(id) }
    }

    /// The bytes that a token stands for; its name, if it is special. Empty outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        match (self.starts.get(id), self.starts.get(id + 1)) {
            (Some(&from), Some(&to)) => &self.bytes[from..to],
            _ => &[],
        }
    }

    /// A token for showing: [`Tokenizer::token_bytes`] as one printable line.
    pub fn token_text(&self, id: u32) -> String {
        demask_gguf::escape(self.token_bytes(id))
    }

    /// Whether a token is no text: control, unknown and unused tokens, and every id outside the vocabulary.
    pub fn is_special(&self, id: u32) -> bool {
        !matches!(self.kinds.get(id as usize), Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte))
    }

    /// The kind of a token, if it is in the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Tokens in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.kinds.len()
    }

    /// The ids with a meaning of their own.
    pub fn ids(&self) -> &SpecialIds {
        &self.ids
    }

    /// Whether an answer ends at this token: it is EOS or ends a turn.
    pub fn is_end(&self, id: u32) -> bool {
        self.ids.eos == Some(id) || self.ids.eot == Some(id)
    }

    /// What was assumed where the file left something open. Each is one line.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The rule that cuts words.
    pub fn rule(&self) -> SplitRule {
        self.rule
    }

    /// BOS, if prompts begin with it.
    pub(crate) fn leading_bos(&self) -> Option<u32> {
        self.ids.bos.filter(|_| self.add_bos)
    }

    /// Names of control tokens.
    pub(crate) fn control_names(&self) -> &Names {
        &self.control
    }

    /// Ids of control tokens.
    pub(crate) fn control_ids(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.kinds).filter(|(_, kind)| **kind == TokenKind::Control).map(|(id, _)| id)
    }
}

/// The bytes of every token, one behind the other, and where each begins.
///
/// Normal tokens are spelled in the letters that stand for bytes; one with any other letter is taken as it is, like
/// all special tokens.
fn spell(config: &TokenizerConfig<'_>, kinds: &[TokenKind]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::with_capacity(config.tokens.iter().map(|token| token.len()).sum());
    let mut starts = Vec::with_capacity(kinds.len() + 1);
    for (token, kind) in config.tokens.iter().zip(kinds) {
        let start = bytes.len();
        starts.push(start);
        let spelled = match kind {
            TokenKind::Normal => std::str::from_utf8(token)
                .is_ok_and(|text| text.chars().all(|c| char_to_byte(c).map(|b| bytes.push(b)).is_some())),
            TokenKind::Byte => byte_of(token).map(|b| bytes.push(b)).is_some(),
            _ => false,
        };
        if !spelled {
            bytes.truncate(start);
            bytes.extend_from_slice(token);
        }
    }
    starts.push(bytes.len());
    (bytes, starts)
}

/// The byte that `<0x0A>` names.
fn byte_of(token: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(token.strip_prefix(b"<0x")?.strip_suffix(b">")?).ok()?;
    let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { u8::from_str_radix(digits, 16).ok() } else { None }
}
