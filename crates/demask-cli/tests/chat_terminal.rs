//! `demask chat` on a terminal: keys in, a screen out.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use harness::terminal::{Terminal, kill};

/// The line editor waits for keys.
const READY: &str = "\u{1b}[?2004h";
/// It has put the terminal back.
const LEFT: &str = "\u{1b}[?2004l";
const SHOW: &str = "\u{1b}[?25h";

fn chat(home: &std::path::Path, arguments: &[&str]) -> Terminal {
    let mut terminal = Terminal::demask(&[&["chat"], arguments].concat(), home, &[]);
    terminal.expect(READY);
    terminal
}

/// Cursor, colours, wrapping and keys are as they were.
fn assert_restored(terminal: &Terminal, raw: &str) {
    let screen = terminal.screen();
    assert!(!screen.hide_cursor() && !screen.bracketed_paste() && !screen.bold() && !screen.dim(), "{raw:?}");
    let last = |code: &str| raw.rfind(code);
    assert!(last("\u{1b}[?7l").is_none_or(|off| last("\u{1b}[?7h").is_some_and(|on| on > off)), "{raw:?}");
}

#[test]
fn a_conversation() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = chat(home.path(), &["-n", "32"]);
    terminal.send("What is 2 + 3?\r");
    terminal.expect(LEFT);
    let drawn = terminal.expect(READY);
    assert!(drawn.contains('░') && drawn.contains(SHOW), "the canvas is drawn above the prompt: {drawn:?}");
    terminal.send("/retry\r");
    terminal.expect("note: the seed is 43");
    terminal.expect(READY);
    // Two lines at once, with Alt-Enter; an order completed by Tab.
    terminal.send("What is the\u{1b}\rcapital of France?\r");
    terminal.expect(READY);
    terminal.send("/qu\t\r");
    let (code, raw) = terminal.finish();
    assert_eq!(code, 0, "{raw:?}");
    assert_restored(&terminal, &raw);
    let screen = terminal.screen().contents();
    assert!(!screen.contains('░'), "the canvas is gone:\n{screen}");
    assert!(screen.contains("> What is 2 + 3?\n2 + 3 = 5\n> /retry\n"), "{screen}");
    assert!(screen.contains("> What is the\ncapital of France?\n"), "{screen}");
    assert!(screen.ends_with("> /quit"), "{screen}");
}

#[test]
fn lines_are_remembered() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = chat(home.path(), &["-n", "8"]);
    terminal.send("/seed 7\r");
    terminal.expect(READY);
    terminal.send("\u{4}");
    assert_eq!(terminal.finish().0, 0, "Ctrl-D leaves");
    let file = home.path().join(".local/state/demask/history");
    assert!(std::fs::read_to_string(&file).unwrap().ends_with("/seed 7\n"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "nobody else reads it");
    // The arrow brings the line back, in another conversation.
    let mut terminal = chat(home.path(), &["-n", "8"]);
    terminal.send("\u{1b}[A\r");
    terminal.expect("note: the seed is 7");
    terminal.expect(READY);
    terminal.send("\u{4}");
    assert_eq!(terminal.finish().0, 0);
    // And nothing is kept where nothing is to be kept.
    let other = tempfile::tempdir().unwrap();
    let mut terminal = chat(other.path(), &["-n", "8", "--no-history"]);
    terminal.send("/seed 7\r/quit\r");
    assert_eq!(terminal.finish().0, 0);
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn e09_ctrl_c_stops_the_answer_and_not_the_conversation() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = chat(home.path(), &["-n", "400", "--eos", "keep"]);
    terminal.send("What is 2 + 3?\r");
    terminal.expect_step(3, 400);
    terminal.send("\u{3}");
    let told = terminal.expect("positions were decided");
    assert!(told.contains("note: stopped: "), "{told:?}");
    terminal.expect(READY);
    // The prompt is back, and what was said before is still there.
    terminal.send("\u{1b}[A\u{3}");
    terminal.expect("note: Ctrl-C again leaves");
    terminal.expect(READY);
    terminal.send("\u{3}");
    let (code, raw) = terminal.finish();
    assert_eq!(code, 130, "{raw:?}");
    assert_restored(&terminal, &raw);
    assert!(terminal.screen().contents().matches("> What is 2 + 3?").count() == 2, "{}", terminal.screen().contents());
}

#[test]
fn e09_ctrl_c_between_other_lines_does_not_leave() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = chat(home.path(), &["-n", "8"]);
    for _ in 0..2 {
        terminal.send("\u{3}");
        terminal.expect("note: Ctrl-C again leaves");
        terminal.expect(READY);
        terminal.send("/seed\r");
        terminal.expect("note: the seed is 42");
        terminal.expect(READY);
    }
    terminal.send("/quit\r");
    assert_eq!(terminal.finish().0, 0);
}

