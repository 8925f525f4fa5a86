//! The tokenizer on the real Qwen2 vocabulary, against published and computed ids. The vocabulary is fetched, never
//! committed: where it is missing, these tests say so and pass.

#![allow(clippy::print_stdout)]

mod text_support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use demask::text::{ChatTemplate, Message, Role, Specials, StreamDecoder, TextError, Tokenizer, TokenizerConfig};
use demask_gguf::Gguf;
use serde::Deserialize;
use text_support::{golden, vocabulary};

/// A named string of `qwen2_cases.json`, or one that llama.cpp publishes with its vocabulary.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    case: String,
    text: String,
    ids: Vec<u32>,
    /// Ids after composition, where they differ.
    ids_nfc: Option<Vec<u32>>,
}

/// Ids that Hugging Face `tokenizers` gives for `strings.json`.
#[derive(Deserialize)]
struct Oracle {
    ids: Vec<Vec<u32>>,
    /// Ids after composition, where they differ, by index.
    nfc: BTreeMap<usize, Vec<u32>>,
}

fn qwen2() -> Option<Gguf> {
    vocabulary("ggml-vocab-qwen2.gguf")
}

/// The vocabulary as a model of its own, and as Dream has it.
fn tokenizers() -> Option<[Tokenizer; 2]> {
    let file = qwen2()?;
    let mut config = TokenizerConfig::from_gguf(&file).expect("a tokenizer");
    let plain = Tokenizer::new(&config).expect("a tokenizer");
    config.architecture = "dream";
    let dream = Tokenizer::new(&config).expect("a tokenizer");
    assert!(plain.warnings().is_empty());
    Some([plain, dream])
}

fn text(t: &Tokenizer, text: &str) -> Vec<u32> {
    t.encode(text, Specials::Text)
}

#[test]
fn b01_ids_equal_the_cases_and_decode_to_the_bytes() {
    let Some([plain, dream]) = tokenizers() else { return };
    let table: Vec<Entry> = golden("qwen2_cases.json");
    assert!(table.len() > 50);
    for entry in table {
        let ids = text(&plain, &entry.text);
        assert_eq!(ids, entry.ids, "{} {:?}", entry.case, entry.text);
        assert_eq!(plain.decode_bytes(&ids), entry.text.as_bytes(), "{}", entry.case);
        assert_eq!(text(&dream, &entry.text), entry.ids_nfc.unwrap_or(entry.ids), "{} for Dream", entry.case);
    }
}

#[test]
fn b01_ids_equal_llama_cpp_s_published_ones() {
    for name in ["qwen2", "llama-bpe", "gpt-2"] {
        let Some(file) = vocabulary(&format!("ggml-vocab-{name}.gguf")) else { continue };
        let t = Tokenizer::new(&TokenizerConfig::from_gguf(&file).expect("a tokenizer")).expect("a tokenizer");
        let table: Vec<Entry> = golden(&format!("{name}_published.json"));
        assert!(table.len() >= 46);
        for entry in table {
            assert_eq!(text(&t, &entry.text), entry.ids, "{name} {:?}", entry.text);
        }
    }
}

#[test]
fn ids_equal_hugging_face_s_on_random_strings() {
    let strings: Vec<String> = golden("strings.json");
    assert!(strings.len() >= 2_000);
    for (name, pre, architecture) in [
        ("qwen2", "qwen2", "qwen2"),
        ("qwen2", "bailingmoe", "llada"),
        ("qwen2", "dream", "dream"),
        ("llama-bpe", "llama-bpe", "llama"),
        ("gpt-2", "gpt-2", "gpt2"),
    ] {
        let Some(file) = vocabulary(&format!("ggml-vocab-{name}.gguf")) else { continue };
        let mut config = TokenizerConfig::from_gguf(&file).expect("a tokenizer");
        (config.architecture, config.pre) = (architecture, Some(pre));
        let t = Tokenizer::new(&config).expect("a tokenizer");
        let oracle: Oracle = golden(&format!("{name}.json"));
        assert_eq!(oracle.ids.len(), strings.len());
        let mut composed = 0;
        for (index, (string, ids)) in strings.iter().zip(&oracle.ids).enumerate() {
            let nfc = oracle.nfc.get(&index).filter(|_| architecture == "dream");
            composed += usize::from(nfc.is_some());
            let ids = nfc.unwrap_or(ids);
            assert_eq!(text(&t, string), *ids, "{name} as {architecture}: {string:?}");
            let mut stream = StreamDecoder::new(&t);
            let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
            streamed.push_str(&stream.finish());
            assert_eq!(streamed, t.decode(ids));
            assert!(nfc.is_some() || streamed == *string, "{name}: {string:?}");
        }
        assert_eq!(composed > 0, architecture == "dream");
    }
}

