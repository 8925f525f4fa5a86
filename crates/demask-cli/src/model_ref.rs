//! What `-m` means.
//!
//! This is the one place that turns the words of a user into a model: a path, a repository on a hub, a short name, or
//! nothing at all. Downloads plug in at [`ModelRef::open`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use demask_gguf::{Gguf, escape};

use crate::embedded;
use crate::failure::Advised;
use crate::output;

/// A model that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelRef {
    /// Nothing was asked for.
    Embedded,
    /// A file, or any part of a split model.
    File(PathBuf),
    /// `owner/repo` or `owner/repo:QUANT`.
    Hub(String),
    /// A name from a table, such as `llada`.
    Short(String),
}

impl ModelRef {
    /// Reads the value of `-m`. A file that exists is always meant as such.
    pub(crate) fn new(given: Option<&OsStr>) -> ModelRef {
        let Some(given) = given else {
            return ModelRef::Embedded;
        };
        let path = Path::new(given);
        let text = given.to_str().unwrap_or_default();
        if path.exists() || looks_like_a_file(text) {
            return ModelRef::File(path.to_owned());
        }
        match text {
            _ if is_hub(text) => ModelRef::Hub(text.to_owned()),
            _ if is_short(text) => ModelRef::Short(text.to_owned()),
            _ => ModelRef::File(path.to_owned()),
        }
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            ModelRef::File(path) => Some(path),
            _ => None,
        }
    }

    /// Opens the model's file; of its weights nothing is read yet.
    pub(crate) fn open(&self) -> Result<Gguf> {
        let not_built = |what: &str, name: &str| {
            let message =
                format!("`{}` is no file here, and {what} need downloads, which are not built yet", escape(name));
            Advised::new(message, "give `-m` the path of a GGUF file, or leave it out for the embedded model")
        };
        match self {
            ModelRef::Embedded => {
                let gguf = embedded::open()?;
                let name = gguf.metadata().string("general.name")?.unwrap_or("a small model");
                output::line("note", &format!("using the embedded toy model {name}; `-m` takes another"));
                Ok(gguf)
            }
            ModelRef::File(path) => Ok(Gguf::open(path)?),
            ModelRef::Hub(name) => Err(not_built("models of a hub", name).into()),
            ModelRef::Short(name) => Err(not_built("models by name", name).into()),
        }
    }
}

fn looks_like_a_file(text: &str) -> bool {
    text.is_empty()
        || text.starts_with(['.', '/', '~'])
        || text.contains('\\')
        || text.to_ascii_lowercase().ends_with(".gguf")
}

fn is_hub(text: &str) -> bool {
    let (repo, quant) = text.split_once(':').unwrap_or((text, "any"));
    repo.split_once('/').is_some_and(|(owner, name)| is_short(owner) && is_short(name)) && is_short(quant)
}

fn is_short(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_look_like() {
        let of = |text: &str| ModelRef::new(Some(OsStr::new(text)));
        let file = |text: &str| ModelRef::File(PathBuf::from(text));
        assert_eq!(ModelRef::new(None), ModelRef::Embedded);
        assert_eq!(of("GSAI-ML/LLaDA"), ModelRef::Hub("GSAI-ML/LLaDA".into()));
        assert_eq!(of("GSAI-ML/LLaDA:Q4_K_M"), ModelRef::Hub("GSAI-ML/LLaDA:Q4_K_M".into()));
        assert_eq!(of("llada"), ModelRef::Short("llada".into()));
        for path in
            ["models/x.gguf", "./llada", "/a/b", "~/x", "a/b/c", "x.GGUF", "", "two words", "ünï", "src/main.rs"]
        {
            assert_eq!(of(path), file(path), "{path}");
        }
    }
}
