//! What the program says about itself: help, suggestions, completions, manual pages. All tests walk the commands.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::process::Stdio;

use harness::{commands, demask, help, run};

/// The long options of a command.
fn options(command: &str) -> Vec<String> {
    let text = help(&[command]);
    let lines = text.lines().filter(|line| line.trim_start().starts_with('-'));
    let long = lines.filter_map(|line| line.split("--").nth(1)?.split([' ', '=', '[', ',']).next().map(str::to_owned));
    long.collect()
}

#[test]
fn help_is_success_on_stdout_and_survives_a_reader_that_leaves() {
    assert!(commands().len() > 9);
    for command in commands() {
        let short = run(&[&command, "-h"]).succeeded();
        assert!(short.text().contains("Usage: demask") && short.stderr.is_empty(), "{command}");
        let long = help(&[&command]);
        assert!(long.len() >= short.text().len() / 2 && long.contains("Examples:"), "{command}");
        assert!(long.lines().all(|line| line.chars().count() <= 100), "{command}");
        let mut child =
            demask().args([&command, "--help"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{command}");
    }
    assert_eq!(run(&["--version"]).succeeded().text(), concat!("demask ", env!("CARGO_PKG_VERSION"), "\n"));
    let nothing = run::<&str>(&[]);
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stdout.is_empty() && nothing.stderr.contains("Usage: demask"));
}

#[test]
fn the_closest_command_is_suggested() {
    for command in commands().iter().filter(|command| command.len() > 3) {
        let typo = format!("{}{}", &command[..1], &command[2..]);
        let outcome = run(&[&typo]);
        outcome.refused(2, &[&format!("there is no command `{typo}`")]);
        assert!(outcome.stderr.contains("hint: did you mean `"), "{typo}: {}", outcome.stderr);
    }
    assert!(run(&["rnu"]).stderr.contains("hint: did you mean `run`?"));
    assert!(run(&["serv"]).code == Some(2) && run(&["xyzzy"]).stderr.contains("see `demask --help`"));
}

#[test]
fn the_closest_option_is_suggested() {
    for command in commands() {
        for option in options(&command).iter().filter(|option| option.len() > 4) {
            let typo = format!("--{}{}", &option[..2], &option[3..]);
            let outcome = run(&[&command, &typo]);
            outcome.refused(2, &[&format!("unexpected argument `{typo}`")]);
            assert!(outcome.stderr.contains("hint: did you mean `--"), "{command} {typo}: {}", outcome.stderr);
        }
    }
}

#[test]
fn every_shell_can_complete_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&["completions", shell]).succeeded();
        for command in commands() {
            assert!(script.text().contains(&command), "{shell} {command}");
        }
        assert!(script.text().contains("--max-tokens") || script.text().contains("max-tokens"), "{shell}");
    }
    run(&["completions", "bsh"]).refused(2, &["bsh", "bash, elvish, fish, powershell, zsh"]);
    run(&["completions"]).refused(2, &["SHELL"]);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    run(&["man", "--out", out.to_str().unwrap()]).succeeded();
    assert!(run(&["man"]).succeeded().text().contains(".TH demask 1"));
    for command in commands() {
        let page = run(&["man", &command]).succeeded();
        assert!(page.text().contains(&format!(".TH demask-{command} 1")), "{}", &page.text()[..200]);
        let written = std::fs::read_to_string(out.join(format!("demask-{command}.1"))).unwrap();
        assert_eq!(written, page.text(), "{command}");
    }
    let typo = run(&["man", "rnu"]);
    typo.refused(2, &["there is no command `rnu`"]);
    assert!(typo.stderr.contains("did you mean `run`?"), "{}", typo.stderr);
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    run(&["man", "--out", file.to_str().unwrap()]).refused(1, &["file"]);
}
