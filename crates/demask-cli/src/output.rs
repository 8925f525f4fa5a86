//! Writing to stdout (the answer, nothing else) and stderr (everything else).

use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _};

use anyhow::{Context as _, Result};
use demask_gguf::escape;

use crate::failure::Ended;

/// Stdout, locked. A reader that has left ends the command as a success.
pub(crate) struct Out {
    inner: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Out {
    /// Takes stdout.
    pub(crate) fn stdout() -> Out {
        let stdout = io::stdout();
        Out { terminal: stdout.is_terminal(), inner: BufWriter::new(stdout.lock()) }
    }

    /// Whether it is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        checked(self.inner.write_all(bytes))
    }

    /// Writes text: as it is, or on a terminal without the bytes that would drive it.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        if self.terminal { self.bytes(for_terminal(text).as_bytes()) } else { self.bytes(text.as_bytes()) }
    }

    /// Writes a line that holds no control characters already.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string(value).context("cannot write JSON")?;
        self.line(&printable_json(&text))
    }

    /// Hands everything to the reader.
    pub(crate) fn flush(&mut self) -> Result<()> {
        checked(self.inner.flush())
    }
}

fn checked(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Ended::PipeClosed.into()),
        other => other.context("cannot write to stdout"),
    }
}

/// JSON escapes only some control characters; the others (which stand inside strings only) follow here.
fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if drives_terminal(c) { out.push_str(&format!("\\u{:04x}", u32::from(c))) } else { out.push(c) }
    }
    out
}

/// Control characters and those that reorder text.
fn drives_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for a terminal: lines and tabs stay, other control characters are shown.
pub(crate) fn for_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') || !c.is_control() {
            out.push(c);
        } else {
            out.push_str(&escape(c.encode_utf8(&mut [0; 4])));
        }
    }
    out
}

/// One line on stderr: `error: ...`, `hint: ...`, `note: ...`, `warning: ...`.
pub(crate) fn line(kind: &str, message: &str) {
    say(&format!("{kind}: {message}"));
}

/// One line on stderr. If nobody reads it, that is no reason to fail.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape(text));
}

/// A size in decimal units, as disks and downloads are measured.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a31_json_holds_no_control_characters() {
        let json = printable_json(&serde_json::to_string("a\u{1b}[2J\u{9b}\u{7f}\u{202e}ü").expect("a string"));
        assert_eq!(json, r#""a\u001b[2J\u009b\u007f\u202eü""#);
        let back: String = serde_json::from_str(&json).expect("still JSON");
        assert_eq!(back, "a\u{1b}[2J\u{9b}\u{7f}\u{202e}ü");
    }

    #[test]
    fn terminals_get_text_that_does_not_drive_them() {
        assert_eq!(for_terminal("a\tb\nc\u{1b}[31m\r"), "a\tb\nc\\x1b[31m\\r");
    }
}
