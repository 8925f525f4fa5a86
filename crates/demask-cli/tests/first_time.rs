//! A first-time user's path, from nothing to answers, on a terminal and against a hub on loopback. What they see is a snapshot.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../demask-hub/tests/fake_hub/mod.rs"]
mod fake_hub;
mod harness;

use std::fmt::Write as _;
use std::path::Path;

use fake_hub::FakeHub;
use harness::terminal::Terminal;
use harness::workspace;

const READY: &str = "\u{1b}[?2004h";

struct Visit<'a> {
    home: &'a Path,
    hub: FakeHub,
    transcript: String,
}

impl Visit<'_> {
    fn start(&self, arguments: &[&str]) -> Terminal {
        Terminal::demask(arguments, self.home, &[("HF_ENDPOINT", &self.hub.url)])
    }

    /// Waits for the end, and writes down what stands on the screen.
    fn finish(&mut self, mut terminal: Terminal, arguments: &[&str], steady: impl Fn(&str) -> String) {
        let (code, raw) = terminal.finish();
        let screen = terminal.screen();
        assert!(!screen.hide_cursor() && !screen.bracketed_paste(), "{raw:?}");
        let shown: Vec<String> = screen.contents().trim_end().lines().map(steady).collect();
        writeln!(self.transcript, "$ demask {}\n{}", arguments.join(" "), shown.join("\n")).unwrap();
        assert_eq!(code, 0, "{}", self.transcript);
    }

    fn run(&mut self, arguments: &[&str], steady: impl Fn(&str) -> String) {
        let terminal = self.start(arguments);
        self.finish(terminal, arguments, steady);
    }
}

/// What of a health report is the same on every machine: what was looked at, and that nothing is broken.
fn verdicts(line: &str) -> String {
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some("broken"), _) => line.to_owned(),
        (Some("ok" | "warning"), Some(what)) => format!("not broken: {what}"),
        _ => "...".to_owned(),
    }
}

#[test]
fn from_nothing_to_answers() {
    let home = tempfile::tempdir().unwrap();
    let mut visit = Visit { home: home.path(), hub: FakeHub::start(), transcript: String::new() };
    let model = std::fs::read(workspace("assets/demask-tiny-q8_0.gguf")).unwrap();
    visit.hub.file("someone/demask-tiny-GGUF", "demask-tiny.Q8_0.gguf", &model);

    visit.run(&["setup", "--model", "someone/demask-tiny-GGUF", "--yes"], verdicts);
    visit.run(&["run", "-n", "64", "List the planets separated by commas."], str::to_owned);

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
    visit.finish(terminal, &chat, str::to_owned);

    visit.run(&["infill", "The capital of [[4]] is Copenhagen."], str::to_owned);
    visit.run(&["doctor"], verdicts);
    assert!(!visit.transcript.contains("\nbroken"), "{}", visit.transcript);
    insta::assert_snapshot!(visit.transcript);
}
