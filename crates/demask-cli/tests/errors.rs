//! What goes wrong, and how it is told: each test is named after its case.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::path::Path;
use std::time::Duration;

use demask_gguf::{Array, TensorType, Value};
use harness::{fixture, patched, rebuilt, run, run_with_stdin, run_within, workspace};

/// For a file that is refused.
const SOON: Duration = Duration::from_secs(1);
/// For an option that is refused: 0.1 s, and something for a debug build on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(300);

/// The commands that read a model, up to the model's path.
const READERS: &[&[&str]] =
    &[&["run", "-n", "4", "hi", "-m"], &["tokenize", "hi", "-m"], &["inspect"], &["logits", "hi", "-m"]];

fn with<'a>(command: &[&'a str], path: &'a str) -> Vec<&'a str> {
    let mut args = command.to_vec();
    args.push(path);
    args
}

#[test]
fn every_refused_gguf_case_is_one_line_from_every_command() {
    let folder = workspace("crates/demask-gguf/tests/cases");
    let manifest = std::fs::read(format!("{folder}/manifest.json")).unwrap();
    let manifest: Vec<serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    for entry in &manifest {
        let file = entry["file"].as_str().unwrap();
        let path = format!("{folder}/{file}");
        for command in READERS {
            let outcome = run_within(SOON, &with(command, &path));
            if entry["verdict"] == "refuse" {
                let words: Vec<&str> = entry["words"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
                outcome.refused(1, &[&words[..], &[file]].concat());
            } else if command[0] == "inspect" {
                assert_eq!(outcome.code, Some(0), "{file}: {}", outcome.stderr);
            } else {
                // A GGUF file, but no model.
                outcome.refused(1, &[file]);
            }
        }
    }
}

#[test]
fn a01_cut_files_are_refused() {
    let whole = std::fs::read(fixture("tiny-llada-q8_0")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gguf = demask_gguf::Gguf::open(fixture("tiny-llada-q8_0")).unwrap();
    let data = gguf.tensors().iter().map(|tensor| tensor.offset()).min().unwrap() as usize;
    let key = whole.windows(9).position(|bytes| bytes == b"tokenizer").unwrap() + 4;
    let entry = whole.windows(5).position(|bytes| bytes == b"blk.0").unwrap() + 8;
    for length in [0, 4, 23, key, entry, data, data + 1, whole.len() / 2, whole.len() - 1] {
        let path = folder.path().join(format!("cut-{length}.gguf"));
        std::fs::write(&path, &whole[..length]).unwrap();
        let path = path.to_str().unwrap();
        for command in READERS {
            run_within(SOON, &with(command, path)).refused(1, &[&format!("cut-{length}.gguf")]);
        }
    }
}

#[test]
fn a03_nothing_is_left_behind_by_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(fixture("tiny-llada-q8_0")).unwrap();
    let cut = folder.path().join("cut.gguf");
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    let out = folder.path().join("out");
    let (cut, target) = (cut.to_str().unwrap(), out.to_str().unwrap());
    run(&["logits", "-m", cut, "--out", target, "hi"]).refused(1, &["cut.gguf"]);
    run(&["run", "-m", cut, "--trace", target, "hi"]).refused(1, &["cut.gguf"]);
    assert!(!out.exists());
}

#[test]
fn a05_an_empty_weight_is_refused_by_name_and_shape() {
    let folder = tempfile::tempdir().unwrap();
    let empty = |tensor: &demask_gguf::TensorInfo| {
        (tensor.name == "blk.0.ffn_up.weight").then(|| (tensor.name.clone(), vec![64, 0], tensor.ty))
    };
    let path = rebuilt(folder.path(), "tiny-llada-f32", &str::to_owned, &[], &empty);
    run(&["run", "-n", "4", "hi", "-m", path.to_str().unwrap()])
        .refused(1, &["blk.0.ffn_up.weight", "[64, 0]", "patched.gguf"]);
}

#[test]
fn a21_a_weight_of_a_type_that_does_not_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = |tensor: &demask_gguf::TensorInfo| {
        (tensor.name == "blk.0.ffn_up.weight").then(|| (tensor.name.clone(), tensor.dims.clone(), TensorType(21)))
    };
    let path = rebuilt(folder.path(), "tiny-llada-q4_k_m", &str::to_owned, &[], &other);
    run(&["run", "-n", "4", "hi", "-m", path.to_str().unwrap()])
        .refused(1, &["blk.0.ffn_up.weight", "IQ3_S", "Q4_K", "patched.gguf"]);
}

