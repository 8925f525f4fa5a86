//! Files that commands write: never over what they read, never over a model, through links and into pipes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;

use harness::{demask, finish, fixture, run};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_input_under_another_name_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (model, other, items, twin) = (path("m.gguf"), path("h.bin"), path("items.jsonl"), path("twin.jsonl"));
    fs::copy(fixture("tiny-llada-q8_0"), &model).unwrap();
    fs::write(&items, "{\"prompt\": \"hi\", \"answer\": \"a\"}\n").unwrap();
    fs::hard_link(&model, &other).unwrap();
    fs::hard_link(&items, &twin).unwrap();
    let (before, asked) = (fs::read(&model).unwrap(), fs::read(&items).unwrap());
    let (m, h) = (text(&model), text(&other));
    run(&["run", "-m", m, "hi", "-n", "4", "--trace", h]).refused(1, &["reads from it"]);
    run(&["logits", "-m", m, "hi", "-o", h]).refused(1, &["reads from it"]);
    run(&["eval", "-m", m, text(&items), "--plot", text(&twin)]).refused(1, &["reads from it"]);
    assert!(fs::read(&model).unwrap() == before && fs::read(&items).unwrap() == asked);
}

#[test]
fn a_model_is_only_written_over_by_quantize() {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("part-00002-of-00003.gguf");
    fs::copy(fixture("tiny-dream-q8_0"), &part).unwrap();
    let before = fs::read(&part).unwrap();
    let (model, part_name) = (fixture("tiny-llada-q8_0"), text(&part));
    run(&["run", "-m", &model, "hi", "-n", "4", "--trace", part_name]).refused(1, &["GGUF file", "quantize"]);
    run(&["logits", "-m", &model, "hi", "-o", part_name]).refused(1, &["GGUF file", "quantize"]);
    assert!(fs::read(&part).unwrap() == before);
}

#[test]
fn two_outputs_are_not_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let (items, out) = (folder.path().join("items.jsonl"), folder.path().join("out.json"));
    fs::write(&items, "{\"prompt\": \"hi\", \"answer\": \"a\"}\n").unwrap();
    let model = fixture("tiny-llada-q8_0");
    run(&["eval", "-m", &model, text(&items), "--out", text(&out), "--plot", text(&out)])
        .refused(2, &["--out", "--plot", "same file"]);
    assert!(!out.exists());
}

#[test]
fn links_and_pipes_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (file, link, pipe) = (path("real.gguf"), path("link.gguf"), path("pipe"));
    fs::write(&file, "old").unwrap();
    symlink("real.gguf", &link).unwrap();
    let model = fixture("tiny-llada-f32");
    let quantize = |to: &Path| run(&["quantize", &model, text(to), "--type", "Q8_0", "--force"]).succeeded();
    quantize(&link);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let whole = fs::read(&file).unwrap();
    assert!(whole.starts_with(b"GGUF"));

    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    quantize(&pipe);
    assert!(reader.join().unwrap() == whole);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn the_embedded_model_has_a_name_and_a_damaged_choice_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("demask");
    fs::create_dir(&place).unwrap();
    let with = |config: &str, args: &[&str]| {
        fs::write(place.join("config.json"), config).unwrap();
        finish(demask().args(args).env("XDG_CONFIG_HOME", folder.path()))
    };
    let outcome = with("garbage", &["run", "-n", "8", "What is 2 + 3?"]).succeeded();
    assert!(outcome.stderr.contains("warning: ") && outcome.stderr.contains("demask setup"), "{}", outcome.stderr);
    let gone = "{\"model\": \"/nonexistent/m.gguf\"}";
    let outcome = with(gone, &["run", "hi"]);
    outcome.refused(1, &["/nonexistent/m.gguf"]);
    assert!(outcome.stderr.contains("note: `demask setup` chose"), "{}", outcome.stderr);
    with(gone, &["run", "-m", "embedded", "-n", "8", "What is 2 + 3?"]).succeeded();
}