#[test]
fn e09_what_ends_it_from_outside_leaves_the_terminal_as_it_was() {
    // At the prompt, and while the canvas is drawn.
    let signals = [("-TERM", "code 143 end"), ("-HUP", "code 129 end"), ("-QUIT", "code 131 end")];
    for ((signal, code), drawing) in signals.into_iter().flat_map(|signal| [(signal, false), (signal, true)]) {
        let home = tempfile::tempdir().unwrap();
        let inner = "ulimit -c 0; echo id $$ end; exec \"$DEMASK\" chat -n 400 --eos keep";
        let outer = "cd; stty -a > before; sh -c \"$INNER\"; echo code $? end; stty -a > after";
        let more = [("DEMASK", env!("CARGO_BIN_EXE_demask")), ("INNER", inner)];
        let mut terminal = Terminal::start("sh", &["-c", outer], home.path(), &more);
        let id = terminal.expect(" end");
        let id = id.trim_end_matches(" end").rsplit(' ').next().unwrap().parse().unwrap();
        terminal.expect(READY);
        if drawing {
            terminal.send("What is 2 + 3?\r");
            terminal.expect_step(3, 400);
        }
        kill(signal, id);
        terminal.expect(code);
        let (code, raw) = terminal.finish();
        assert_eq!(code, 0, "{raw:?}");
        assert_restored(&terminal, &raw);
        let mode = |name| std::fs::read_to_string(home.path().join(name)).unwrap();
        assert_eq!(mode("before"), mode("after"));
    }
}

#[test]
fn e09_it_ends_with_a_terminal_that_is_gone() {
    let home = tempfile::tempdir().unwrap();
    // Who ignores the hangup, as `nohup` does, notices by what can't be read any more.
    let more = [("DEMASK", env!("CARGO_BIN_EXE_demask"))];
    let mut terminal = Terminal::start("sh", &["-c", "trap '' HUP; exec \"$DEMASK\" chat"], home.path(), &more);
    terminal.expect(READY);
    assert_eq!(terminal.hang_up().0, 0);
}

#[test]
fn e09_it_can_be_stopped_and_resumed() {
    let home = tempfile::tempdir().unwrap();
    // A shell with jobs: Ctrl-Z gives it the terminal, `fg` gives it back.
    let mut terminal = Terminal::start("sh", &["-m"], home.path(), &[("PS1", "$ "), ("ENV", "")]);
    terminal.expect("$ ");
    terminal.send(&format!("{} chat -n 8\r", env!("CARGO_BIN_EXE_demask")));
    terminal.expect(READY);
    terminal.send("/se\u{1a}");
    terminal.expect("$ ");
    terminal.send("stty -a | tr ' ' '\\n' | grep -x echo; fg\r");
    terminal.expect("\r\necho\r\n");
    terminal.expect(READY);
    terminal.send("ed 9\r");
    terminal.expect("note: the seed is 9");
    terminal.expect(READY);
    terminal.send("/quit\r");
    terminal.expect("$ ");
    terminal.send("exit\r");
    assert_eq!(terminal.finish().0, 0);
}

#[test]
fn e13_dumb_terminals_and_no_colour() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::demask(&["chat", "-n", "16"], home.path(), &[("TERM", "dumb")]);
    terminal.expect("> ");
    terminal.send("What is 2 + 3?\r");
    terminal.expect("2 + 3 = 5");
    terminal.expect("> ");
    // Ctrl-C is a signal here: it says how to leave, and leaves the second time.
    terminal.send("\u{3}");
    terminal.expect("note: Ctrl-C again leaves");
    terminal.send("\u{3}");
    let (code, raw) = terminal.finish();
    assert_eq!(code, 130);
    assert!(!raw.contains('\u{1b}'), "{raw:?}");

    let mut terminal = Terminal::demask(&["chat", "-n", "16"], home.path(), &[("NO_COLOR", "1")]);
    terminal.expect(READY);
    terminal.send("What is 2 + 3?\r");
    terminal.expect(READY);
    terminal.send("/quit\r");
    let (_, raw) = terminal.finish();
    assert!(raw.contains('\u{2591}'));
    for code in raw.split("\u{1b}[").skip(1) {
        let end = code.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        assert_ne!(&code[end..=end], "m", "{code:?}");
    }
}

#[test]
fn answers_go_to_a_file_and_prompts_to_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    let command = "cd; \"$DEMASK\" chat -n 16 > answers";
    let mut terminal =
        Terminal::start("sh", &["-c", command], home.path(), &[("DEMASK", env!("CARGO_BIN_EXE_demask"))]);
    terminal.expect(READY);
    terminal.send("What is 2 + 3?\r");
    terminal.expect(LEFT);
    terminal.expect(READY);
    terminal.send("/quit\r");
    assert_eq!(terminal.finish().0, 0);
    assert_eq!(std::fs::read_to_string(home.path().join("answers")).unwrap(), "2 + 3 = 5\n");
}
