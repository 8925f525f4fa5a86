//! What `-m` means.
//!
//! This is the one place that turns the words of a user into a model: a path, a repository on a hub, a short name, or
//! nothing at all. What is on a hub comes from the cache; a download needs a yes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::Result;
use demask_compute::cpu::memory;
use demask_gguf::Gguf;
use demask_hub::{Found, Hub, ModelName, Plan, SHORT_NAMES, Settings};

use crate::chosen;
use crate::consent::{self, NeedsYes};
use crate::embedded;
use crate::output::{self, size};
use crate::view::transfer::Transfer;

/// A model that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelRef {
    /// The one inside the program.
    Embedded,
    /// A file, or any part of a split model.
    File(PathBuf),
    /// `owner/repo`, `owner/repo:QUANT`, or a name from a table such as `llada`.
    Named(Named),
}

/// A model of a hub, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    given: String,
    consent: Consent,
}

/// What may be done to get a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Consent {
    /// Download without asking.
    pub(crate) yes: bool,
    /// Ask no server.
    pub(crate) offline: bool,
}

impl ModelRef {
    /// Reads the value of `-m`; nothing is what `demask setup` has chosen, else the embedded model.
    pub(crate) fn new(given: Option<&OsStr>, consent: Consent) -> ModelRef {
        match given {
            Some(given) => ModelRef::read(given, consent),
            None => ModelRef::chosen(consent),
        }
    }

    /// What `demask setup` has chosen; says once if that can't be used.
    fn chosen(consent: Consent) -> ModelRef {
        static SAY: Once = Once::new();
        let chosen = match chosen::read() {
            Ok(chosen) => chosen,
            Err(error) => {
                let text = format!("the embedded model is used: {error:#}; `demask setup` writes it anew");
                SAY.call_once(|| output::line("warning", &text));
                None
            }
        };
        let Some(model) = chosen else { return ModelRef::Embedded };
        let found = ModelRef::read(OsStr::new(&model), consent);
        if found.path().is_some_and(|path| !path.exists()) {
            let text = "`demask setup` chose the model, which is gone; `demask setup` chooses another, so does `-m`";
            SAY.call_once(|| output::line("note", text));
        }
        found
    }

    /// Reads a name. A file that exists is always meant as such.
    pub(crate) fn read(given: &OsStr, consent: Consent) -> ModelRef {
        let path = Path::new(given);
        let text = given.to_str().unwrap_or_default();
        if text == chosen::EMBEDDED && !path.exists() {
            return ModelRef::Embedded;
        }
        let is_name = is_short(text) || ModelName::is_link(text) || ModelName::looks_like_one(text);
        if path.exists() || looks_like_a_file(text) || !is_name {
            return ModelRef::File(path.to_owned());
        }
        ModelRef::Named(Named { given: text.to_owned(), consent })
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
        match self {
            ModelRef::Embedded => {
                let gguf = embedded::open()?;
                let name = gguf.metadata().string("general.name")?.unwrap_or("a small model");
                output::line("note", &format!("using the embedded toy model {name}; `-m` takes another"));
                Ok(gguf)
            }
            ModelRef::File(path) => Ok(Gguf::open(path)?),
            ModelRef::Named(named) => Ok(Gguf::open(&named.found()?.files[0])?),
        }
    }
}

/// A file that was looked at, read as a whole.
pub(crate) fn read_whole(gguf: &Gguf, path: &Path) -> Result<Gguf> {
    let (file, needed) = (gguf.name().to_owned(), gguf.file_bytes());
    match memory::available() {
        Some(available) if available < needed => Err(demask::Error::Memory { file, needed, available }.into()),
        _ => Ok(Gguf::read(path)?),
    }
}