#[test]
fn a25_special_ids_outside_the_vocabulary_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["tokenizer.ggml.mask_token_id", "tokenizer.ggml.eos_token_id"] {
        let path = patched(folder.path(), "tiny-llada-f32", &[(key, Some(Value::U32(288)))]);
        run(&["run", "hi", "-m", path.to_str().unwrap()]).refused(1, &[key, "288", "patched.gguf"]);
    }
    let path = patched(folder.path(), "tiny-llada-f32", &[("tokenizer.ggml.mask_token_id", None)]);
    run(&["run", "hi", "-m", path.to_str().unwrap()]).refused(1, &["needs a mask token", "patched.gguf"]);
}

#[test]
fn a_vocabulary_without_merges_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key = "tokenizer.ggml.merges";
    let path = patched(folder.path(), "tiny-llada-f32", &[(key, None)]);
    run(&["run", "hi", "-m", path.to_str().unwrap()]).refused(1, &[key, "missing", "patched.gguf"]);
}

#[test]
fn a27_a_scalar_may_be_an_array_of_equals() {
    let folder = tempfile::tempdir().unwrap();
    let key = "llada.attention.head_count";
    let heads =
        |heads: &[i32]| patched(folder.path(), "tiny-llada-f32", &[(key, Some(Value::Array(Array::from(heads))))]);
    run(&["run", "-n", "4", "hi", "-m", heads(&[4, 4]).to_str().unwrap()]).succeeded();
    run(&["run", "-n", "4", "hi", "-m", heads(&[4, 2]).to_str().unwrap()]).refused(1, &[key, "patched.gguf"]);
}

#[test]
fn a29_other_architectures_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let key = "general.architecture";
    let refused = |value: Option<Value>, words: &[&str]| {
        let path = patched(folder.path(), "tiny-llada-f32", &[(key, value)]);
        let path = path.to_str().unwrap();
        run(&["run", "hi", "-m", path]).refused(1, words);
        run(&["logits", "hi", "-m", path]).refused(1, words);
        run(&["inspect", path]).succeeded();
    };
    refused(Some("gemma4".into()), &["gemma4", "not a diffusion model", "llada", "patched.gguf"]);
    refused(Some("llama".into()), &["llama", "not a diffusion model", "patched.gguf"]);
    refused(Some("foo".into()), &["foo", "unknown", "llada", "patched.gguf"]);
    refused(None, &[key, "missing", "patched.gguf"]);
    refused(Some(Value::U32(7)), &[key, "patched.gguf"]);
}

#[test]
fn a34_other_converters_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = |key: &str| key.replace("llada.", "diffuse.");
    let change = [("general.architecture", Some("diffuse".into()))];
    let path = rebuilt(folder.path(), "tiny-llada-f32", &theirs, &change, &|_| None);
    run(&["run", "hi", "-m", path.to_str().unwrap()]).refused(1, &["diffuse", "patched.gguf"]);

    let renamed = |tensor: &demask_gguf::TensorInfo| {
        let name = format!("model.transformer.{}", tensor.name.replace("token_embd", "wte"));
        Some((name, tensor.dims.clone(), tensor.ty))
    };
    let path = rebuilt(folder.path(), "tiny-llada-f32", &str::to_owned, &[], &renamed);
    let words = ["token_embd.weight", "another converter", "model.transformer.wte.weight", "patched.gguf"];
    run(&["run", "hi", "-m", path.to_str().unwrap()]).refused(1, &words);
}

#[test]
fn c09_a_broken_template_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let change = [("tokenizer.chat_template", Some("{% if x %}\n{% frobnicate %}".into()))];
    let path = patched(folder.path(), "tiny-llada-f32", &change);
    let path = path.to_str().unwrap();
    let outcome = run(&["run", "hi", "-m", path]);
    outcome.refused(1, &["chat template", "line 2", "patched.gguf"]);
    assert!(outcome.stderr.contains("hint: send the prompt as raw text: `demask run --no-chat`"), "{}", outcome.stderr);
    run(&["run", "-n", "4", "--no-chat", "hi", "-m", path]).succeeded();
}

#[test]
fn d05_blocks_and_steps_need_not_divide() {
    let model = fixture("tiny-llada-f32");
    let run = |args: &[&str]| run(&[&["run", "--no-chat", "hi", "-m", &model], args].concat());
    run(&["-n", "20", "--block-length", "8"]).succeeded();
    run(&["-n", "20", "--block-length", "8", "--steps", "11"]).succeeded();
    run(&["-n", "4", "--block-length", "32"]).succeeded();
    run(&["-n", "20", "--block-length", "0"]).refused(2, &["--block-length 0"]);
    run(&["-n", "20", "--block-length", "8", "--steps", "2"]).refused(2, &["--steps 2", "3 blocks"]);
}

