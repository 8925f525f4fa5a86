//! Asking for a yes: on a terminal; elsewhere the command that finishes the job is told.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result};
use demask_gguf::escape;

/// A command stops because nobody has said yes: exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NeedsYes {
    message: String,
    command: String,
}

impl NeedsYes {
    /// What isn't done, and the command that does it.
    pub(crate) fn new(message: impl Into<String>, command: impl Into<String>) -> NeedsYes {
        NeedsYes { message: message.into(), command: command.into() }
    }

    pub(crate) fn hint(&self) -> String {
        format!("`{}` does it", self.command)
    }
}

/// Whether somebody is there to be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on the terminal; only `y` and `yes` are a yes.
///
/// # Errors
/// [`NeedsYes`] without a yes, or without a terminal.
pub(crate) fn ask(question: &str, otherwise: impl FnOnce() -> NeedsYes) -> Result<()> {
    if !can_ask() {
        return Err(otherwise().into());
    }
    let _ = write!(io::stderr(), "{} [y/N] ", escape(question));
    let _ = io::stderr().flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(otherwise().into()),
    }
}
