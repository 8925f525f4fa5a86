//! `demask run`: each test that stands for a case is named after it.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use demask_gguf::Value;
use harness::{demask, fixture, patched, run, run_with_stdin};

/// A short deterministic run on a tiny model.
fn tiny(args: &[&str]) -> harness::Outcome {
    let model = fixture("tiny-llada-f32");
    run(&[&["run", "--no-chat", "-n", "12", "-m", &model], args].concat()).succeeded()
}

fn json(args: &[&str]) -> serde_json::Value {
    tiny(&[&["--json"], args].concat()).json()
}

#[test]
fn the_embedded_model_answers_and_is_named() {
    let outcome = run(&["run", "-n", "16", "What is 2+3?"]).succeeded();
    assert!(outcome.text().ends_with('\n') && outcome.text().len() > 1, "{}", outcome.text());
    assert!(
        outcome.stderr.starts_with("note: ") && outcome.stderr.contains("the embedded toy model demask-tiny"),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.stderr.lines().count(), 1);
}

#[test]
fn stdout_holds_the_answer_and_nothing_else() {
    let json = json(&["hi"]);
    let plain = tiny(&["hi", "--verbose", "--dump-step-stats"]);
    assert_eq!(plain.text(), format!("{}\n", json["text"].as_str().unwrap()));
    assert!(!plain.stderr.contains('\u{1b}'), "{}", plain.stderr);
    assert_eq!(tiny(&["hi"]).stderr, "");
}

#[test]
fn text_streams_while_steps_are_left() {
    let mut child = demask()
        .args(["run", "-n", "96", "--block-length", "4", "--eos", "keep", "Count from 1 to 10."])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0];
    stdout.read_exact(&mut first).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "the first text came with the end");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let whole = run(&["run", "-n", "96", "--block-length", "4", "--eos", "keep", "--json", "Count from 1 to 10."]);
    let streamed = String::from_utf8([&first[..], &rest].concat()).unwrap();
    assert_eq!(streamed, format!("{}\n", whole.succeeded().json()["text"].as_str().unwrap()));
}

#[test]
fn json_has_every_field_of_the_schema() {
    let json =
        json(&["hi", "--seed", "7", "--steps", "9", "--block-length", "5", "--temperature", "0.5", "--eos", "keep"]);
    let fields: Vec<(&str, &str)> = vec![
        ("version", "string"),
        ("model", "string"),
        ("architecture", "string"),
        ("quantisation", "string"),
        ("device", "string"),
        ("threads", "number"),
        ("seed", "number"),
        ("request", "object"),
        ("auto", "null"),
        ("prompt_tokens", "number"),
        ("canvas", "number"),
        ("steps", "number"),
        ("nfe", "number"),
        ("rows", "number"),
        ("cache_exact", "bool"),
        ("refreshed_steps", "number"),
        ("commits", "number"),
        ("remasks", "number"),
        ("commits_per_step", "number"),
        ("visible_tokens", "number"),
        ("rows_per_visible_token", "number"),
        ("visible_tokens_per_s", "number"),
        ("load_s", "number"),
        ("first_step_s", "number"),
        ("generate_s", "number"),
        ("ms_per_step", "number"),
        ("split_ms_per_step", "object"),
        ("step_ms", "array"),
        ("peak_rss_bytes", "number"),
        ("finish", "string"),
        ("stopped_early", "bool"),
        ("tokens", "array"),
        ("text", "string"),
    ];
    let kind = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    };
    assert_eq!(json.as_object().unwrap().len(), fields.len(), "{json}");
    let documented = std::fs::read_to_string(harness::workspace("crates/demask-cli/README.md")).unwrap();
    for field in json.as_object().unwrap().keys().chain(json["request"].as_object().unwrap().keys()) {
        assert!(documented.contains(&format!("`{field}`")), "README.md lacks `{field}`");
    }
    for (field, wanted) in fields {
        let may_be_null = matches!(field, "rows_per_visible_token" | "visible_tokens_per_s" | "peak_rss_bytes");
        let found = kind(&json[field]);
        assert!(found == wanted || (may_be_null && found == "null"), "{field}: {found} in {json}");
    }
    let none = serde_json::Value::Null;
    let request = serde_json::json!({
        "max_tokens": 12, "recipe": "exact", "steps": 9, "block_length": 5, "unmask": "low-confidence", "threshold": none,
        "low": none, "factor": none, "entropy": none, "add": none, "activate": none, "back": none, "cache": "none",
        "refresh": none, "refresh_drift": none, "window": none, "freeze_prompt": false, "dirty_rows": 0, "delay": none, "temperature": 0.5,
        "top_p": 1.0, "top_k": 0, "alg_temp": 0.0, "eps": 0.001, "cfg_scale": 0.0, "banned": [], "no_repeat": 0, "eos": "keep",
        "full_logits": false,
    });
    assert_eq!(json["request"], request);
    assert_eq!((&json["seed"], &json["quantisation"], &json["steps"]), (&7.into(), &"F32".into(), &9.into()));
    assert_eq!(json["step_ms"].as_array().unwrap().len(), 9);
    assert_eq!(
        (&json["cache_exact"], &json["refreshed_steps"], &json["commits"]),
        (&true.into(), &9.into(), &12.into())
    );
    assert_eq!(json["canvas"].as_u64().unwrap(), json["prompt_tokens"].as_u64().unwrap() + 12);
    assert_eq!(json["rows"].as_u64().unwrap(), 9 * json["canvas"].as_u64().unwrap());
    assert_eq!(json["tokens"].as_array().unwrap().len() as u64, json["visible_tokens"].as_u64().unwrap());
}