impl Named {
    /// Its files: from the cache, or after a yes from the hub.
    fn found(&self) -> Result<Found> {
        let model = model_name(&self.given)?;
        let hub = hub(self.consent)?;
        if let Some(found) = hub.find(&model) {
            return Ok(found);
        }
        if hub.settings().offline {
            return Err(demask_hub::Error::Offline { what: model.to_string() }.into());
        }
        if !self.consent.yes && !consent::can_ask() {
            let message = format!("{} is not on this machine, and nothing is downloaded without a yes", self.given);
            return Err(NeedsYes::new(message, format!("demask pull {} --yes", self.given)).into());
        }
        let mut transfer = Transfer::new();
        let plan = hub.plan(&model, &mut |event| transfer.event(event))?;
        agree(&plan, &hub, self.consent, &format!("demask pull {} --yes", self.given))?;
        Ok(hub.pull(&plan, &mut |event| transfer.event(event))?)
    }
}

/// The model behind a name: `owner/repo...` or a short one.
pub(crate) fn model_name(given: &str) -> Result<ModelName, demask_hub::Error> {
    if given.contains('/') || !is_short(given) { given.parse() } else { ModelName::from_short(given) }
}

/// The hub that the environment and the options tell.
pub(crate) fn hub(consent: Consent) -> Result<Hub> {
    let mut settings = Settings::from_env()?;
    settings.offline |= consent.offline;
    Ok(Hub::new(settings))
}

/// Gets a yes for what a plan will download; `command` is what finishes the job otherwise.
pub(crate) fn agree(plan: &Plan, hub: &Hub, consent: Consent, command: &str) -> Result<()> {
    if plan.missing == 0 || consent.yes {
        return Ok(());
    }
    let rest =
        if plan.missing < plan.bytes { format!(", {} of it to come", size(plan.missing)) } else { String::new() };
    let question = format!(
        "Download {} ({}{rest}) from {} into {}?",
        plan.model,
        size(plan.bytes),
        hub.settings().host(),
        hub.settings().cache.display()
    );
    let message = format!("{} ({}{rest}) is not downloaded without a yes", plan.model, size(plan.bytes));
    consent::ask(&question, || NeedsYes::new(message, command.to_owned()))
}

fn looks_like_a_file(text: &str) -> bool {
    text.is_empty()
        || text.starts_with(['.', '/', '~'])
        || text.contains('\\')
        || (text.to_ascii_lowercase().ends_with(".gguf") && !text.contains(':'))
}

/// A name of the table, or what may be meant as one.
fn is_short(text: &str) -> bool {
    let name = text.split([':', '@']).next().unwrap_or_default();
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let known = SHORT_NAMES.iter().any(|row| row.name.eq_ignore_ascii_case(name));
    !name.is_empty() && plain(name) && (known || plain(text)) && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_look_like() {
        let of = |text: &str| ModelRef::read(OsStr::new(text), Consent::default());
        for name in [
            "GSAI-ML/LLaDA",
            "GSAI-ML/LLaDA:Q4_K_M",
            "a/b@main",
            "a/b:m.Q8_0.gguf",
            "llada",
            "llada:Q8_0",
            "lada",
            "dream@x:F16",
            "hf.co/a/b:Q8_0",
            "https://huggingface.co/a/b",
            "https://else.where/m.gguf",
        ] {
            let named = Named { given: name.into(), consent: Consent::default() };
            assert_eq!(of(name), ModelRef::Named(named), "{name}");
        }
        for path in [
            "models/x.gguf",
            "./llada",
            "/a/b",
            "~/x",
            "a/b/c",
            "x.GGUF",
            "",
            "two words",
            "ünï",
            "src/main.rs",
            "lada:x",
        ] {
            assert_eq!(of(path), ModelRef::File(PathBuf::from(path)), "{path}");
        }
        assert_eq!(model_name("a/b:Q8_0").ok().map(|model| model.to_string()).as_deref(), Some("a/b:Q8_0"));
        assert!(model_name("llada").is_ok() && model_name("lada").is_err() && model_name("a/b/c").is_err());
    }
}