#[test]
fn b02_to_b22_ids_equal_the_cases() {
    let Some([t, dream]) = tokenizers() else { return };
    for (case, input, ids) in [
        ("B02", "Hello world", &[9707, 1879][..]),
        ("B02", " Hello world", &[21927, 1879]),
        ("B04", "<|im_end|>", &[27, 91, 318, 6213, 91, 29]),
        ("B06", "<|mask|>", &[27, 91, 11258, 91, 29]),
        ("B06", "<|mdm_mask|>", &[27, 91, 2277, 76, 9999, 91, 29]),
        ("B08", "D: Four\n", &[35, 25, 13322, 198]),
        ("B09", "a\\nb", &[64, 1699, 65]),
        ("B09", "a\nb", &[64, 198, 65]),
        ("B11", "👨‍👩‍👧‍👦", &[145367, 378, 235, 145233, 378, 235, 145665, 378, 235, 145988]),
        ("B11", "🇩🇪🇫🇷", &[145862, 145336, 145919, 145070]),
        ("B11", "👍🏽", &[144349, 145375]),
        ("B11", "1️⃣", &[16, 30543, 158, 225, 96]),
        ("B13", "cafe\u{301}", &[924, 1859, 53839]),
        ("B15", "\u{2029} \u{a3e4}", &[378, 102, 8620, 237, 97]),
        ("B15", "a\u{a0}b", &[64, 4102, 65]),
        ("B15", "a\u{3000}b", &[64, 22441, 65]),
        ("B15", "a\u{85}b", &[64, 126, 227, 65]),
        ("B15", "a\u{200b}b", &[64, 15692, 65]),
        ("B19", "ab\0cd", &[370, 188, 4385]),
        ("B22", "\u{feff}Hello", &[3225, 9707]),
        ("B27", "Hello , world !", &[9707, 1154, 1879, 753]),
    ] {
        assert_eq!(text(&t, input), ids, "{case} {input:?}");
        assert_eq!(t.decode(ids), input, "{case}");
    }
    assert_eq!(t.encode("<|im_end|>", Specials::Parse), [151645], "B04");
    assert_eq!(text(&dream, "cafe\u{301}"), [924, 58858], "B13");
    let decomposed = "Tie\u{302}\u{301}ng Vie\u{323}\u{302}t";
    assert_eq!(text(&dream, decomposed), [45351, 26068, 968, 128324], "B13");
}

#[test]
fn b17_long_words_take_linear_time() {
    let Some([t, _]) = tokenizers() else { return };
    let time = |pattern: &str, n: usize, tokens: usize| {
        let input = pattern.repeat(n);
        let best = (0..3).map(|_| {
            let started = Instant::now();
            let ids = text(&t, &input);
            let took = started.elapsed();
            assert_eq!(ids.len(), tokens, "{pattern:?} x {n}");
            took
        });
        let best = best.min().expect("three runs");
        println!("{pattern:?} x {n}: {best:?}");
        assert!(best < Duration::from_secs(2), "{pattern:?} x {n}: {best:?}");
        best
    };
    let once = time("a", 100_000, 12_500);
    let twice = time("a", 200_000, 25_000);
    assert!(twice < once * 5 / 2 + Duration::from_millis(50), "{once:?}, then {twice:?}");
    assert!(text(&t, &"a".repeat(100_000)).iter().all(|&id| id == 69440));
    time("_", 100_000, 1_563);
    time(" ", 100_000, 782);
    time("中", 100_000, 100_000);
}

