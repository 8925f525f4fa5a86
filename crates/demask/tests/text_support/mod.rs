//! A small vocabulary made on the spot, and the real Qwen2 vocabulary where it is at hand.

#![allow(dead_code, clippy::print_stderr)]

use std::path::PathBuf;

use demask::text::{ConfigIds, Tokenizer, TokenizerConfig};
use demask_gguf::Gguf;

pub(crate) const NORMAL: i32 = 1;
pub(crate) const CONTROL: i32 = 3;
pub(crate) const USER_DEFINED: i32 = 4;
pub(crate) const UNUSED: i32 = 5;
pub(crate) const BYTE: i32 = 6;

/// A vocabulary under construction. It begins with one token per byte, ids 0 to 255.
pub(crate) struct Vocabulary {
    pub(crate) architecture: &'static str,
    pub(crate) pre: Option<&'static str>,
    pub(crate) tokens: Vec<Vec<u8>>,
    pub(crate) types: Vec<i32>,
    pub(crate) merges: Vec<Vec<u8>>,
    pub(crate) ids: ConfigIds,
    pub(crate) add_bos_token: Option<bool>,
}

impl Vocabulary {
    pub(crate) fn bytes() -> Vocabulary {
        Vocabulary {
            architecture: "llada",
            pre: Some("llada"),
            tokens: (0..=255).map(|b| letter(b).to_string().into_bytes()).collect(),
            types: vec![NORMAL; 256],
            merges: Vec::new(),
            ids: ConfigIds::default(),
            add_bos_token: Some(false),
        }
    }

    /// Bytes, LLaDA's markers, and the merges of a few words.
    pub(crate) fn llada() -> Vocabulary {
        let mut v = Vocabulary::bytes();
        v.words(&["us", "er", "user", "as", "nt", "Hi", "\n\n", "an", "st"]);
        v.ids.bos = Some(v.add("<|startoftext|>", CONTROL).into());
        v.ids.eos = Some(v.add("<|endoftext|>", CONTROL).into());
        v.ids.mask = Some(v.add("<|mdm_mask|>", CONTROL).into());
        for marker in ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"] {
            v.add(marker, CONTROL);
        }
        v.add_bos_token = Some(true);
        v
    }

    /// Bytes and Dream's markers.
    pub(crate) fn dream() -> Vocabulary {
        let mut v = Vocabulary::bytes();
        (v.architecture, v.pre) = ("dream", Some("qwen2"));
        v.ids.eos = Some(v.add("<|endoftext|>", CONTROL).into());
        v.add("<|im_start|>", CONTROL);
        v.add("<|im_end|>", CONTROL);
        v.ids.mask = Some(v.add("<|mask|>", CONTROL).into());
        v
    }

    pub(crate) fn add(&mut self, token: &str, kind: i32) -> u32 {
        self.tokens.push(token.as_bytes().to_vec());
        self.types.push(kind);
        self.tokens.len() as u32 - 1
    }

    /// A token of two known ones, and its merge; the newest merge has the lowest priority.
    pub(crate) fn merge(&mut self, left: &str, right: &str) -> u32 {
        let spelled = |text: &str| -> String { text.bytes().map(letter).collect() };
        let (left, right) = (spelled(left), spelled(right));
        self.merges.push(format!("{left} {right}").into_bytes());
        self.add(&format!("{left}{right}"), NORMAL)
    }

    /// Merges for words whose halves are bytes or words before them.
    pub(crate) fn words(&mut self, words: &[&str]) {
        for word in words {
            let half = word.len() / 2;
            self.merge(&word[..half], &word[half..]);
        }
    }

    pub(crate) fn config(&self) -> TokenizerConfig<'_> {
        TokenizerConfig {
            architecture: self.architecture,
            model: Some("gpt2"),
            pre: self.pre,
            tokens: self.tokens.iter().map(Vec::as_slice).collect(),
            types: self.types.clone(),
            merges: self.merges.iter().map(Vec::as_slice).collect(),
            ids: self.ids,
            add_bos_token: self.add_bos_token,
        }
    }

    pub(crate) fn build(&self) -> Tokenizer {
        Tokenizer::new(&self.config()).expect("a sound vocabulary")
    }

    pub(crate) fn id(&self, token: &str) -> u32 {
        let found = self.tokens.iter().position(|t| t == token.as_bytes());
        found.expect("a token of this vocabulary") as u32
    }
}

/// The letter of a byte in byte-level vocabularies, by the published recipe: printable bytes of Latin-1 are
/// themselves, the others count up from U+0100.
pub(crate) fn letter(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + before).expect("a letter")
}

/// A file of the repository's fixtures.
fn fixture(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// A golden table of `fixtures/golden/tokenizer/`.
pub(crate) fn golden<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = fixture("golden/tokenizer").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A real vocabulary, which the repository doesn't hold: from `fixtures/cache/` or `DEMASK_VOCAB_DIR`.
pub(crate) fn vocabulary(file: &str) -> Option<Gguf> {
    let folder = std::env::var_os("DEMASK_VOCAB_DIR").map_or_else(|| fixture("cache"), PathBuf::from);
    let path = folder.join(file);
    if !path.exists() {
        assert!(std::env::var_os("DEMASK_REQUIRE_VOCAB").is_none(), "{} is not there", path.display());
        eprintln!("SKIPPED: {} is not there (fixtures/make/fetch_vocab.py brings it)", path.display());
        return None;
    }
    Some(Gguf::open(path).expect("the vocabulary opens"))
}
