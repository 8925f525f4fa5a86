//! What a command reads, and what it must not overwrite or believe.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use demask_gguf::Value;
use harness::{fixture, patched, run, run_with_stdin};

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

#[test]
fn d29_numbers_that_go_wrong_are_told_with_layer_and_row() {
    let folder = tempfile::tempdir().unwrap();
    let file = demask_gguf::Gguf::open(fixture("tiny-llada-f32")).unwrap();
    let whole = std::fs::read(fixture("tiny-llada-f32")).unwrap();
    for (tensor, place) in [
        ("blk.1.ffn_down.weight", "goes wrong in layer 1"),
        ("blk.0.attn_q.weight", "row 0 goes wrong in layer 0"),
        ("output_norm.weight", "goes wrong in the head"),
    ] {
        let mut bytes = whole.clone();
        let at = file.tensor(tensor).unwrap().offset() as usize;
        bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        let path = folder.path().join("nan.gguf");
        std::fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        for temperature in ["0", "1"] {
            let outcome = run(&["run", "-n", "8", "--temp", temperature, "hi", "-m", path]);
            outcome.refused(1, &["step 0, position", "not finite", place, "nothing of this step was kept"]);
        }
    }
}

#[test]
fn a_vocabulary_has_one_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = patched(folder.path(), "tiny-llada-f32", &[("llada.vocab_size", Some(Value::U32(300)))]);
    run(&["run", "hi", "-m", path.to_str().unwrap()])
        .refused(1, &["llada.vocab_size", "288", "300", "token_embd.weight", "patched.gguf"]);
    let fits = patched(folder.path(), "tiny-llada-f32", &[("llada.vocab_size", Some(Value::U32(288)))]);
    run(&["run", "-n", "4", "hi", "-m", fits.to_str().unwrap()]).succeeded();
}

#[test]
fn an_empty_file_is_no_prompt_as_empty_stdin_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "").unwrap();
    let (empty, model) = (empty.to_str().unwrap(), fixture("tiny-llada-f32"));
    for command in ["run", "tokenize"] {
        run(&[command, "-m", &model, "-f", empty]).refused(2, &["no prompt"]);
        run_with_stdin(&[command, "-m", &model], b"").refused(2, &["no prompt"]);
    }
    let with = run(&["tokenize", "-m", &model, "hi", "-f", empty]).succeeded();
    assert_eq!(with.text(), run(&["tokenize", "-m", &model, "hi"]).succeeded().text());
}

#[test]
fn banned_tokens_may_be_ranges() {
    let model = fixture("tiny-llada-f32");
    let json = |ban: &str| run(&["run", "-m", &model, "-n", "8", "--json", "hi", "--ban", ban]).succeeded().json();
    assert_eq!(json("5,17-19")["request"]["banned"], serde_json::json!([5, 17, 18, 19]));
    for value in ["", "x", "9-5", "-1", "5,,6"] {
        run(&["run", "hi", "-m", "/nowhere.gguf", &format!("--ban={value}")]).refused(2, &["--ban", "like 5,17-20"]);
    }
    run(&["run", "hi", "--ban="]).refused(2, &["--ban ``"]);
    run(&["run", "-m", &model, "hi", "--ban", "280-288"]).refused(2, &["--ban 288", "0 to 287"]);
}

#[test]
fn rows_of_a_bench_fit_the_context() {
    let model = fixture("tiny-llada-gqa-f32");
    run(&["bench", "-m", &model, "--rows", "32,65"]).refused(2, &["--rows 65", "64 positions"]);
}

#[test]
fn e07_a_file_can_be_read_instead_of_mapped() {
    for model in [fixture("tiny-llada-q8_0"), fixture("tiny-dream-f32")] {
        let logits = |more: &[&str]| run(&[&["logits", "hi", "-m", &model], more].concat()).succeeded().stdout;
        assert!(logits(&["--no-mmap"]) == logits(&[]), "{model}");
        let text = |more: &[&str]| run(&[&["run", "-n", "8", "hi", "-m", &model], more].concat()).succeeded().stdout;
        assert_eq!(text(&["--no-mmap"]), text(&[]));
    }
    run(&["run", "--no-mmap", "hi", "-m", &fixture("none")]).refused(1, &["none.gguf", "No such file"]);
    assert!(run(&["run", "--help"]).succeeded().text().contains("--no-mmap"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_that_does_not_fit_is_refused_with_both_numbers() {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = info.lines().find(|line| line.starts_with("MemAvailable:")).unwrap();
    let available: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = harness::enlarged(folder.path(), "tiny-llada-f32", 2048 * available);
    let model = path.to_str().unwrap();
    for args in [
        &["run", "-n", "8", "hi"][..],
        &["run", "-n", "8", "hi", "--no-mmap"],
        &["chat", "-n", "8"],
        &["infill", "a [[4]]"],
        &["bench", "--forward-only", "--rows", "8"],
    ] {
        let outcome = run(&[args, &["-m", model]].concat());
        outcome.refused(1, &["enlarged.gguf", "GB of memory", "GB are available"]);
        assert!(outcome.stderr.contains("hint: a quantisation of"), "{}", outcome.stderr);
    }
}
