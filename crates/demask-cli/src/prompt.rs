//! The prompt: from the argument, files and stdin, as tokens.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use demask::text::{Specials, Tokenizer};
use demask::{ChatTemplate, Message, Role};
use demask_gguf::{Gguf, escape};

use crate::args::PromptArgs;
use crate::failure::Misuse;
use crate::output;

/// The longest text that is taken from one place.
pub(crate) const LONGEST: u64 = 64 << 20;

/// Where a text comes from: an argument, files and stdin in this order, joined with newlines.
pub(crate) struct Source<'a> {
    /// What messages call it.
    pub(crate) what: &'a str,
    pub(crate) argument: Option<&'a OsStr>,
    pub(crate) files: &'a [PathBuf],
    /// Whether the newline at the end of a file or of stdin counts.
    pub(crate) keeps_newline: bool,
}

impl Source<'_> {
    /// The text.
    pub(crate) fn text(&self) -> Result<String> {
        let what = self.what;
        let mut parts = Vec::new();
        if let Some(argument) = self.argument {
            parts.push(utf8_argument(&format!("the {what}"), argument)?);
        }
        for path in self.files {
            let name = escape(path.as_os_str().as_encoded_bytes());
            let file = File::open(path).with_context(|| format!("cannot read the {what} file `{name}`"))?;
            let text = self.read(file, &format!("the {what} file `{name}`"))?;
            // An empty file is what empty stdin is: no part of the prompt.
            if !text.is_empty() {
                parts.push(text);
            }
        }
        if stdin_is_readable() {
            let waiting = Waiting::start();
            let text = self.read(io::stdin().lock(), "stdin")?;
            drop(waiting);
            if !text.is_empty() {
                parts.push(text);
            }
        }
        if parts.is_empty() {
            let hint = "give it as an argument, with `-f FILE` or through a pipe";
            return Err(Misuse::new(format!("there is no {what}"), hint).into());
        }
        Ok(parts.join("\n"))
    }

    /// Refuses at once what [`Source::text`] would refuse without reading anything.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(argument) = self.argument {
            utf8_argument(&format!("the {}", self.what), argument)?;
        }
        if self.argument.is_none() && self.files.is_empty() && !stdin_is_readable() {
            self.text()?;
        }
        Ok(())
    }

    fn read(&self, from: impl Read, name: &str) -> Result<String> {
        let mut text = utf8(name, read_bounded(from, name)?)?;
        if text.starts_with('\u{feff}') {
            output::line("note", &format!("{name} begins with a byte order mark, which is part of the {}", self.what));
        }
        if !self.keeps_newline && text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        Ok(text)
    }
}

/// Everything that `from` holds, unless that is more than any text.
pub(crate) fn read_bounded(from: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LONGEST + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > LONGEST {
        bail!("{name} is longer than {} MiB", LONGEST >> 20);
    }
    Ok(bytes)
}

impl PromptArgs {
    fn source(&self) -> Source<'_> {
        let argument = self.prompt.as_deref();
        Source { what: "prompt", argument, files: &self.files, keeps_newline: self.no_chat }
    }

    /// The files that are read.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Refuses at once what can be refused without reading anything.
    pub(crate) fn check(&self) -> Result<()> {
        self.system()?;
        self.source().check()
    }

    fn system(&self) -> Result<Option<String>> {
        self.system.as_deref().map(|text| utf8_argument("--system", text)).transpose()
    }

    /// The prompt's tokens: a conversation in the form of the model's chat template, or the text as it is.
    pub(crate) fn tokens(&self, gguf: &Gguf, tokenizer: &Tokenizer, special: bool) -> Result<Vec<u32>> {
        let text = self.source().text()?;
        if self.no_chat {
            return Ok(raw(tokenizer, &text, special));
        }
        let mut messages = Vec::new();
        if let Some(system) = self.system()? {
            messages.push(Message::new(Role::System, system));
        }
        messages.push(Message::new(Role::User, text));
        Ok(template(gguf)?.encode(tokenizer, &messages, true).map_err(demask::Error::from)?)
    }
}

fn template(gguf: &Gguf) -> Result<ChatTemplate, demask::Error> {
    let architecture = gguf.metadata().require_string("general.architecture")?;
    let template = gguf.metadata().string("tokenizer.chat_template")?;
    Ok(ChatTemplate::for_model(template, architecture)?)
}

fn raw(tokenizer: &Tokenizer, text: &str, special: bool) -> Vec<u32> {
    if !special {
        return tokenizer.encode_prompt_raw(text);
    }
    let mut tokens = tokenizer.encode_prompt_raw("");
    let rest = tokenizer.encode(text, Specials::Parse);
    if tokens.first() == rest.first() {
        tokens.clear();
    }
    tokens.extend(rest);
    tokens
}

/// Text of an argument.
pub(crate) fn utf8_argument(name: &str, text: &OsStr) -> Result<String> {
    utf8(name, text.as_encoded_bytes().to_vec())
        .map_err(|error| Misuse::new(error.to_string(), "write it in UTF-8").into())
}

fn utf8(name: &str, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        anyhow::anyhow!("{name} is not UTF-8: byte {at} is 0x{byte:02x}")
    })
}

/// Tells a person who waits for a prompt that we wait for stdin.
struct Waiting(Arc<AtomicBool>);

impl Waiting {
    fn start() -> Waiting {
        let waits = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&waits);
        // Without the thread nothing is told, and nothing else changes.
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(Duration::from_secs(2));
            if told.load(Ordering::Relaxed) {
                output::line("note", "reading stdin for more of the prompt; `< /dev/null` if there is none");
            }
        });
        Waiting(waits)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Whether stdin holds something to read: a pipe, a file or a socket, but no terminal and no device.
#[cfg(unix)]
fn stdin_is_readable() -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileTypeExt as _;
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return false;
    }
    let kind = stdin.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata()).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_fifo() || kind.is_socket())
}

/// Whether stdin holds something to read.
#[cfg(not(unix))]
fn stdin_is_readable() -> bool {
    !io::stdin().is_terminal()
}
