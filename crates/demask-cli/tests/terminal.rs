//! On a terminal: `script` (util-linux) gives the program one; without it these tests say so and pass.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod harness;

use std::process::{Command, Stdio};

use harness::terminal::{Terminal, kill};
use harness::{fixture, workspace};

/// What the program writes to a terminal of 60 columns, and its exit code.
fn on_a_terminal(arguments: &str, environment: &[(&str, &str)]) -> Option<(i32, String)> {
    let command = format!("stty cols 60 rows 20; {} {arguments}", env!("CARGO_BIN_EXE_demask"));
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm-256color")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => Some((output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())),
        Err(error) => {
            eprintln!("skipped: `script` does not run here: {error}");
            None
        }
    }
}

const HIDE: &str = "\u{1b}[?25l";
const SHOW: &str = "\u{1b}[?25h";
const BEGIN: &str = "\u{1b}[?2026h";
const END: &str = "\u{1b}[?2026l";

/// Every state that was set is undone, in the end.
fn assert_restored(screen: &str) {
    for (set, undo) in [(HIDE, SHOW), (BEGIN, END), ("\u{1b}[?7l", "\u{1b}[?7h")] {
        let last = screen.rfind(set).unwrap_or_else(|| panic!("never {set:?} in {screen:?}"));
        assert!(screen.rfind(undo).is_some_and(|undone| undone > last), "{screen:?}");
    }
}

#[test]
fn the_canvas_is_drawn_and_the_text_stays() {
    let Some((code, screen)) = on_a_terminal("run -n 24 'Count from 1 to 5.'", &[]) else { return };
    assert_eq!(code, 0, "{screen}");
    assert_restored(&screen);
    assert!(screen.contains('░') && screen.contains("\u{1b}[2m"), "{screen:?}");
    let after = &screen[screen.rfind(SHOW).unwrap()..];
    let plain = harness::run(&["run", "-n", "24", "Count from 1 to 5."]).succeeded();
    assert_eq!(after.trim_start_matches(SHOW).replace("\r\n", "\n"), plain.text());
}

#[test]
fn blanks_are_drawn_within_their_text() {
    let Some((code, screen)) = on_a_terminal("infill 'All that [[8]] is not gold.'", &[]) else { return };
    assert_eq!(code, 0, "{screen}");
    assert_restored(&screen);
    assert!(screen.contains("All that ") && screen.contains('░'), "{screen:?}");
    let after = &screen[screen.rfind(SHOW).unwrap()..];
    let plain = harness::run(&["infill", "All that [[8]] is not gold."]).succeeded();
    assert_eq!(after.trim_start_matches(SHOW).replace("\r\n", "\n"), plain.text());
}

#[test]
fn an_evaluation_draws_a_bar_and_clears_it() {
    let file = workspace("assets/heldout_infill.jsonl");
    let Some((code, screen)) = on_a_terminal(&format!("eval {file} --limit 2"), &[]) else { return };
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("of 2 answers") && screen.contains('\u{2588}'), "{screen:?}");
    let cleared = screen.rfind("\r\u{1b}[K").unwrap();
    assert!(screen[cleared..].contains("| exact ") && !screen[cleared..].contains("answers,"), "{screen:?}");
}

#[test]
fn e13_no_colour_means_none() {
    let Some((_, screen)) = on_a_terminal("run -n 24 'Count from 1 to 5.'", &[("NO_COLOR", "1")]) else { return };
    assert!(screen.contains('░'));
    let codes = screen.split('\u{1b}').skip(1);
    for code in codes {
        let end = code.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        assert_ne!(&code[end..=end], "m", "{code:?}");
    }
}

#[test]
fn e13_no_escapes_where_nothing_is_drawn() {
    let model = fixture("tiny-llada-f32");
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("run -n 8 hi", &[("TERM", "dumb")]),
        ("run -n 8 --json hi", &[]),
        ("run -n 8 --live never hi", &[]),
        (&format!("inspect {model}"), &[("NO_COLOR", "1")]),
        (&format!("run -n 8 hi -m {}", workspace("nowhere.gguf")), &[]),
    ];
    for (arguments, environment) in cases {
        let Some((_, screen)) = on_a_terminal(arguments, environment) else { return };
        assert!(!screen.contains('\u{1b}'), "{arguments}: {screen:?}");
    }
}

