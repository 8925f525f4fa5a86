//! What a command reads, and what it must not overwrite or believe.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use harness::{fixture, patched, run};

#[test]
fn a_claimed_context_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for context in [100_000_000u32, u32::MAX] {
        let path = patched(folder.path(), "tiny-llada-q8_0", &[("llada.context_length", Some(context.into()))]);
        let model = path.to_str().unwrap();
        let start = std::time::Instant::now();
        let json = run(&["run", "--json", "-n", "4", "-m", model, "hi"]).succeeded().json();
        assert!(json["peak_rss_bytes"].as_u64().unwrap_or(0) < 200 << 20, "{json}");
        assert!(start.elapsed().as_secs() < 5);
    }
}

#[test]
fn outputs_do_not_overwrite_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, prompt, items) = (path("m.gguf"), path("p.txt"), path("e.jsonl"));
    std::fs::copy(fixture("tiny-llada-f32"), &model).unwrap();
    std::fs::write(&prompt, "hi").unwrap();
    std::fs::write(&items, "{\"prompt\": \"a\", \"answer\": \"b\"}\n").unwrap();
    let before: Vec<Vec<u8>> = [&model, &prompt, &items].iter().map(|p| std::fs::read(p).unwrap()).collect();
    for args in [
        vec!["run", "-m", &model, "-n", "4", "hi", "--trace", &model],
        vec!["run", "-m", &model, "-n", "4", "-f", &prompt, "--trace", &prompt],
        vec!["logits", "--tokens", "1,2", "-m", &model, "-o", &model],
        vec!["infill", "-m", &model, "a [[1]]", "--trace", &model],
        vec!["eval", &items, "-m", &model, "-n", "4", "--plot", &items],
        vec!["eval", &items, "-m", &model, "-n", "4", "--out", &model],
    ] {
        run(&args).refused(1, &["reads from it"]);
    }
    let after: Vec<Vec<u8>> = [&model, &prompt, &items].iter().map(|p| std::fs::read(p).unwrap()).collect();
    assert!(before == after);
}

#[cfg(unix)]
#[test]
fn endless_input_is_refused() {
    run(&["eval", "/dev/zero"]).refused(1, &["longer than 64 MiB"]);
}

#[test]
fn some_token_must_be_left() {
    let all: Vec<String> = (0..288).map(|id: u32| id.to_string()).collect();
    let model = fixture("tiny-llada-f32");
    run(&["run", "-m", &model, "-n", "4", "hi", "--ban", &all.join(",")])
        .refused(2, &["--ban", "no token would be left"]);
}

#[test]
fn approximate_settings_say_so() {
    let model = fixture("tiny-llada-f32");
    for args in [["--recipe", "fast"], ["--cache", "dual"], ["--unmask", "threshold"]] {
        let outcome = run(&[&["run", "-m", &model, "-n", "8", "hi"], &args[..]].concat()).succeeded();
        assert!(outcome.stderr.contains("approximate"), "{args:?}: {}", outcome.stderr);
    }
    let outcome = run(&["run", "-m", &model, "-n", "8", "hi"]).succeeded();
    assert!(!outcome.stderr.contains("approximate"), "{}", outcome.stderr);
}
