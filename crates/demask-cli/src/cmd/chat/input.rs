//! Where the lines of a conversation come from: a line editor on a terminal, plain lines elsewhere.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, CompletionType, Config, Context, Editor, Helper, Highlighter, Hinter, KeyCode, KeyEvent, Modifiers,
};

use super::orders::ORDERS;
use crate::failure::Advised;
use crate::output;
use crate::prompt::LONGEST;
use crate::signals;
use crate::view::live::terminal_is_dumb;
use crate::view::mode;

/// What stands before a line.
const PROMPT: &str = "> ";
/// Around a message of many lines.
const FENCE: &str = "\"\"\"";
/// Lines that the history keeps.
const REMEMBERED: usize = 1000;

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Line(String),
    /// Ctrl-C, once or again without anything else in between.
    Interrupt,
    /// There is no more.
    End,
}

/// Where lines come from.
pub(super) enum Input {
    Editor(Box<LineEditor>),
    Plain { terminal: bool },
}

impl Input {
    /// A line editor if stdin is a terminal that can move its cursor. `remember` is whether lines are kept in a file.
    pub(super) fn new(remember: bool) -> Result<Input> {
        let terminal = io::stdin().is_terminal();
        if !terminal || terminal_is_dumb() {
            return Ok(Input::Plain { terminal });
        }
        Ok(Input::Editor(Box::new(LineEditor::new(remember).context("cannot edit lines on this terminal")?)))
    }

    /// Whether somebody sits there.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Input::Editor(_) | Input::Plain { terminal: true })
    }

    /// The next message or order, which may have many lines.
    pub(super) fn read(&mut self) -> Result<Heard> {
        match self {
            Input::Editor(editor) => editor.read(),
            Input::Plain { terminal } => {
                let heard = read_plain(*terminal)?;
                // A log of both streams reads like the conversation.
                if let (Heard::Line(line), false) = (&heard, *terminal)
                    && !line.trim().is_empty()
                {
                    output::say(&format!("{PROMPT}{line}"));
                }
                Ok(heard)
            }
        }
    }
}

/// Reads a line, or the lines between two fences.
fn read_plain(prompts: bool) -> Result<Heard> {
    let mut text = String::new();
    loop {
        // Before the prompt: who sees it may press Ctrl-C at once.
        signals::at_prompt(true);
        if prompts {
            let mut stderr = io::stderr();
            let _ = stderr.write_all(if text.is_empty() { PROMPT.as_bytes() } else { b"... " });
            let _ = stderr.flush();
        }
        let mut bytes = Vec::new();
        let read = io::stdin().lock().take(LONGEST + 1).read_until(b'\n', &mut bytes);
        signals::at_prompt(false);
        read.context("cannot read stdin")?;
        if bytes.is_empty() {
            return Ok(if text.is_empty() { Heard::End } else { Heard::Line(text) });
        }
        if bytes.len() as u64 > LONGEST {
            let message = format!("a line of stdin is longer than {} MiB", LONGEST >> 20);
            return Err(Advised::new(message, "split it into several messages").into());
        }
        let line = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            Advised::new(format!("the line is not UTF-8: byte {at} is 0x{byte:02x}"), "write it in UTF-8")
        })?;
        text.push_str(&line);
        if !is_open(&text) {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            return Ok(Heard::Line(unfenced(text.strip_suffix('\r').unwrap_or(text)).to_owned()));
        }
    }
}

/// Whether a fence was opened and not closed.
fn is_open(text: &str) -> bool {
    text.trim_start().strip_prefix(FENCE).is_some_and(|rest| !rest.trim_end().ends_with(FENCE))
}

/// The text without its fences.
fn unfenced(text: &str) -> &str {
    let inner = text.trim().strip_prefix(FENCE).and_then(|rest| rest.strip_suffix(FENCE));
    let Some(inner) = inner else { return text };
    let inner = inner.strip_prefix('\n').unwrap_or(inner);
    inner.strip_suffix('\n').unwrap_or(inner)
}

