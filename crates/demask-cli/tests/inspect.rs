//! `demask inspect`: each test that stands for a case is named after it.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use harness::{fixture, patched, run, workspace};

fn case(file: &str) -> String {
    workspace(&format!("crates/demask-gguf/tests/cases/{file}"))
}

#[test]
fn shows_metadata_types_and_tensors() {
    let outcome = run(&["inspect", &fixture("tiny-llada-q8_0")]).succeeded();
    let text = outcome.text();
    for words in [
        "format    GGUF version 3, alignment 32",
        "general.architecture                    string       \"llada\"",
        "tokenizer.ggml.tokens                   string[288]  [",
        "llada.rope.freq_base                    f32          500000",
        "types     21 tensors, 106816 weights",
        "Q8_0         16",
        "token_embd.weight         Q8_0      [64, 288]",
        "blk.0.attn_norm.weight    F32       [64]",
    ] {
        assert!(text.contains(words), "{text}\nlacks {words}");
    }
    assert!(text.lines().all(|line| line.chars().count() < 160), "{text}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn json_holds_the_same() {
    let json = run(&["inspect", "--json", &fixture("tiny-llada-q8_0")]).succeeded().json();
    assert_eq!((&json["kind"], &json["version"], &json["alignment"]), (&"gguf".into(), &3.into(), &32.into()));
    assert_eq!(json["types"]["Q8_0"]["tensors"], 16);
    assert_eq!(json["tensors"].as_array().unwrap().len(), 21);
    let first = &json["tensors"][0];
    assert_eq!((&first["name"], &first["type"]), (&"token_embd.weight".into(), &"Q8_0".into()));
    assert_eq!(first["shape"], serde_json::json!([64, 288]));
    let entry = |key: &str| {
        let entries = json["metadata"].as_array().unwrap();
        entries.iter().find(|entry| entry["key"] == key).unwrap_or_else(|| panic!("{key}"))
    };
    assert_eq!(entry("llada.context_length")["value"], 128);
    assert_eq!(entry("diffusion.shift_logits")["value"], false);
    assert_eq!(entry("tokenizer.ggml.tokens")["len"], 288);
    assert_eq!(entry("tokenizer.ggml.tokens")["value"].as_array().unwrap().len(), 16);
    assert!(entry("tokenizer.chat_template")["value"].as_str().unwrap().len() > 200, "strings are whole");
}

#[test]
fn a28_control_characters_in_keys_are_shown() {
    let outcome = run(&["inspect", &case("key_trailing_nul.gguf")]).succeeded();
    assert!(outcome.text().contains("general.architecture\\0"), "{}", outcome.text());
    assert!(run(&["inspect", &case("str_nul.gguf")]).succeeded().text().contains("\"a\\0b\""));
}

#[test]
fn a31_text_of_a_file_never_drives_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = [("tokenizer.chat_template", Some("\u{1b}]0;pwn\u{7}\u{9b}2J{{ x }}".into()))];
    let template = patched(folder.path(), "tiny-llada-f32", &hostile);
    for path in [case("str_ansi.gguf"), case("str_badutf8.gguf"), template.to_str().unwrap().to_owned()] {
        for args in [&["inspect", &path][..], &["inspect", "--json", &path]] {
            let outcome = run(args).succeeded();
            assert!(!outcome.text().chars().any(|c| c.is_control() && c != '\n'), "{:?}", outcome.text());
            if args.len() == 3 {
                outcome.json();
            }
        }
    }
    assert!(run(&["inspect", &case("str_ansi.gguf")]).text().contains(r#""\x1b[2J\x1b]0;pwn\x07""#));
}

#[test]
fn e13_nothing_is_coloured() {
    let outcome = run(&["inspect", &fixture("tiny-llada-f32")]).succeeded();
    assert!(!outcome.stdout.contains(&0x1b));
}

#[cfg(unix)]
#[test]
fn e15_paths_of_any_bytes_open() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    let names: [&[u8]; 8] = [
        "Модель.gguf".as_bytes(),
        "u\u{308}ber.gguf".as_bytes(),
        "über model's \"x\".gguf".as_bytes(),
        "\u{3000}.gguf".as_bytes(),
        "🦙.gguf".as_bytes(),
        b"new\nline.gguf",
        b"\xff.gguf",
        &[b'x'; 255],
    ];
    for name in names {
        let path = folder.path().join(std::ffi::OsStr::from_bytes(name));
        std::fs::copy(fixture("tiny-llada-q8_0"), &path).unwrap();
        let text = run(&["inspect".as_ref(), path.as_os_str()]).succeeded();
        assert!(!text.text().lines().next().unwrap().contains('\u{fffd}'), "{}", text.text());
        run(&["inspect".as_ref(), "--json".as_ref(), path.as_os_str()]).succeeded().json();
        let args = ["run".as_ref(), "-n".as_ref(), "2".as_ref(), "hi".as_ref(), "-m".as_ref(), path.as_os_str()];
        run(&args).succeeded();
    }
}

#[test]
fn a_trace_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.jsonl");
    let (trace, model) = (trace.to_str().unwrap(), fixture("tiny-llada-f32"));
    let ran =
        run(&["run", "-n", "12", "--eos", "keep", "--json", "hi", "-m", &model, "--trace", trace]).succeeded().json();

    let json = run(&["inspect", "--json", trace, "-m", &model]).succeeded().json();
    assert_eq!((&json["kind"], &json["finish"]), (&"trace".into(), &"complete".into()));
    assert_eq!(json["prompt_tokens"], ran["prompt_tokens"]);
    let steps = json["steps"].as_array().unwrap();
    assert_eq!(steps.len() as u64, ran["steps"].as_u64().unwrap());
    assert!(steps[0]["text"].as_str().unwrap().contains('░'));
    assert!(!steps[11]["text"].as_str().unwrap().contains('░'));

    let text = run(&["inspect", trace, "-m", &model]).succeeded();
    assert_eq!(text.text().lines().count(), 12 + 3, "{}", text.text());
    assert!(!text.text().chars().any(|c| c.is_control() && c != '\n'));

    run(&["inspect", trace]).refused(1, &["tiny-llada-f32", "demask-tiny"]);
    let sound = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<&str> = sound.lines().collect();
    let canvas = lines[0].replacen("\"canvas\":[", "\"canvas\":[288,", 1);
    let edit = lines[1].replacen("\"to\":", "\"to\":9999", 1);
    for (line, text) in [(0, canvas), (1, edit)] {
        let mut lines: Vec<&str> = lines.clone();
        lines[line] = &text;
        std::fs::write(trace, lines.join("\n") + "\n").unwrap();
        let outcome = run(&["inspect", trace, "-m", &model]);
        let place = format!("line {}: token id ", line + 1);
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(&place) && outcome.stderr.contains("vocabulary of 288"), "{}", outcome.stderr);
    }
    std::fs::write(trace, &sound).unwrap();
    let whole = std::fs::read_to_string(trace).unwrap();
    std::fs::write(trace, &whole[..whole.len() / 2]).unwrap();
    let cut = run(&["inspect", trace, "-m", &model]).succeeded();
    assert!(cut.text().ends_with("the trace breaks off\n"), "{}", cut.text());
    std::fs::write(trace, whole.replace("\"to\":", "\"too\":")).unwrap();
    let broken = run(&["inspect", trace, "-m", &model]);
    assert_eq!(broken.code, Some(1));
    assert!(broken.stderr.starts_with("error: ") && broken.stderr.contains("line 2"), "{}", broken.stderr);
}

