//! What a tokenizer is built from.

use demask_gguf::Gguf;

use super::TextError;

/// A tokenizer as a GGUF file describes it, with the texts left where they lie. Nothing is checked yet.
#[derive(Debug, Clone, Default)]
pub struct TokenizerConfig<'a> {
    /// `general.architecture`.
    pub architecture: &'a str,
    /// `tokenizer.ggml.model`.
    pub model: Option<&'a str>,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<&'a str>,
    /// `tokenizer.ggml.tokens`.
    pub tokens: Vec<&'a [u8]>,
    /// `tokenizer.ggml.token_type`; empty where the file has none.
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`.
    pub merges: Vec<&'a [u8]>,
    /// `tokenizer.ggml.*_token_id`.
    pub ids: ConfigIds,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos_token: Option<bool>,
}

/// The special ids as the file gives them; -1 means none.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConfigIds {
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<i64>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<i64>,
    /// `tokenizer.ggml.eot_token_id`.
    pub eot: Option<i64>,
    /// `tokenizer.ggml.eom_token_id`.
    pub eom: Option<i64>,
    /// `tokenizer.ggml.mask_token_id`.
    pub mask: Option<i64>,
    /// `tokenizer.ggml.padding_token_id`.
    pub pad: Option<i64>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<i64>,
}

impl<'a> TokenizerConfig<'a> {
    /// Reads the tokenizer's keys of an open file.
    ///
    /// # Errors
    /// A key of the wrong type, and a file without `general.architecture` or byte-level BPE's merges.
    pub fn from_gguf(file: &'a Gguf) -> Result<TokenizerConfig<'a>, TextError> {
        let meta = file.metadata();
        let texts = |key: &str| -> Result<Vec<&'a [u8]>, TextError> {
            Ok(meta.strings(key)?.map(|array| array.iter().collect()).unwrap_or_default())
        };
        let (model, merges) = (meta.string("tokenizer.ggml.model")?, "tokenizer.ggml.merges");
        // Without them every character would be a token: the model would run, and answer nonsense.
        if model == Some("gpt2") && meta.get(merges).is_none() {
            return Err(TextError::MissingKey { key: merges });
        }
        Ok(TokenizerConfig {
            architecture: meta.require_string("general.architecture")?,
            model,
            pre: meta.string("tokenizer.ggml.pre")?,
            tokens: texts("tokenizer.ggml.tokens")?,
            types: meta.i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: texts(merges)?,
            ids: ConfigIds {
                bos: meta.i64("tokenizer.ggml.bos_token_id")?,
                eos: meta.i64("tokenizer.ggml.eos_token_id")?,
                eot: meta.i64("tokenizer.ggml.eot_token_id")?,
                eom: meta.i64("tokenizer.ggml.eom_token_id")?,
                mask: meta.i64("tokenizer.ggml.mask_token_id")?,
                pad: meta.i64("tokenizer.ggml.padding_token_id")?,
                unknown: meta.i64("tokenizer.ggml.unknown_token_id")?,
            },
            add_bos_token: meta.bool("tokenizer.ggml.add_bos_token")?,
        })
    }
}