#[test]
fn guidance_counts_two_passes_per_step() {
    let json = json(&["hi", "--cfg-scale", "1", "--eos", "keep"]);
    assert_eq!((&json["steps"], &json["nfe"]), (&12.into(), &24.into()));
}

#[test]
fn e03_the_text_does_not_depend_on_threads() {
    for model in ["tiny-llada-f32", "tiny-llada-q8_0", "tiny-llada-q4_k_m"] {
        let model = fixture(model);
        let answer = |threads: &str| {
            let args =
                ["run", "-n", "32", "--temperature", "0.3", "--seed", "9", "~hello", "-m", &model, "-t", threads];
            run(&args).succeeded()
        };
        let golden = answer("1").stdout;
        for threads in ["2", "3", "8", "64"] {
            let outcome = answer(threads);
            assert_eq!(outcome.stdout, golden, "{model} with {threads} threads");
            assert_eq!(outcome.stderr.contains("warning: 64 threads"), threads == "64", "{}", outcome.stderr);
        }
    }
}

#[test]
fn the_seed_decides() {
    let with = |seed: &str| json(&["hi", "--temperature", "1", "--seed", seed])["tokens"].clone();
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7"), with("8"));
}

#[test]
fn early_stop_changes_the_steps_and_not_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = json(&["hi", "--eos", "keep"])["tokens"].as_array().unwrap().clone();
    let end = u32::try_from(tokens[2].as_u64().unwrap()).unwrap();
    let path = patched(folder.path(), "tiny-llada-f32", &[("tokenizer.ggml.eos_token_id", Some(Value::U32(end)))]);
    let path = path.to_str().unwrap();
    let args = ["run", "--no-chat", "--json", "-n", "12", "hi", "-m", path, "--eos"];
    let keep = run(&[&args[..], &["keep"]].concat()).succeeded().json();
    let stop = run(&[&args[..], &["stop"]].concat()).succeeded().json();
    assert_eq!(keep["text"], stop["text"]);
    assert!(stop["visible_tokens"].as_u64().unwrap() <= 2);
    assert_eq!((&keep["finish"], &stop["finish"]), (&"stop".into(), &"stop".into()));
    assert_eq!(keep["stopped_early"], false);
    assert!(stop["steps"].as_u64().unwrap() <= keep["steps"].as_u64().unwrap());
}

#[test]
fn d23_an_empty_answer_is_an_empty_line() {
    let folder = tempfile::tempdir().unwrap();
    let first = json(&["hi", "--eos", "keep"])["tokens"][0].as_u64().unwrap();
    let end = Some(Value::U32(u32::try_from(first).unwrap()));
    let path = patched(folder.path(), "tiny-llada-f32", &[("tokenizer.ggml.eos_token_id", end)]);
    let args = ["run", "--no-chat", "-n", "12", "hi", "-m", path.to_str().unwrap()];
    let outcome = run(&args).succeeded();
    assert_eq!(outcome.text(), "\n");
    assert!(outcome.stderr.starts_with("note: the answer is empty"), "{}", outcome.stderr);
    let json = run(&[&args[..], &["--json"]].concat()).succeeded().json();
    assert_eq!((&json["text"], &json["visible_tokens"], &json["finish"]), (&"".into(), &0.into(), &"stop".into()));
    assert!(json["rows_per_visible_token"].is_null());
}

#[test]
fn b08_file_stdin_and_argument_are_the_same_prompt() {
    let model = fixture("tiny-llada-f32");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    std::fs::write(&file, "\u{feff}D: Four\n").unwrap();
    let args = ["run", "-n", "8", "-m", &model];
    let by_file = run(&[&args[..], &["-f", file.to_str().unwrap()]].concat()).succeeded();
    let by_stdin = run_with_stdin(&args, "\u{feff}D: Four\n".as_bytes()).succeeded();
    assert_eq!(by_file.stdout, by_stdin.stdout);
    assert_eq!(by_stdin.stdout, run(&[&args[..], &["\u{feff}D: Four"]].concat()).succeeded().stdout);
}