#[test]
fn the_answer_goes_to_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("answer");
    let arguments = format!("run -n 24 --live always 'Count from 1 to 5.' > {}", out.display());
    let Some((code, screen)) = on_a_terminal(&arguments, &[]) else { return };
    assert_eq!(code, 0, "{screen}");
    assert_restored(&screen);
    let answer = std::fs::read_to_string(&out).unwrap();
    assert!(!answer.contains('\u{1b}') && answer.len() > 1, "{answer:?}");
    assert!(screen.replace("\r\n", "\n").ends_with(&answer), "{screen:?}");
}

#[test]
fn logits_are_not_for_terminals() {
    let Some((code, screen)) = on_a_terminal("logits hi", &[]) else { return };
    assert_eq!(code, 2);
    assert!(screen.contains("error: logits are binary"), "{screen}");
}

#[test]
fn e09_ctrl_c_restores_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    // The shell sends SIGINT to the program alone, once its first steps are in the trace.
    let arguments = format!(
        "run -n 400 --block-length 400 --eos keep --trace {trace} 'Count from 1 to 5.' & \
         until [ -s {trace} ] && [ $(wc -l < {trace}) -gt 2 ]; do sleep 0.05; done; kill -INT $!; wait $!"
    );
    let Some((code, screen)) = on_a_terminal(&arguments, &[]) else { return };
    assert!(screen.contains("note: stopped"), "{code}: {screen:?}");
    assert_eq!(code, 130);
    assert_restored(&screen);
}

#[test]
fn e14_a_window_that_changes_its_size_shows_one_canvas() {
    let home = tempfile::tempdir().unwrap();
    let arguments = ["run", "-n", "300", "--block-length", "300", "--eos", "keep", "Count from 1 to 5."];
    let mut terminal = Terminal::demask(&arguments, home.path(), &[]);
    let statuses = |terminal: &Terminal| terminal.screen().contents().matches(" of 300 decided").count();
    terminal.expect_step(3, 300);
    assert_eq!(statuses(&terminal), 1, "{}", terminal.screen().contents());
    // Wider, and higher: the next frames use it.
    terminal.resize(50, 100);
    terminal.expect_step(10, 300);
    terminal.expect_step(12, 300);
    let screen = terminal.screen().contents();
    assert_eq!(statuses(&terminal), 1, "{screen}");
    assert!(screen.lines().any(|line| line.chars().count() > 70), "{screen}");
    // Lower than the canvas: the lines around the news are shown, and nothing scrolls away with every frame.
    terminal.resize(3, 100);
    terminal.expect_step(20, 300);
    terminal.expect_step(25, 300);
    let screen = terminal.screen().contents();
    assert!(statuses(&terminal) <= 1 && screen.lines().count() <= 3, "{screen}");
    // Narrower: no line is broken by the terminal.
    terminal.resize(30, 40);
    terminal.expect_step(30, 300);
    terminal.send("\u{3}");
    let (code, raw) = terminal.finish();
    assert_eq!(code, 130);
    assert_restored(&raw);
}

/// Far longer than any test waits.
const LONG: [&str; 8] = ["run", "-n", "400", "--block-length", "400", "--eos", "keep", "Count from 1 to 5."];

#[test]
fn e09_what_ends_a_run_from_outside_restores_the_terminal() {
    for (signal, number) in [("-TERM", 15), ("-HUP", 1)] {
        let home = tempfile::tempdir().unwrap();
        let mut terminal = Terminal::demask(&LONG, home.path(), &[]);
        terminal.expect_step(3, 400);
        kill(signal, terminal.id());
        let (code, raw) = terminal.finish();
        assert_eq!(code, 128 + number, "{raw:?}");
        assert_restored(&raw);
    }
}

#[test]
fn e09_a_hangup_that_is_ignored_stays_so() {
    let home = tempfile::tempdir().unwrap();
    let command = format!("trap '' HUP; exec \"$DEMASK\" {} '{}'", LONG[..7].join(" "), LONG[7]);
    let more = [("DEMASK", env!("CARGO_BIN_EXE_demask"))];
    let mut terminal = Terminal::start("sh", &["-c", &command], home.path(), &more);
    terminal.expect_step(3, 400);
    kill("-HUP", terminal.id());
    terminal.expect_step(10, 400);
    terminal.send("\u{3}");
    let (code, raw) = terminal.finish();
    assert_eq!(code, 130);
    assert_restored(&raw);
}

#[test]
fn e09_a_stopped_terminal_holds_nobody() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::demask(&LONG, home.path(), &[]);
    terminal.expect_step(3, 400);
    // Ctrl-S: the next frame doesn't come to its end.
    terminal.send("\u{13}");
    std::thread::sleep(std::time::Duration::from_secs(1));
    kill("-TERM", terminal.id());
    assert_eq!(terminal.finish().0, 143);
}
