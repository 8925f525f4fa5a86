//! `demask chat` through pipes: every line is a message.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use demask_gguf::Value;
use harness::{Outcome, fixture, patched, run, run_with_stdin};

/// What `chat` answers to lines.
fn talk(args: &[&str], lines: &str) -> Outcome {
    run_with_stdin(&[&["chat", "-n", "16"], args].concat(), lines.as_bytes())
}

#[test]
fn every_line_is_answered_on_stdout() {
    let outcome = talk(&[], "What is 2 + 3?\n\nWhat is the capital of France?").succeeded();
    let single = run(&["run", "-n", "16", "What is 2 + 3?"]).succeeded();
    assert!(outcome.text().starts_with(single.text()), "{}", outcome.text());
    assert_eq!(outcome.text().lines().count(), 2, "{}", outcome.text());
    assert!(!outcome.text().contains('\u{1b}') && !outcome.stderr.contains('\u{1b}'));
    assert!(outcome.stderr.contains("> What is 2 + 3?\n"), "{}", outcome.stderr);
}

#[test]
fn c02_the_model_sees_the_turns_before() {
    // The prompt grows by the turns before: their lengths are those of the template.
    let outcome = talk(&["-v", "--system", "Be brief."], "What is 2 + 3?\nWhat is 2 + 3?\n/clear\nWhat is 2 + 3?\n");
    let prompts: Vec<usize> = (outcome.succeeded().stderr.lines())
        .filter_map(|line| line.strip_prefix("prompt ")?.trim().strip_suffix(" tokens")?.parse().ok())
        .collect();
    assert!(prompts.len() == 3 && prompts[1] > prompts[0] && prompts[2] == prompts[0], "{prompts:?}");
}

#[test]
fn orders_change_what_comes_next() {
    let orders = "/seed 7\n/seed\n/temperature 0.5\n/recipe fast\n/recipe\n/system Be brief.\n/system\n/system -\n/system\n/HELP\n";
    let outcome = talk(&[], orders).succeeded();
    assert_eq!(outcome.text(), "");
    for line in [
        "note: the seed is 7\nnote: the temperature is 0.5\nnote: the recipe is fast\nnote: these settings are approximate",
        "\n* fast ",
        "\nsystem: Be brief.\nnote: the instructions are gone",
        "\nnote: there are no instructions",
        "\n/retry ",
    ] {
        let told: String =
            outcome.stderr.lines().filter(|line| !line.starts_with("> ")).map(|l| format!("{l}\n")).collect();
        let told = told.replace("note: the seed is 7\nnote: the seed is 7\n", "note: the seed is 7\n");
        assert!(told.contains(line), "{told}\nlacks {line}");
    }
}

#[test]
fn a_retry_takes_the_next_seed_and_replaces_the_answer() {
    let outcome = talk(&["--temperature", "1"], "Name a colour.\n/retry\n/seed 100\n/retry\n/retry\n").succeeded();
    let seeds: Vec<&str> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("note: the seed is ")).collect();
    assert_eq!(seeds, ["43", "100", "100", "101"]);
    let again = run(&["run", "-n", "16", "--temperature", "1", "--seed", "101", "Name a colour."]).succeeded();
    assert_eq!(format!("{}\n", outcome.text().lines().last().unwrap()), again.text(), "one turn is all there is");
    let same = talk(&[], "Name a colour.\n/retry\n").succeeded();
    assert!(same.stderr.contains("the answer is the same with any seed"), "{}", same.stderr);
}

#[test]
fn what_is_refused_changes_nothing_and_the_rest_goes_on() {
    let outcome =
        talk(&[], "/retri\n/retry\n/seed x\n/recipe quick\n/temperature -1\n/quit now\nWhat is 2 + 3?\n/seed\n");
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let errors: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let wanted = ["/retri", "nothing to answer again", "/seed x", "/recipe quick", "--temperature -1", "`now`"];
    assert_eq!(errors.len(), wanted.len(), "{errors:?}");
    assert!(errors.iter().zip(wanted).all(|(error, words)| error.contains(words)), "{errors:?}");
    assert!(outcome.stderr.contains("hint: did you mean `/retry`?"), "{}", outcome.stderr);
    assert!(outcome.stderr.ends_with("note: the seed is 42\n"), "{}", outcome.stderr);
    assert_eq!(outcome.text().lines().count(), 1);
}