#[test]
fn d15_unmask_names_are_checked_before_a_model_is_opened() {
    let outcome = run_within(AT_ONCE, &["run", "hi", "-m", "/nowhere/model.gguf", "--unmask", "foo"]);
    outcome.refused(2, &["--unmask foo", "low-confidence", "entropy"]);

    let model = fixture("tiny-llada-f32");
    run(&["run", "hi", "-m", &model, "--unmask", "entropy"])
        .refused(2, &["--unmask entropy", "LLaDA", "low-confidence, random"]);
    run(&["run", "-n", "4", "hi", "-m", &model, "--unmask", "LOW_CONFIDENCE"]).succeeded();
    run(&["run", "hi", "-m", &model, "--top-p", "0.5"]).refused(2, &["--top-p 0.5", "LLaDA"]);

    let dream = fixture("tiny-dream-f32");
    let words = ["--unmask low-confidence", "Dream", "origin, maskgit-plus, margin, entropy, threshold"];
    run(&["run", "hi", "-m", &dream, "--unmask", "low-confidence"]).refused(2, &words);
    run(&["run", "hi", "-m", &dream, "--cfg-scale", "1"]).refused(2, &["--cfg-scale 1", "Dream"]);
    run(&["run", "-n", "4", "hi", "-m", &dream, "--unmask", "topk_margin", "--top-k", "5", "--temp", "0.2"])
        .succeeded();
}

#[test]
fn d33_a_prompt_longer_than_the_context_gives_both_numbers() {
    let model = fixture("tiny-llada-gqa-f32");
    for length in [63, 64, 65, 200] {
        let prompt = "~".repeat(length - 1); // and BOS
        let outcome = run(&["run", "--no-chat", "-n", "16", &prompt, "-m", &model]);
        outcome.refused(1, &[&format!("{length} tokens"), "16", "64"]);
        assert!(outcome.stderr.contains("hint: "), "{}", outcome.stderr);
    }
    run(&["run", "--no-chat", "-n", "16", &"~".repeat(47), "-m", &model]).succeeded();
}

#[test]
fn d39_mistyped_numbers_are_misuse() {
    for (option, value) in [
        ("--steps", "128-ngl"),
        ("--steps", "0"),
        ("--steps", "-1"),
        ("--steps", "1e3"),
        ("--steps", "99999999999"),
        ("--max-tokens", "0"),
        ("--max-tokens", "many"),
        ("--temperature", "nan"),
        ("--temperature", "-1"),
        ("--temperature", "warm"),
        ("--top-p", "1.5"),
        ("--top-p", "nan"),
        ("--cfg-scale", "-0.5"),
        ("--alg-temp", "inf"),
        ("--top-k", "-3"),
        ("--seed", "-1"),
        ("--seed", "1.5"),
        ("--threads", "0"),
        ("--threads", "-2"),
        ("--threads", "100000"),
        ("--block-length", "-8"),
        ("--eos", "never"),
        ("--live", "maybe"),
        ("--device", "tpu"),
        ("--device", "gpu:x"),
        ("--gpu-layers", "0"),
        ("--recipe", "quick"),
        ("--cache", "lru"),
    ] {
        let outcome = run_within(AT_ONCE, &["run", "hi", "-m", "/nowhere/model.gguf", option, value]);
        outcome.refused(2, &[option, value]);
    }
    run(&["run", "hi", "-n", "0"]).refused(2, &["--max-tokens 0"]);
    run(&["run", "hi", "--temp", "-1"]).refused(2, &["--temperature -1"]);
}

#[test]
fn a_gpu_that_is_not_there_is_told() {
    let outcome = run(&["run", "hi", "--device", "gpu:99"]);
    outcome.refused(1, &["GPU"]);
    assert!(outcome.stderr.contains("`--device cpu`"), "{}", outcome.stderr);
}

