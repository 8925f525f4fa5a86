//! A first-time user's path, from nothing to answers, on a terminal. What they see is a snapshot.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::fmt::Write as _;
use std::path::Path;

use harness::terminal::Terminal;

const READY: &str = "\u{1b}[?2004h";

struct Visit<'a> {
    home: &'a Path,
    transcript: String,
}

impl Visit<'_> {
    fn start(&self, arguments: &[&str]) -> Terminal {
        Terminal::demask(arguments, self.home, &[])
    }

    /// Waits for the end, and writes down what stands on the screen.
    fn finish(&mut self, mut terminal: Terminal, arguments: &[&str]) {
        let (code, raw) = terminal.finish();
        let screen = terminal.screen();
        assert!(!screen.hide_cursor() && !screen.bracketed_paste(), "{raw:?}");
        let contents = screen.contents();
        let shown: Vec<&str> = contents.trim_end().lines().map(str::trim_end).collect();
        writeln!(self.transcript, "$ demask {}\n{}", arguments.join(" "), shown.join("\n")).unwrap();
        assert_eq!(code, 0, "{}", self.transcript);
    }

    fn run(&mut self, arguments: &[&str]) {
        let terminal = self.start(arguments);
        self.finish(terminal, arguments);
    }
}

#[test]
fn from_nothing_to_answers() {
    let home = tempfile::tempdir().unwrap();
    let mut visit = Visit { home: home.path(), transcript: String::new() };
    visit.run(&["run", "-n", "64", "List the planets separated by commas."]);

    let chat = ["chat", "-n", "32", "--recipe", "fast"];
    let mut terminal = visit.start(&chat);
    for line in [
        "What is 2 + 3?",
        "/retry",
        "/clear",
        "What is the capital of France?",
        "/clear",
        "What comes after Monday?",
        "/quit",
    ] {
        terminal.expect(READY);
        terminal.send(&format!("{line}\r"));
    }
    visit.finish(terminal, &chat);

    visit.run(&["infill", "The capital of [[4]] is Copenhagen."]);
    insta::assert_snapshot!(visit.transcript);
}