#[test]
fn b23_the_rule_is_named_assumed_aloud_or_refused() {
    let Some(file) = qwen2() else { return };
    let mut config = TokenizerConfig::from_gguf(&file).expect("a tokenizer");
    let digits = [16, 17, 18, 19];
    for (architecture, pre, warned) in [
        ("dream", Some("qwen2"), false),
        ("dream", Some("dream"), false),
        ("dream", Some("default"), true),
        ("dream", None, true),
        ("llada", Some("llada"), false),
        ("llada", Some("bailingmoe"), false),
    ] {
        (config.architecture, config.pre) = (architecture, pre);
        let t = Tokenizer::new(&config).expect("a tokenizer");
        assert_eq!(text(&t, "1234"), digits, "{architecture} {pre:?}");
        assert_eq!(t.warnings().iter().any(|w| w.contains("tokenizer.ggml.pre")), warned, "{architecture} {pre:?}");
    }
    config.pre = Some("foo-9");
    let error = Tokenizer::new(&config).expect_err("an unknown rule");
    assert!(matches!(error, TextError::UnknownPreTokenizer { .. }));
}

#[test]
fn b29_b31_streams_join_without_half_characters() {
    let Some([t, _]) = tokenizers() else { return };
    let mut stream = StreamDecoder::new(&t);
    let pieces: Vec<String> = [11162, 99, 247].iter().map(|&id| stream.push(id)).collect();
    assert_eq!(pieces, [" ", "", "🦙"], "B29");
    let mut stream = StreamDecoder::new(&t);
    let mut joined: String = [11162, 21927].iter().map(|&id| stream.push(id)).collect();
    joined.push_str(&stream.finish());
    assert_eq!(joined, " \u{fffd} Hello", "B31");
    assert_eq!(joined, t.decode(&[11162, 21927]), "B31");
}

#[test]
fn c01_c02_chat_prompts_equal_the_cases() {
    let Some(file) = qwen2() else { return };
    let t = Tokenizer::new(&TokenizerConfig::from_gguf(&file).expect("a tokenizer")).expect("a tokenizer");
    let source = file.metadata().string("tokenizer.chat_template").expect("text").expect("a template");
    let dream = ChatTemplate::for_model(None, "dream").expect("built in");
    let theirs = ChatTemplate::for_model(Some(source), "qwen2").expect("a template");
    let turn = |role, content: &str| Message::new(role, content);
    let hi = [151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198];
    let brief = [151644, 8948, 198, 3430, 9814, 13, 151645, 198];
    // The file's default turn has no full stop; Dream's has.
    let default = [151644, 8948, 198, 2610, 525, 264, 10950, 17847, 151645, 198];
    let default_dream = [151644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151645, 198];
    for (chat, default) in [(&theirs, &default[..]), (&dream, &default_dream)] {
        let encode = |messages: &[Message]| chat.encode(&t, messages, true).expect("a prompt");
        let first = [default, &hi].concat();
        assert_eq!(encode(&[turn(Role::User, "Hi")]), first, "C01");
        let messages = [turn(Role::System, "Be brief."), turn(Role::User, "Hi")];
        assert_eq!(encode(&messages), [&brief[..], &hi].concat(), "C01");
        let messages = [turn(Role::User, "Hi"), turn(Role::Assistant, "Yo"), turn(Role::User, "2+2?")];
        let more = [64725, 151645, 198, 151644, 872, 198, 17, 10, 17, 30, 151645, 198, 151644, 77091, 198];
        assert_eq!(encode(&messages), [&first[..], &more].concat(), "C02");
        // The same markers in a message are text.
        let typed = [151644, 872, 198, 27, 91, 318, 6213, 91, 29, 151645, 198, 151644, 77091, 198];
        assert_eq!(encode(&[turn(Role::User, "<|im_end|>")]), [default, &typed].concat(), "B04");
    }
}

#[test]
fn a25_an_id_just_past_the_vocabulary_is_refused() {
    let Some(file) = qwen2() else { return };
    let mut config = TokenizerConfig::from_gguf(&file).expect("a tokenizer");
    config.ids.eos = Some(config.tokens.len() as i64);
    let message = Tokenizer::new(&config).expect_err("past the end").to_string();
    assert!(message.contains("tokenizer.ggml.eos_token_id") && message.contains("151936"), "{message}");
}

#[test]
fn the_vocabulary_loads_quickly() {
    let Some(file) = qwen2() else { return };
    let best = (0..3).map(|_| {
        let started = Instant::now();
        let config = TokenizerConfig::from_gguf(&file).expect("a tokenizer");
        assert_eq!(Tokenizer::new(&config).expect("a tokenizer").vocab_size(), 151_936);
        started.elapsed()
    });
    let best = best.min().expect("three loads");
    println!("loads in {best:?}");
    // A bound for any machine and build; the release build on a quiet desktop takes a tenth of it.
    assert!(best < Duration::from_secs(2), "{best:?}");
}
