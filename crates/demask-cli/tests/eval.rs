//! `demask eval`: tables, files that are continued, drawings, and what it refuses.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::path::Path;
use std::time::Duration;

use harness::{demask, fixture, run, workspace};

fn write(folder: &Path, name: &str, lines: &[&str]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_embedded_set_gives_a_table_per_recipe() {
    let file = workspace("assets/heldout.jsonl");
    let args = ["eval", &file, "-n", "32", "--limit", "5", "--recipe", "exact,fast,fast:threshold=0.5"];
    let outcome = run(&args).succeeded();
    let table = outcome.text();
    for words in
        ["| recipe ", "| exact ", "| fast ", "| fast:threshold=0.5 ", "95 % interval", "McNemar", "| task ", "R |"]
    {
        assert!(table.contains(words), "{table}");
    }
    let json = run(&[&args[..], &["--json"]].concat()).succeeded().json();
    let runs = json["summary"]["runs"].as_array().unwrap();
    assert_eq!((runs.len(), json["summary"]["items"].as_u64()), (3, Some(5)));
    assert!(runs[0]["against_first"].is_null() && runs[0]["agreement"] == 1.0, "{}", runs[0]);
    assert!(runs[1]["rows"].as_u64().unwrap() < runs[0]["rows"].as_u64().unwrap());
    assert!((0.0..=1.0).contains(&runs[1]["against_first"]["p"].as_f64().unwrap()));
    assert_eq!(json["runs"][2]["settings"]["threshold"], 0.5);
}

#[test]
fn right_answers_are_counted_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let model = fixture("tiny-llada-f32");
    let answer = |args: &[&str]| run(&[args, &["--json", "-m", &model]].concat()).succeeded().json()["text"].clone();
    let chat = answer(&["run", "-n", "8", "hi"]);
    let filled = answer(&["infill", "a [[3]] b"]);
    let file = write(
        folder.path(),
        "items.jsonl",
        &[
            &format!("{{\"task\": \"chat\", \"prompt\": \"hi\", \"answer\": {chat}}}"),
            &format!("{{\"text\": \"a [[3]] b\", \"answer\": {filled}}}"),
            "",
            r#"{"question": "hi", "answer": "= #### 123456789"}"#,
        ],
    );
    let outcome = run(&["eval", &file, "-n", "8", "-m", &model, "--json"]).succeeded();
    let summary = &outcome.json()["summary"];
    assert_eq!(summary["runs"][0]["correct"], 2, "{summary}");
    assert_eq!(summary["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(outcome.stderr, "");
}

#[test]
fn a_file_of_results_is_continued_and_guarded() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = ["hi", "one", "two", "~three"];
    let lines: Vec<String> = prompts.iter().map(|p| format!("{{\"prompt\": \"{p}\", \"answer\": \"x\"}}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let file = write(folder.path(), "items.jsonl", &lines);
    let (out, plot) = (folder.path().join("out.json"), folder.path().join("plot.svg"));
    let (out, plot) = (out.to_str().unwrap(), plot.to_str().unwrap());
    let model = fixture("tiny-llada-f32");
    let args = ["eval", &file, "-n", "8", "-m", &model, "--recipe", "exact,fast", "--out", out];
    let read = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(out).unwrap()).unwrap();

    run(&[&args[..], &["--limit", "2"]].concat()).succeeded();
    let before = read();
    assert_eq!((before["results"].as_array().unwrap().len(), &before["summary"]["items"]), (4, &2.into()));
    run(&[&args[..], &["--plot", plot]].concat()).succeeded();
    let after = read();
    assert_eq!((after["results"].as_array().unwrap().len(), &after["summary"]["items"]), (8, &4.into()));
    // The same answers, times included: they were not given again.
    let results = after["results"].as_array().unwrap();
    assert!(before["results"].as_array().unwrap().iter().all(|result| results.contains(result)));
    run(&[&args[..], &["--limit", "1"]].concat()).succeeded();
    assert_eq!(read()["results"].as_array().unwrap().len(), 8, "answers to other items are kept");

    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert_eq!(drawn.matches("<circle").count(), 2);
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");

    let refused = |args: &[&str], words: &str| run(args).refused(2, &["out.json", words]);
    refused(&[&args[..], &["--temperature", "0.5"]].concat(), "settings of exact");
    refused(&["eval", &file, "-n", "8", "-m", &model, "--out", out], "other recipes (exact,fast)");
    let other = write(folder.path(), "other.jsonl", &lines[1..]);
    refused(&["eval", &other, "-n", "8", "-m", &model, "--recipe", "exact,fast", "--out", out], "other items");
    let bf16 = fixture("tiny-llada-f16");
    refused(&["eval", &file, "-n", "8", "-m", &bf16, "--recipe", "exact,fast", "--out", out], "another model");
    std::fs::write(out, "mine").unwrap();
    run(&args).refused(1, &["out.json", "no results"]);
    assert_eq!(std::fs::read_to_string(out).unwrap(), "mine");
}

#[cfg(unix)]
#[test]
fn e09_ctrl_c_keeps_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let file = workspace("assets/heldout.jsonl");
    let child = demask()
        .args(["eval", &file, "--recipe", "exact,fast", "--out", out.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The first results are written after some seconds.
    for _ in 0..600 {
        if out.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stdout.contains("| exact ") && stderr.contains("note: stopped: "), "{stdout}{stderr}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let answers = json["results"].as_array().unwrap().len();
    assert!((2..1232).contains(&answers), "{answers}");
}

#[test]
fn faults_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |lines: &[&str], words: &[&str]| {
        let file = write(folder.path(), "items.jsonl", lines);
        run(&["eval", &file, "-m", "/nowhere/model.gguf"]).refused(1, &[words, &["items.jsonl"]].concat());
    };
    let fine = r#"{"id": "a", "prompt": "hi", "answer": "x"}"#;
    refused(&[], &["no item"]);
    refused(&[fine, "{"], &["line 2"]);
    refused(&[fine, fine], &["line 2", "second item", "`a`"]);
    refused(&[r#"{"prompt": "hi"}"#], &["line 1", "`answer`"]);
    refused(&[r#"{"text": "hi", "answer": "x"}"#], &["line 1", "no blank"]);

    let file = write(folder.path(), "items.jsonl", &[fine]);
    run(&["eval"]).refused(2, &["no file"]);
    run(&["eval", "/nowhere/items.jsonl"]).refused(1, &["/nowhere/items.jsonl", "No such file"]);
    run(&["eval", &file, "--recipe", "exact,quick"]).refused(2, &["--recipe quick", "fastest"]);
    run(&["eval", &file, "--recipe", "fast:tresh=1"]).refused(2, &["--recipe fast:tresh=1", "tresh"]);
    run(&["eval", &file, "--recipe", "fast,fast"]).refused(2, &["fast", "more than once"]);
    run(&["eval", &file, "--recipe", "exact,fast", "--threshold", "0.8"])
        .refused(2, &["recipe exact", "--threshold 0.8"]);
    run(&["eval", &file, "--limit", "0"]).refused(2, &["--limit 0"]);
    run(&["eval", &file, "--out", "/nowhere/x.json"]).refused(1, &["/nowhere/x.json", "folder"]);
    let model = fixture("tiny-llada-gqa-f32");
    run(&["eval", &file, "-m", &model]).refused(1, &["item a", "128", "64"]);
}
