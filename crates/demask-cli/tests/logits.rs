//! `demask logits`.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use harness::{fixture, run};

#[test]
fn logits_are_rows_of_floats() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.f32");
    let model = fixture("tiny-llada-f32");
    let args = ["logits", "-m", &model, "--tokens", "282,104,105,284"];
    let piped = run(&args).succeeded();
    assert_eq!(piped.stdout.len(), 4 * 288 * 4);
    assert!(piped.stderr.contains("[4, 288]"), "{}", piped.stderr);
    run(&[&args[..], &["--rows", "3,1-2", "--out", out.to_str().unwrap()]].concat()).succeeded();
    assert_eq!(std::fs::read(&out).unwrap(), piped.stdout[288 * 4..]);
    run(&[&args[..], &["--rows", "4"]].concat()).refused(2, &["--rows 4", "4 positions"]);
    run(&["logits", "-m", &model, "--tokens", "288"]).refused(1, &["288", "vocabulary"]);
    let prompt = run(&["logits", "-m", &model, "--no-chat", "hi", "-n", "1"]).succeeded();
    assert_eq!(prompt.stdout, piped.stdout, "the prompt's BOS and one open position");
}