#[test]
fn a_trace_becomes_a_film_or_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, film, still) = (path("trace"), path("film.svg"), path("still.svg"));
    let json = run(&["run", "-n", "24", "--json", "--trace", &trace, "What is 2 + 3?"]).succeeded().json();
    let steps = json["steps"].as_u64().unwrap() as usize;
    let outcome = run(&["inspect", &trace, "--svg", &film, "--title", "2 < 3 & more"]).succeeded();
    assert_eq!((outcome.text(), outcome.stderr.as_str()), ("", ""));
    let film = std::fs::read_to_string(&film).unwrap();
    assert_eq!(film.matches("<animate ").count(), steps + 1, "one scene per step, and the empty canvas");
    let text: String = film.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text).collect();
    assert!(text.contains("2 &lt; 3 &amp; more") && text.contains("2 + 3 = 5") && film.ends_with("</svg>\n"), "{text}");
    run(&["inspect", &trace, "--svg", &still, "--step", "0"]).succeeded();
    let still = std::fs::read_to_string(&still).unwrap();
    assert!(!still.contains("<animate") && still.matches('\u{2591}').count() == 24, "{still}");

    let many = (steps + 1).to_string();
    run(&["inspect", &trace, "--svg", &path("x"), "--step", &many]).refused(2, &[&format!("--step {many}")]);
    run(&["inspect", &trace, "--step", "1"]).refused(2, &["--svg"]);
    run(&["inspect", &trace, "--svg", &trace]).refused(1, &["this command reads from it"]);
    run(&["inspect", &trace, "--svg", &path("no/x.svg")]).refused(1, &["no such folder"]);
    run(&["inspect", &fixture("tiny-llada-f32"), "--svg", &path("x")])
        .refused(2, &["tiny-llada-f32", "--svg draws traces"]);
    assert!(!folder.path().join("x").exists());
}

