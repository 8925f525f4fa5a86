//! What `demask setup` has chosen, kept in the XDG configuration folder: `demask/config.json`.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

/// The name of the model inside the program.
pub(crate) const EMBEDDED: &str = "embedded";

/// The file's content. Keys that a later version writes are kept out of the way.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Config {
    /// What `-m` would be given.
    model: Option<String>,
}

/// Where it is; nothing if neither `XDG_CONFIG_HOME` nor `HOME` is set.
pub(crate) fn path() -> Option<PathBuf> {
    Some(demask_hub::own_folder("XDG_CONFIG_HOME", ".config")?.join("config.json"))
}

/// The chosen model, if there is one that can be read. `demask doctor` tells about a file that can't.
pub(crate) fn model() -> Option<String> {
    read().ok().flatten()
}

/// The chosen model; an error is a file that can't be used.
pub(crate) fn read() -> Result<Option<String>> {
    let Some(path) = path() else { return Ok(None) };
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let config: Config =
        serde_json::from_slice(&text).with_context(|| format!("{} is not what demask writes", path.display()))?;
    Ok(config.model)
}

/// Remembers a model.
pub(crate) fn write(model: &str) -> Result<PathBuf> {
    let Some(path) = path() else {
        bail!("cannot remember the model: neither XDG_CONFIG_HOME nor HOME is set");
    };
    let text = serde_json::to_vec_pretty(&Config { model: Some(model.to_owned()) })?;
    demask_hub::write_whole(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Forgets it.
pub(crate) fn forget() -> Result<()> {
    match path().map(fs::remove_file) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error).context("cannot forget the model"),
        _ => Ok(()),
    }
}
