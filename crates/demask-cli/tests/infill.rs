//! `demask infill`: fixed text stays, blanks are filled.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use demask_gguf::Value;
use harness::{fixture, patched, run, run_with_stdin};

fn tiny(args: &[&str]) -> harness::Outcome {
    run(&[&["infill", "-m", &fixture("tiny-llada-f32")], args].concat()).succeeded()
}

#[test]
fn the_text_around_the_blanks_stays_as_it_is() {
    let text = "  Tom  has [[3]] apples,\t[[]]and \\[[2]] [[x]] \u{e9}\u{1f980} ";
    let json = tiny(&["--json", text]).json();
    let blanks: Vec<&str> = json["blanks"].as_array().unwrap().iter().map(|blank| blank.as_str().unwrap()).collect();
    assert_eq!(blanks.len(), 2);
    let whole = format!("  Tom  has {} apples,\t{}and [[2]] [[x]] \u{e9}\u{1f980} ", blanks[0], blanks[1]);
    assert_eq!(json["text"], whole.as_str());
    assert_eq!(tiny(&[text]).text(), format!("{whole}\n"));
    assert_eq!(
        (&json["request"]["max_tokens"], &json["request"]["eos"], &json["commits"]),
        (&7.into(), &"keep".into(), &7.into())
    );
    assert_eq!(json["prompt_tokens"].as_u64().unwrap() + 7, json["canvas"].as_u64().unwrap());
    let documented = std::fs::read_to_string(harness::workspace("crates/demask-cli/README.md")).unwrap();
    assert!(documented.contains("`blanks`"));
}

#[test]
fn every_recipe_fills_every_blank() {
    for recipe in ["exact", "fast", "fastest", "d3llm"] {
        for model in ["tiny-llada-f32", "tiny-dream-f32"] {
            let model = fixture(model);
            let args = ["infill", "--json", "a [[2]] b [[5]]", "-m", &model, "--recipe", recipe];
            let json = run(&args).succeeded().json();
            assert!(json["blanks"].as_array().unwrap().iter().all(|blank| blank.is_string()), "{recipe}: {json}");
            assert_eq!(json["request"]["recipe"], recipe);
        }
    }
}

#[test]
fn end_tokens_in_a_blank_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let first = tiny(&["--json", "a [[3]] b"]).json()["tokens"][0].as_u64().unwrap();
    let end = Some(Value::U32(u32::try_from(first).unwrap()));
    let path = patched(folder.path(), "tiny-llada-f32", &[("tokenizer.ggml.eos_token_id", end)]);
    let json = run(&["infill", "--json", "a [[3]] b", "-m", path.to_str().unwrap()]).succeeded().json();
    let text = json["text"].as_str().unwrap();
    assert!(text.starts_with("a ") && text.ends_with(" b"), "{text}");
    assert_eq!(json["commits"], 3);
}

#[test]
fn files_and_stdin_keep_their_lines() {
    let model = fixture("tiny-llada-f32");
    let outcome = run_with_stdin(&["infill", "-m", &model], b"x [[2]]\ny\n").succeeded();
    assert!(outcome.text().starts_with("x ") && outcome.text().ends_with("\ny\n"), "{:?}", outcome.text());
}

#[test]
fn a_trace_of_an_infill_replays_with_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let (trace, model) = (trace.to_str().unwrap(), fixture("tiny-llada-f32"));
    let text = tiny(&["--trace", trace, "one [[2]] two"]);
    let replay = run(&["inspect", "--json", trace, "-m", &model]).succeeded().json();
    let last = replay["steps"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned();
    assert!(last.starts_with("one ") && last.ends_with(" two"), "{last}");
    assert!(text.text().starts_with("one "));
}

#[test]
fn misuse_is_told_before_a_model_is_opened() {
    let refused = |args: &[&str], words: &[&str]| {
        let outcome = run(&[&["infill", "-m", "/nowhere/model.gguf"], args].concat());
        outcome.refused(2, words);
        assert!(outcome.stderr.contains("hint: "), "{}", outcome.stderr);
    };
    refused(&["no blank here"], &["no blank"]);
    assert!(run(&["infill", "x"]).stderr.contains("`[[N]]`"));
    refused(&["[[0]]"], &["[[0]]", "1 to 1000000"]);
    refused(&["a [[9999999]]"], &["[[9999999]]"]);
    refused(&["a [[2]] b", "--eos", "stop"], &["--eos stop"]);
    refused(&[], &["no text"]);
    let model = fixture("tiny-llada-gqa-f32");
    let long = run(&["infill", "a [[65]] b", "-m", &model]);
    long.refused(1, &["65", "64"]);
    assert!(long.stderr.contains("hint: use a shorter text"), "{}", long.stderr);
    run(&["infill", "a [[4]] b", "-m", &model, "--threshold", "1"]).refused(2, &["--threshold 1", "can"]);
}