/// Lines with editing, history, completion of orders, and fences.
pub(super) struct LineEditor {
    editor: Editor<Rules, FileHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    fn new(remember: bool) -> rustyline::Result<LineEditor> {
        // Where stdout is a file or a pipe, prompts belong to the terminal all the same.
        let behavior = if io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .max_history_size(REMEMBERED)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .behavior(behavior)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Rules));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = if remember { history_file() } else { None };
        if let Some(path) = history.as_deref().filter(|path| path.exists())
            && let Err(error) = editor.load_history(path)
        {
            output::line("warning", &format!("cannot read the history `{}`: {error}", path.display()));
        }
        Ok(LineEditor { editor, history })
    }

    fn read(&mut self) -> Result<Heard> {
        mode::keep();
        signals::editing(true);
        let line = self.editor.readline(PROMPT);
        signals::editing(false);
        mode::forget();
        match line {
            Ok(line) => {
                self.remember(&line);
                Ok(Heard::Line(unfenced(&line).to_owned()))
            }
            Err(ReadlineError::Interrupted) => Ok(Heard::Interrupt),
            Err(ReadlineError::Eof) => Ok(Heard::End),
            // What comes from a terminal that is gone.
            Err(ReadlineError::Io(error)) if error.raw_os_error() == Some(EIO) => Ok(Heard::End),
            #[cfg(unix)]
            Err(ReadlineError::Errno(error)) if error as i32 == EIO => Ok(Heard::End),
            // As what the input ends with: it would fail again and again.
            Err(ReadlineError::Io(error)) => Err(error).context("cannot read from the terminal"),
            Err(error) => Err(std::io::Error::other(error)).context("cannot read from the terminal"),
        }
    }

    /// Each line is kept at once: a program that is killed has lost nothing.
    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() || !matches!(self.editor.add_history_entry(line), Ok(true)) {
            return;
        }
        let Some(path) = &self.history else { return };
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
        if let Err(error) = folder.and_then(|()| self.editor.append_history(path)) {
            output::line("warning", &format!("cannot write the history `{}`: {error}", path.display()));
            self.history = None;
        }
    }
}

/// Input/output error, as terminals report a hangup.
const EIO: i32 = 5;

/// `$XDG_STATE_HOME/demask/history`, else `~/.local/state/demask/history`; nowhere without a home.
fn history_file() -> Option<PathBuf> {
    Some(demask_hub::own_folder("XDG_STATE_HOME", ".local/state")?.join("history"))
}

/// Fences keep a line open; Tab completes orders.
#[derive(Helper, Hinter, Highlighter)]
struct Rules;

impl Validator for Rules {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_open(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Rules {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = line.get(..at).and_then(|line| line.strip_prefix('/'));
        let rows = ORDERS.iter().filter(|row| begun.is_some_and(|begun| row.name.starts_with(begun)));
        Ok((0, rows.map(|row| format!("/{}", row.name)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_hold_many_lines() {
        for (text, open, inner) in [
            ("one line", false, "one line"),
            ("\"\"\"", true, ""),
            ("\"\"\"\nfirst\n", true, ""),
            ("\"\"\"\nfirst\n  second\n\"\"\"", false, "first\n  second"),
            ("\"\"\"inline\"\"\"", false, "inline"),
            ("\"\"\"a\n\nb\"\"\"  ", false, "a\n\nb"),
            ("say \"\"\" in the middle", false, "say \"\"\" in the middle"),
        ] {
            assert_eq!(is_open(text), open, "{text:?}");
            if !open {
                assert_eq!(unfenced(text), inner, "{text:?}");
            }
        }
    }

    #[test]
    fn orders_are_completed() {
        let history = FileHistory::new();
        let complete = |line: &str| Rules.complete(line, line.len(), &Context::new(&history)).expect("completes").1;
        assert_eq!(complete("/re"), ["/recipe", "/retry"]);
        assert_eq!(complete("/se"), ["/seed"]);
        assert!(complete("re").is_empty() && complete("/retry x").is_empty());
    }
}