#[cfg(unix)]
#[test]
fn a_silent_pipe_is_told_of() {
    let mut child = demask()
        .args(["tokenize", "hi", "-m", &fixture("tiny-llada-f32")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("note: reading stdin"), "{line}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn verbose_tells_settings_and_timings_on_stderr() {
    let stderr = tiny(&["hi", "-v"]).stderr;
    for row in [
        "model                 tiny-llada-f32 (llada)",
        "quantisation          F32",
        "device                cpu, ",
        "threads ",
        "seed                  42",
        "prompt                3 tokens",
        "canvas                15 positions, 12 of them open",
        "recipe                exact",
        "unmasker              low-confidence\n",
        "cache                 none (exact)",
        "of 12, blocks of 12, ",
        " refreshed",
        "commits per step      ",
        "load ",
        "first step ",
        "step ",
        "forward passes (NFE)  ",
        "rows ",
        "visible tokens ",
        "rows per token (R) ",
        "peak memory ",
        "finish ",
    ] {
        assert!(stderr.contains(row), "{stderr}\nlacks {row}");
    }
}

#[test]
fn step_statistics_are_a_line_per_step() {
    let outcome = tiny(&["hi", "--dump-step-stats", "--steps", "6", "--eos", "keep"]);
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("step ")).count(), 6, "{}", outcome.stderr);
}

#[test]
fn a_trace_holds_every_edit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let json = json(&["hi", "--eos", "keep", "--trace", path.to_str().unwrap()]);
    let trace = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["event"], &lines[13]["event"], lines.len()), (&"start".into(), &"end".into(), 14));
    let mut canvas = lines[0]["canvas"].as_array().unwrap().clone();
    for edit in lines.iter().flat_map(|line| line["edits"].as_array().into_iter().flatten()) {
        canvas[edit["position"].as_u64().unwrap() as usize] = edit["to"].clone();
    }
    let (visible, prompt) = (json["tokens"].as_array().unwrap(), json["prompt_tokens"].as_u64().unwrap() as usize);
    assert_eq!(canvas[prompt..prompt + visible.len()], visible[..]);
}

#[test]
fn e11_a_reader_that_leaves_is_no_failure() {
    let model = fixture("tiny-llada-f32");
    let commands: [&[&str]; 5] = [
        &["--help"],
        &["inspect", &model],
        &["tokenize", "hi", "-m", &model],
        &["run", "-n", "64", "--eos", "keep", "hi", "-m", &model],
        &["logits", "hi", "-m", &model],
    ];
    for args in commands {
        let mut child = demask().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        assert!(!stderr.contains("panic") && !stderr.contains("error"), "{args:?}: {stderr}");
    }
}

#[test]
fn e11_a_run_ends_within_a_step_of_its_reader() {
    let mut child = demask()
        .args(["run", "-n", "400", "--block-length", "2", "--eos", "keep", "Count from 1 to 10."])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    let left = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(left.elapsed() < Duration::from_secs(4), "{:?}", left.elapsed());
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "only the note about the model");
}

#[test]
fn a19_any_part_of_a_split_model_runs() {
    let folder = tempfile::tempdir().unwrap();
    let whole = demask_gguf::Gguf::open(fixture("tiny-llada-q8_0")).unwrap();
    let path = |part: usize| folder.path().join(format!("tiny-0000{part}-of-00003.gguf"));
    for part in 0..3usize {
        let mut writer = demask_gguf::Writer::new();
        if part == 0 {
            for (key, value) in whole.metadata().iter() {
                writer.add(key, value.clone()).unwrap();
            }
        }
        writer.add("split.no", Value::U16(part as u16)).unwrap();
        writer.add("split.count", Value::U16(3)).unwrap();
        writer.add("split.tensors.count", Value::I32(whole.tensors().len() as i32)).unwrap();
        for tensor in whole.tensors().chunks(7).nth(part).unwrap() {
            writer.tensor(&tensor.name, &tensor.dims, tensor.ty, whole.bytes(tensor).to_vec()).unwrap();
        }
        writer.save(path(part + 1)).unwrap();
    }
    let logits = |model: &str| run(&["logits", "--tokens", "282,104,105,284", "-m", model]).succeeded().stdout;
    let wanted = logits(&fixture("tiny-llada-q8_0"));
    for part in 1..=3 {
        assert_eq!(logits(path(part).to_str().unwrap()), wanted, "from part {part}");
        let json = run(&["inspect", "--json", path(part).to_str().unwrap()]).succeeded().json();
        assert_eq!((&json["parts"], json["tensors"].as_array().unwrap().len()), (&3.into(), 21));
    }
    std::fs::remove_file(path(2)).unwrap();
    run(&["inspect", path(1).to_str().unwrap()]).refused(1, &["tiny-00001-of-00003.gguf", "tiny-00002-of-00003.gguf"]);
}

#[cfg(unix)]
#[test]
fn e09_ctrl_c_stops_after_the_step_and_prints_what_is_final() {
    let mut child = demask()
        .args([
            "run",
            "-n",
            "400",
            "--block-length",
            "400",
            "--eos",
            "keep",
            "--dump-step-stats",
            "Count from 1 to 10.",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("step ") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "no step was told");
    }
    let asked = Instant::now();
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let (mut told, mut text) = (String::new(), String::new());
    stderr.read_to_string(&mut told).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(text.ends_with('\n'));
    assert!(told.contains("note: stopped: ") && told.contains("of 400 positions"), "{told}");
}
