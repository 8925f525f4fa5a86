//! `demask rm`: delete a model.

use std::ffi::OsStr;

use anyhow::{Context as _, Result};
use demask_gguf::escape;
use demask_hub::{Cache, Settings};

use crate::args::RmArgs;
use crate::chosen;
use crate::consent::{self, NeedsYes};
use crate::failure::Advised;
use crate::model_ref::{Consent, ModelRef, model_name};
use crate::output::{self, size};

/// Runs the command.
pub(crate) fn run(args: &RmArgs) -> Result<()> {
    let cache = Cache::new(Settings::from_env()?.cache);
    match &args.model {
        Some(model) => remove(&cache, model, args.yes),
        None => remove_unfinished(&cache, args.yes),
    }
}

fn remove(cache: &Cache, given: &str, yes: bool) -> Result<()> {
    if let ModelRef::File(_) = ModelRef::read(OsStr::new(given), Consent::default()) {
        let message = format!("`{}` is a path; `demask rm` deletes models that were pulled", escape(given));
        return Err(Advised::new(message, "`demask list` shows them; delete files of your own with `rm`").into());
    }
    let model = model_name(given)?;
    let Some(removal) = cache.removal(&model) else {
        let message = format!("{model} is not on this machine");
        return Err(Advised::new(message, "`demask list` shows what is").into());
    };
    if !yes {
        let what = if model.quant.is_some() { model.to_string() } else { format!("everything of {model}") };
        let message = format!("{what} ({}) is not deleted without a yes", size(removal.bytes));
        let question = format!("Delete {what} ({})?", size(removal.bytes));
        consent::ask(&question, || NeedsYes::new(message, format!("demask rm {given} --yes")))?;
    }
    let before = chosen::model().filter(|chosen| model_name(chosen).is_ok_and(|name| cache.find(&name).is_some()));
    removal.carry_out()?;
    output::line("note", &format!("{model} is deleted, {} are free", size(removal.bytes)));
    let gone = before.filter(|chosen| model_name(chosen).is_ok_and(|name| cache.find(&name).is_none()));
    if let Some(chosen) = gone {
        chosen::forget()?;
        output::line("note", &format!("{chosen} was the default model; `demask setup` chooses another"));
    }
    Ok(())
}

fn remove_unfinished(cache: &Cache, yes: bool) -> Result<()> {
    let half = cache.unfinished();
    if half.is_empty() {
        output::line("note", "no download is unfinished");
        return Ok(());
    }
    let bytes = half.iter().map(|(_, bytes)| bytes).sum();
    let files = if half.len() == 1 { "1 unfinished download" } else { &format!("{} unfinished downloads", half.len()) };
    if !yes {
        let message = format!("{files} ({}) are not deleted without a yes", size(bytes));
        let question = format!("Delete {files} ({})?", size(bytes));
        consent::ask(&question, || NeedsYes::new(message, "demask rm --unfinished --yes"))?;
    }
    for (path, _) in half {
        std::fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
    }
    output::line("note", &format!("{files} deleted, {} are free", size(bytes)));
    Ok(())
}
