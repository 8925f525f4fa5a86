//! What can be wrong with a tokenizer, a chat template or a conversation.

/// Why text can't be turned into tokens. Every message is one printable line.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file's metadata has the wrong shape.
    #[error(transparent)]
    File(#[from] demask_gguf::Error),
    /// A key that the tokenizer needs is not there.
    #[error("{key} is missing: the file has no tokenizer of ours")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// The tokenizer is of another family.
    #[error("tokenizer.ggml.model is \"{found}\": only \"gpt2\" (byte-level BPE) is supported")]
    UnsupportedModel {
        /// The name in the file.
        found: String,
    },
    /// The rule that cuts words is not known, or not named.
    #[error("{}", unknown_pre_tokenizer(found.as_deref(), architecture, known))]
    UnknownPreTokenizer {
        /// The name in the file, if there is one.
        found: Option<String>,
        /// The file's architecture.
        architecture: String,
        /// The names that are understood.
        known: Vec<&'static str>,
    },
    /// Tokens, types or merges contradict each other.
    #[error("{key}: {detail}")]
    BadVocabulary {
        /// The key at fault.
        key: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A special id points outside the vocabulary.
    #[error("{key} is {id}, outside the vocabulary of {vocabulary} tokens")]
    BadId {
        /// The key at fault.
        key: &'static str,
        /// The id in the file.
        id: i64,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// The chat template can't be read or fails on this conversation.
    #[error("chat template{}: {detail}", line.map(|n| format!(", line {n}")).unwrap_or_default())]
    Template {
        /// Line of the template, from 1, where known.
        line: Option<usize>,
        /// What is wrong.
        detail: String,
    },
    /// There is neither a template in the file nor a built-in one.
    #[error(
        "the file has no chat template and none is built in for architecture \"{architecture}\" (built in: {known})"
    )]
    NoTemplate {
        /// The file's architecture.
        architecture: String,
        /// The architectures with a built-in template.
        known: String,
    },
    /// The built-in template needs a token that the vocabulary lacks.
    #[error("the built-in chat template for {architecture} needs the token {token}, which the vocabulary lacks")]
    MissingMarker {
        /// The architecture of the template.
        architecture: &'static str,
        /// The token's text.
        token: &'static str,
    },
}

impl TextError {
    /// What a person can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        self.is_about_template().then_some("send the prompt as raw text, without a chat template")
    }

    /// Whether the model has no chat template that can be used.
    pub fn is_about_template(&self) -> bool {
        matches!(self, TextError::Template { .. } | TextError::NoTemplate { .. } | TextError::MissingMarker { .. })
    }
}

fn unknown_pre_tokenizer(found: Option<&str>, architecture: &str, known: &[&str]) -> String {
    let known = known.join(", ");
    match found {
        None => format!(
            "tokenizer.ggml.pre is missing, and architecture \"{}\" has no rule of its own (known names: {known})",
            shown(architecture)
        ),
        Some("default") => format!(
            "tokenizer.ggml.pre is \"default\", and architecture \"{}\" has no rule of its own (known names: {known})",
            shown(architecture)
        ),
        Some(name) => format!("tokenizer.ggml.pre is \"{}\", which is not known (known names: {known})", shown(name)),
    }
}

/// A text from a file for a message: printable, on one line, and cut where it gets long.
pub(crate) fn shown(bytes: impl AsRef<[u8]>) -> String {
    const LONGEST: usize = 80;
    let bytes = bytes.as_ref();
    match bytes.get(..LONGEST) {
        Some(front) if bytes.len() > LONGEST => format!("{}...", demask_gguf::escape(front)),
        _ => demask_gguf::escape(bytes),
    }
}