#[test]
fn positions_that_are_opened_again_are_open_in_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (trace, model) = (path("trace"), fixture("tiny-llada-f32"));
    let wino = ["--unmask", "wino", "--threshold", "0", "--back", "0.5", "--eos", "keep"];
    let args = [&["run", "-n", "12", "--json", "--trace", &trace, "hi", "-m", &model], &wino[..]].concat();
    let ran = run(&args).succeeded().json();
    assert!(ran["remasks"].as_u64().unwrap() > 0, "{ran}");

    let lines = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let replay = run(&["inspect", "--json", &trace, "-m", &model]).succeeded().json();
    let shown = replay["steps"].as_array().unwrap();
    let mut open = 12;
    let mut grew = false;
    for (number, (line, step)) in lines[1..].iter().zip(shown).enumerate() {
        let count = |kind: &str| line["edits"].as_array().unwrap().iter().filter(|edit| edit["kind"] == kind).count();
        open = open + count("remask") - count("unmask");
        grew |= count("remask") > 0;
        assert_eq!(step["text"].as_str().unwrap().matches('\u{2591}').count(), open, "{step}");
        let still = path("still.svg");
        run(&["inspect", &trace, "-m", &model, "--svg", &still, "--step", &(number + 1).to_string()]).succeeded();
        let still = std::fs::read_to_string(&still).unwrap();
        assert_eq!(still.matches('\u{2591}').count(), open, "{still}");
        assert!(still.contains(&format!("{} of 12 positions decided", 12 - open)), "{still}");
    }
    assert!(grew && open == 0);

    // An edit that can't be is told with its line, from every form of a replay.
    let text = std::fs::read_to_string(&trace).unwrap();
    for (from, to, why) in [
        ("\"kind\":\"unmask\"", "\"kind\":\"revise\"", "which is open"),
        ("\"position\":", "\"position\":9", "not the answer's"),
        ("\"kind\":\"unmask\"", "\"kind\":\"melt\"", "melt"),
    ] {
        std::fs::write(&trace, text.replacen(from, to, 1)).unwrap();
        for more in [&[][..], &["--svg", &path("x.svg")]] {
            let outcome = run(&[&["inspect", &trace, "-m", &model], more].concat());
            assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
            assert!(outcome.stderr.contains("line 2") && outcome.stderr.contains(why), "{}", outcome.stderr);
        }
    }
}