#[test]
fn the_oldest_turns_make_room_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = patched(folder.path(), "tiny-llada-f32", &[("llada.context_length", Some(Value::U32(40)))]);
    let args = ["-m", path.to_str().unwrap(), "--eos", "keep"];
    let lines = "hi\nhi\nhi\nhi\n/quit\nnever reached\n";
    let outcome = talk(&args, lines).succeeded();
    assert!(outcome.stderr.contains("note: the oldest turn was dropped: the context has 40 positions, 16 of them"));
    assert_eq!(outcome.stderr.matches("> hi").count(), 4, "{}", outcome.stderr);
    // A message that leaves no room even alone is refused, with both numbers; the others are answered.
    let long = format!("hi\n{}\nhi\n", "x".repeat(30));
    let outcome = talk(&args, &long);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("and 16 open positions are") && outcome.stderr.contains("context has 40"));
    assert!(outcome.stderr.matches("error: ").count() == 1, "{}", outcome.stderr);
}

#[test]
fn messages_of_many_lines_and_messages_that_begin_with_a_slash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt");
    std::fs::write(&file, "/first\nsecond").unwrap();
    let by_file = run(&["run", "-n", "16", "-f", file.to_str().unwrap()]).succeeded();
    let fenced = talk(&[], "\"\"\"\n//first\nsecond\n\"\"\"\n").succeeded();
    assert_eq!(fenced.text(), by_file.text());
    let crlf = talk(&[], "What is 2 + 3?\r\n").succeeded();
    assert_eq!(crlf.text(), talk(&[], "What is 2 + 3?").succeeded().text());
}

#[test]
fn bad_utf8_is_told_and_the_next_line_is_read() {
    let outcome = run_with_stdin(&["chat", "-n", "16"], b"ab\xff\nWhat is 2 + 3?\n");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("error: the line is not UTF-8: byte 2 is 0xff"), "{}", outcome.stderr);
    assert_eq!(outcome.text().lines().count(), 1);
}

#[test]
fn what_can_be_refused_at_once_is() {
    let model = fixture("tiny-llada-f32");
    run_with_stdin(&["chat", "-m", &model, "-n", "100000"], b"hi\n").refused(1, &["100000 open positions", "context"]);
    run_with_stdin(&["chat", "-n", "0"], b"hi\n").refused(2, &["--max-tokens 0"]);
    run_with_stdin(&["chat", "--temperature", "-1"], b"hi\n").refused(2, &["--temperature -1"]);
    run_with_stdin(&["chat", "--top-p", "0.5"], b"hi\n").refused(2, &["--top-p 0.5"]);
    let broken = tempfile::tempdir().unwrap();
    let template = Value::from("{% if x %}");
    let path = patched(broken.path(), "tiny-llada-f32", &[("tokenizer.chat_template", Some(template))]);
    run_with_stdin(&["chat", "-m", path.to_str().unwrap()], b"hi\n").refused(1, &["template", "patched.gguf"]);
}

#[test]
fn c13_folders_with_any_letters_are_fine() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("ひろ\u{3000}ü 'q\"");
    std::fs::create_dir(&odd).unwrap();
    let model = odd.join("m.gguf");
    std::fs::copy(fixture("tiny-llada-f32"), &model).unwrap();
    let mut child = harness::demask()
        .args(["chat", "-n", "8", "-m"])
        .arg(&model)
        .envs([("TMPDIR", &odd), ("HOME", &odd)])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hi\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty());
}

#[cfg(unix)]
#[test]
fn e11_a_reader_that_leaves_ends_the_conversation() {
    let mut child = harness::demask()
        .args(["chat", "-n", "16"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"hi\nhi\n").unwrap();
    // Stdin stays open: it is the reader who ends it.
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panic") && !stderr.contains("error"), "{stderr}");
}
