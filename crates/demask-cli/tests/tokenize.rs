//! `demask tokenize`: each test that stands for a case is named after it.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use harness::{fixture, run, run_with_stdin};

/// The tiny model's bytes are its first 256 tokens.
fn raw(args: &[&str], stdin: &[u8]) -> Vec<u32> {
    let model = fixture("tiny-llada-f32");
    let outcome = run_with_stdin(&[&["tokenize", "--no-chat", "-m", &model], args].concat(), stdin).succeeded();
    serde_json::from_slice(&outcome.stdout).unwrap()
}

const BOS: u32 = 282;

#[test]
fn prints_ids_as_a_list() {
    let model = fixture("tiny-llada-f32");
    let outcome = run(&["tokenize", "--no-chat", "-m", &model, "~!"]).succeeded();
    assert_eq!(outcome.text(), "[282, 126, 33]\n");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn b04_special_tokens_are_text_unless_asked_for() {
    let typed = raw(&["<|eot_id|>"], b"");
    assert!(typed[0] == BOS && typed.len() > 5 && !typed.contains(&287), "{typed:?}");
    assert_eq!(raw(&["--special", "<|eot_id|>"], b""), [BOS, 287]);
    let name =
        harness::run(&["tokenize", "--json", "--no-chat", "", "-m", &fixture("tiny-llada-f32")]).succeeded().json();
    let bos = name["texts"][0].as_str().unwrap();
    assert_eq!(raw(&["--special", bos], b""), [BOS], "never two");
}

#[test]
fn b06_the_mask_token_in_a_prompt_is_text() {
    let model = fixture("tiny-llada-f32");
    let json = run(&["tokenize", "--json", "-m", &model, "<|mdm_mask|>"]).succeeded().json();
    assert!(json["tokens"].as_array().unwrap().iter().all(|id| id != 284), "{json}");
}

#[test]
fn b08_every_byte_counts_without_a_chat_template() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    std::fs::write(&file, "D: Four\n").unwrap();
    let wanted: Vec<u32> = [vec![BOS], raw(&["D: Four"], b"")[1..].to_vec(), vec![10]].concat();
    assert_eq!(raw(&["-f", file.to_str().unwrap()], b""), wanted);
    assert_eq!(raw(&[], b"D: Four\n"), wanted);
}

#[test]
fn b08_in_a_chat_one_newline_at_the_end_is_left_out() {
    let model = fixture("tiny-llada-f32");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    let tokens = |args: &[&str], stdin: &[u8]| {
        run_with_stdin(&[&["tokenize", "-m", &model], args].concat(), stdin).succeeded().text().to_owned()
    };
    let wanted = tokens(&["~Four"], b"");
    for text in ["~Four", "~Four\n", "~Four\r\n"] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(tokens(&["-f", file.to_str().unwrap()], b""), wanted, "{text:?}");
        assert_eq!(tokens(&[], text.as_bytes()), wanted, "{text:?}");
    }
}

#[test]
fn b09_backslashes_are_text() {
    assert_eq!(raw(&[r"~\~"], b""), [BOS, 126, 92, 126]);
}

#[test]
fn b19_a_nul_byte_is_a_byte() {
    assert_eq!(raw(&[], b"~\0!"), [BOS, 126, 0, 33]);
}

#[test]
fn b22_a_byte_order_mark_is_kept_and_named() {
    let model = fixture("tiny-llada-f32");
    let outcome = run_with_stdin(&["tokenize", "--no-chat", "-m", &model], "\u{feff}~".as_bytes()).succeeded();
    assert_eq!(outcome.text(), "[282, 239, 187, 191, 126]\n");
    assert!(outcome.stderr.contains("byte order mark"), "{}", outcome.stderr);
}

#[test]
fn the_prompt_is_joined_from_argument_files_and_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "2"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    std::fs::write(&one, "!").unwrap();
    std::fs::write(&two, "\"").unwrap();
    assert_eq!(raw(&["-f", &one, "~", "-f", &two], b"%"), [BOS, 126, 10, 33, 10, 34, 10, 37]);
}

#[test]
fn b25_a_chat_has_one_bos_and_the_system_turn_comes_first() {
    let model = fixture("tiny-llada-f32");
    let plain = run(&["tokenize", "--json", "-m", &model, "~~"]).succeeded().json();
    let system = run(&["tokenize", "--json", "-m", &model, "--system", "%%", "~~"]).succeeded().json();
    for json in [&plain, &system] {
        let tokens = json["tokens"].as_array().unwrap();
        assert_eq!(tokens.iter().filter(|id| **id == BOS).count(), 1, "{json}");
        assert_eq!(json["count"], tokens.len());
        assert_eq!(json["texts"].as_array().unwrap().len(), tokens.len());
    }
    let text = |json: &serde_json::Value| {
        json["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect::<String>()
    };
    assert!(!text(&plain).contains("%%"));
    let text = text(&system);
    assert!(text.find("%%").unwrap() < text.find("~~").unwrap(), "{text}");
}

#[test]
fn f17_the_tokenizer_of_any_architecture_works() {
    let folder = tempfile::tempdir().unwrap();
    let change = [("general.architecture", Some("llama".into()))];
    let path = harness::patched(folder.path(), "tiny-llada-f32", &change);
    run(&["tokenize", "--no-chat", "~", "-m", path.to_str().unwrap()]).succeeded();
}