#[test]
fn misuse_is_told_in_one_line() {
    run(&["run", "hi", "--stepz", "3"]).refused(2, &["`--stepz`"]);
    assert!(run(&["run", "hi", "--stepz", "3"]).stderr.contains("did you mean `--steps`"));
    assert!(run(&["run", "-5 + 3"]).stderr.contains("behind `--`"));
    run(&["rum"]).refused(2, &["`rum`"]);
    run(&["run", "hi", "--steps"]).refused(2, &["--steps"]);
    run(&["run", "hi", "--seed", "1", "--seed", "2"]).refused(2, &["--seed"]);
    run(&["run"]).refused(2, &["no prompt"]);
    run(&["inspect"]).refused(2, &["FILE"]);
    run(&["run", "hi", "--system", "x", "--no-chat"]).refused(2, &["--system", "--no-chat"]);
    run(&["tokenize", "--special", "hi"]).refused(2, &["--no-chat"]);
    run(&["logits", "--tokens", "1,x", "--out", "no-such-folder/x"]).refused(2, &["--tokens", "x"]);
    run(&["logits", "hi", "--rows", "3-1"]).refused(2, &["--rows 3-1", "0,4-7"]);
    run(&["run", "hi", "--device", "cpu", "--gpu-layers", "3"]).refused(2, &["--gpu-layers", "--device cpu"]);
    for (option, value) in
        [("--rows", "0"), ("--wanted", "0"), ("--repeat", "x"), ("--shapes", "4x"), ("--budget-ms", "0")]
    {
        run(&["bench", option, value]).refused(2, &[option, value]);
    }
    assert_eq!(run::<&str>(&[]).code, Some(2));
}

#[test]
fn b21_input_that_is_not_utf8_is_refused_with_its_place() {
    let model = fixture("tiny-llada-f32");
    let args = ["run", "-n", "4", "-m", &model];
    run_with_stdin(&args, b"\xff\xfe").refused(1, &["stdin", "byte 0", "0xff"]);
    run_with_stdin(&args, b"ab\xf0\x9f\x98").refused(1, &["stdin", "byte 2", "0xf0"]);
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        let text = std::ffi::OsStr::from_bytes(b"caf\xe9");
        harness::finish(harness::demask().args(args).arg(text)).refused(2, &["the prompt", "byte 3", "0xe9"]);
        let system = harness::finish(harness::demask().args(args).args(["hi", "--system"]).arg(text));
        system.refused(2, &["--system", "byte 3"]);
    }
}

#[test]
fn e36_every_path_fault_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(inside("empty.gguf"), b"").unwrap();
    std::fs::create_dir(inside("dir.gguf")).unwrap();
    for (path, words) in [
        (inside("missing.gguf"), &["missing.gguf", "No such file"][..]),
        (inside("empty.gguf"), &["empty.gguf", "empty file"]),
        (inside("dir.gguf"), &["dir.gguf", "a directory"]),
        ("~/x.gguf".to_owned(), &["~/x.gguf"]),
    ] {
        run(&["run", "hi", "-m", &path]).refused(1, words);
        run(&["inspect", &path]).refused(1, words);
    }
    #[cfg(unix)]
    {
        let pipe = inside("pipe.gguf");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        run(&["run", "hi", "-m", &pipe]).refused(1, &["pipe.gguf", "a named pipe"]);
        run(&["inspect", &pipe]).refused(1, &["pipe.gguf", "a named pipe"]);
        run(&["inspect", "/dev/null"]).refused(1, &["/dev/null", "device"]);
    }
    let missing = inside("no/such/prompt");
    run(&["run", "-f", &missing]).refused(1, &["the prompt file", "no/such/prompt", "No such file"]);
    let model = fixture("tiny-llada-f32");
    run(&["run", "hi", "-m", &model, "--trace", &inside("no/such/trace")]).refused(1, &["no/such/trace", "folder"]);
    run(&["logits", "hi", "-m", &model, "--out", &inside("dir.gguf")]).refused(1, &["dir.gguf", "a directory"]);
}

#[test]
fn models_of_a_hub_need_a_yes() {
    for name in ["llada", "GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-8B-Instruct:Q4_K_M"] {
        for command in READERS.iter().filter(|command| command[0] != "inspect") {
            let outcome = run(&with(command, name));
            outcome.refused(3, &[name, "not on this machine", "without a yes"]);
            assert!(
                outcome.stderr.contains(&format!("hint: `demask pull {name} --yes` does it")),
                "{}",
                outcome.stderr
            );
        }
        run(&["run", "hi", "--offline", "-m", name]).refused(1, &["not in the cache", "offline"]);
        run(&["run", "hi", "--yes", "-m", name]).refused(1, &["cannot reach 127.0.0.1:9"]);
    }
}

#[test]
fn a31_errors_do_not_drive_the_terminal() {
    let path = Path::new("/nowhere/\u{1b}[2Jx\n.gguf");
    run(&["inspect".as_ref(), path.as_os_str()]).refused(1, &["\\x1b[2Jx\\n.gguf"]);
    run(&["run", "hi", "--steps", "1\u{1b}[2J\n2"]).refused(2, &["--steps 1\\x1b[2J\\n2"]);
    run(&["run", "hi", "--\u{1b}[2J"]).refused(2, &["\\x1b[2J"]);
}
