//! `demask tokenize`: token ids of a prompt.

use anyhow::Result;
use demask::text::{Tokenizer, TokenizerConfig};
use serde::Serialize;

use super::name_file;
use crate::args::TokenizeArgs;
use crate::output::{self, Out};

/// The object of `--json`.
#[derive(Serialize)]
struct Tokens {
    /// The file.
    model: String,
    /// How many ids there are.
    count: usize,
    /// The ids.
    tokens: Vec<u32>,
    /// What each stands for, escaped for one line.
    texts: Vec<String>,
}

/// Runs the command. Only the tokenizer is needed: any architecture will do.
pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    args.prompt.check()?;
    let gguf = args.model.open()?;
    let tokenizer = TokenizerConfig::from_gguf(&gguf)
        .and_then(|config| Tokenizer::new(&config))
        .map_err(|error| name_file(demask::Error::from(error).into(), gguf.name()))?;
    for warning in tokenizer.warnings() {
        output::line("warning", warning);
    }
    let tokens = args.prompt.tokens(&gguf, &tokenizer, args.special).map_err(|error| name_file(error, gguf.name()))?;
    let mut out = Out::stdout();
    if args.json {
        let texts = tokens.iter().map(|&id| tokenizer.token_text(id)).collect();
        out.json(&Tokens { model: gguf.name().to_owned(), count: tokens.len(), tokens, texts })?;
    } else {
        out.line(&format!("{tokens:?}"))?;
    }
    out.flush()
}
