//! The tokenizer on vocabularies small enough to follow by hand.

mod text_support;

use std::time::{Duration, Instant};

use demask::text::{ConfigIds, Specials, StreamDecoder, TextError, TokenKind, Tokenizer};
use proptest::prelude::*;
use text_support::{BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, Vocabulary};

fn bytes_of(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn refusal(vocabulary: &Vocabulary) -> String {
    Tokenizer::new(&vocabulary.config()).expect_err("a broken vocabulary").to_string()
}

#[test]
fn merges_go_by_rank_then_leftmost() {
    let mut v = Vocabulary::bytes();
    let bc = v.merge("b", "c");
    let ab = v.merge("a", "b");
    let aa = v.merge("a", "a");
    let aab = v.merge("aa", "b");
    let t = v.build();
    let encode = |text: &str| t.encode(text, Specials::Text);
    let [a, c] = [u32::from(b'a'), u32::from(b'c')];
    assert_eq!(encode("abc"), [a, bc]);
    assert_eq!(encode("ab"), [ab]);
    assert_eq!(encode("aaa"), [aa, a]);
    assert_eq!(encode("aaaa"), [aa, aa]);
    assert_eq!(encode("aab"), [a, ab]);
    assert_eq!(encode("aabc"), [aa, bc]);
    assert_eq!(encode("cab"), [c, ab]);
    assert_eq!(t.token_bytes(aab), b"aab");
    assert_eq!(encode(""), [0u32; 0]);
}

/// Merging by the letter of the definition: again and again the best pair, leftmost first.
fn merge_slowly(merges: &[(u32, u32, u32)], mut word: Vec<u32>) -> Vec<u32> {
    loop {
        let best = (0..word.len().saturating_sub(1))
            .filter_map(|i| {
                let rank = merges.iter().position(|m| (m.0, m.1) == (word[i], word[i + 1]))?;
                Some((rank, i))
            })
            .min();
        let Some((rank, i)) = best else { return word };
        word.splice(i..i + 2, [merges[rank].2]);
    }
}

proptest! {
    #[test]
    fn equals_the_definition(
        pairs in proptest::collection::vec((0usize..40, 0usize..40), 1..30),
        word in "[abc]{0,40}",
    ) {
        let mut v = Vocabulary::bytes();
        let mut known: Vec<(String, u32)> = ["a", "b", "c"].map(|s| (s.to_owned(), s.as_bytes()[0].into())).to_vec();
        let mut merges = Vec::new();
        for (left, right) in pairs {
            let (left, right) = (known[left % known.len()].clone(), known[right % known.len()].clone());
            let joined = format!("{}{}", left.0, right.0);
            if joined.len() > 12 || known.iter().any(|(text, _)| *text == joined) {
                continue;
            }
            let id = v.merge(&left.0, &right.0);
            merges.push((left.1, right.1, id));
            known.push((joined, id));
        }
        prop_assert_eq!(v.build().encode(&word, Specials::Text), merge_slowly(&merges, bytes_of(&word)));
    }

    #[test]
    fn decoding_gives_back_every_byte(text in "(\\PC|[\n\t<|>\\x00]|<\\|eot_id\\|>){0,40}") {
        let t = Vocabulary::llada().build();
        let ids = t.encode(&text, Specials::Text);
        prop_assert_eq!(t.decode_bytes(&ids), text.as_bytes());
        prop_assert_eq!(t.decode(&ids), text);
    }

    #[test]
    fn a_stream_joins_to_the_decoded_whole(ids in proptest::collection::vec(0u32..290, 0..60)) {
        let t = Vocabulary::llada().build();
        let mut stream = StreamDecoder::new(&t);
        let mut joined: String = ids.iter().map(|&id| stream.push(id)).collect();
        joined.push_str(&stream.finish());
        prop_assert_eq!(joined, t.decode(&ids));
    }
}

#[test]
fn b04_names_of_control_tokens_typed_by_a_user_stay_text() {
    let v = Vocabulary::dream();
    let t = v.build();
    assert_eq!(t.encode("<|im_end|>", Specials::Text), bytes_of("<|im_end|>"));
    assert_eq!(t.encode("<|im_end|>", Specials::Parse), [v.id("<|im_end|>")]);
    assert_eq!(t.encode_prompt_raw("<|im_end|>"), bytes_of("<|im_end|>"));
}

#[test]
fn b06_no_text_becomes_the_mask_token() {
    for (v, name) in [(Vocabulary::dream(), "<|mask|>"), (Vocabulary::llada(), "<|mdm_mask|>")] {
        let t = v.build();
        let ids = t.encode(name, Specials::Text);
        assert_eq!(t.decode(&ids), name);
        assert!(!ids.contains(&t.ids().mask.expect("a mask token")));
    }
    // Not even where the file calls the mask token user-defined, or a merge makes it.
    let mut v = Vocabulary::bytes();
    let mask = v.add("[M]", USER_DEFINED);
    v.ids.mask = Some(mask.into());
    assert_eq!(v.build().encode("[M]", Specials::Text), bytes_of("[M]"));
    let mut v = Vocabulary::bytes();
    let mask = v.merge("[", "M");
    v.ids.mask = Some(mask.into());
    assert_eq!(v.build().encode("[M", Specials::Text), bytes_of("[M"));
}

#[test]
fn user_defined_tokens_are_found_in_any_text_longest_first() {
    let mut v = Vocabulary::bytes();
    let short = v.add("<a>", USER_DEFINED);
    let long = v.add("<a><b>", USER_DEFINED);
    let t = v.build();
    assert_eq!(t.encode("<a><b><a>", Specials::Text), [long, short]);
    assert_eq!(t.decode(&[long, short]), "<a><b><a>");
    assert!(!t.is_special(long));
}

#[test]
fn b17_one_very_long_word_takes_linear_time() {
    let mut v = Vocabulary::bytes();
    let mut run = "a".to_owned();
    while run.len() < 64 {
        v.merge(&run, &run);
        run = run.repeat(2);
    }
    let t = v.build();
    let time = |n: usize| {
        let text = "a".repeat(n);
        let runs = (0..3).map(|_| {
            let started = Instant::now();
            assert_eq!(t.encode(&text, Specials::Text).len(), n.div_ceil(64));
            started.elapsed()
        });
        runs.min().expect("three runs")
    };
    let (once, twice) = (time(102_400), time(204_800));
    assert!(once < Duration::from_secs(2), "{once:?}");
    assert!(twice < once * 5 / 2 + Duration::from_millis(50), "{once:?}, then {twice:?}");
}

#[test]
fn b19_a_nul_byte_is_a_byte() {
    let t = Vocabulary::bytes().build();
    let ids = t.encode("ab\0cd", Specials::Text);
    assert_eq!(ids, [97, 98, 0, 99, 100]);
    assert_eq!(t.decode(&ids), "ab\0cd");
}

#[test]
fn b20_tokens_that_are_a_nul_byte() {
    let mut v = Vocabulary::bytes();
    let plain = v.add("\0", NORMAL);
    let named = v.add("<0x00>", BYTE);
    let high = v.add("<0xfF>", BYTE);
    let odd = v.add("<0x+1>", BYTE);
    let t = v.build();
    assert_eq!(t.decode_bytes(&[plain]), [0]);
    assert_eq!(t.decode_bytes(&[named]), [0]);
    assert_eq!(t.decode_bytes(&[high]), [0xff]);
    assert_eq!(t.decode_bytes(&[odd]), b"<0x+1>");
    assert_eq!(t.token_text(plain), "\\0");
    assert_eq!(t.token_text(high), "\\xff");
}

#[test]
fn a31_token_names_can_t_drive_a_terminal() {
    let mut v = Vocabulary::bytes();
    let id = v.add("\x1b[2J\x07", CONTROL);
    assert_eq!(v.build().token_text(id), "\\x1b[2J\\x07");
}

#[test]
fn b23_a_missing_rule_is_the_architecture_s_and_a_warning() {
    let mut v = Vocabulary::dream();
    v.merge("1", "2");
    for pre in [None, Some("default")] {
        v.pre = pre;
        let t = v.build();
        assert_eq!(t.encode("1234", Specials::Text).len(), 4);
        assert!(t.warnings().iter().any(|w| w.contains("tokenizer.ggml.pre")), "{:?}", t.warnings());
    }
    v.pre = Some("qwen2");
    assert!(v.build().warnings().is_empty());
    v.pre = Some("foo-9");
    assert!(refusal(&v).contains("bailingmoe"));
}

#[test]
fn b25_a_raw_prompt_begins_with_bos_where_the_file_says_so() {
    let mut v = Vocabulary::llada();
    let bos = v.id("<|startoftext|>");
    for (said, wanted) in [(Some(true), 1), (Some(false), 0), (None, 1)] {
        v.add_bos_token = said;
        let ids = v.build().encode_prompt_raw("x");
        assert_eq!(ids.len() - 1, wanted, "{said:?}");
        assert_eq!(ids.iter().filter(|&&id| id == bos).count(), wanted);
    }
    // A BOS that the user typed is text: never two.
    v.add_bos_token = Some(true);
    let ids = v.build().encode_prompt_raw("<|startoftext|>");
    assert_eq!(ids.iter().filter(|&&id| id == bos).count(), 1);
    // Other architectures: none by default.
    v.add_bos_token = None;
    v.architecture = "dream";
    assert_eq!(v.build().encode_prompt_raw("x"), bytes_of("x"));
    // Nothing to begin with.
    v.add_bos_token = Some(true);
    v.ids.bos = Some(-1);
    let t = v.build();
    assert_eq!(t.encode_prompt_raw("x"), bytes_of("x"));
    assert!(t.warnings().iter().any(|w| w.contains("bos_token_id")));
}

#[test]
fn b27_decoding_leaves_spaces_alone() {
    let t = Vocabulary::bytes().build();
    assert_eq!(t.decode(&bytes_of("Hello , world ! it 's")), "Hello , world ! it 's");
}

#[test]
fn b29_a_character_split_over_tokens_streams_whole() {
    let t = Vocabulary::llada().build();
    let mut stream = StreamDecoder::new(&t);
    let pieces: Vec<String> = " 🦙".bytes().map(|b| stream.push(b.into())).collect();
    assert_eq!(pieces, [" ", "", "", "", "🦙"]);
    assert_eq!(stream.finish(), "");
}

#[test]
fn b31_half_a_character_before_other_text_is_one_replacement() {
    let v = Vocabulary::llada();
    let t = v.build();
    let ids: [u32; 5] = [0x20, 0xf0, 0x9f, 0x20, 0x48];
    let mut stream = StreamDecoder::new(&t);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    assert_eq!(pieces, [" ", "", "", "\u{fffd} ", "H"]);
    assert_eq!(t.decode(&ids), " \u{fffd} H");
    // At the end, what waits is given up.
    let mut stream = StreamDecoder::new(&t);
    assert_eq!(stream.push(0xf0), "");
    // A special token between is no text and changes nothing.
    assert_eq!(stream.push(v.id("<|eot_id|>")), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn b13_only_dream_composes_first() {
    let text = "cafe\u{301}";
    let mut v = Vocabulary::dream();
    assert_eq!(v.build().encode(text, Specials::Text), bytes_of("café"));
    v.architecture = "llada";
    assert_eq!(v.build().encode(text, Specials::Text), bytes_of(text));
}

#[test]
fn a25_special_ids_are_inside_the_vocabulary() {
    let mut v = Vocabulary::bytes();
    type Set = fn(&mut ConfigIds, i64);
    let keys: [(&str, Set); 7] = [
        ("bos", |ids, id| ids.bos = Some(id)),
        ("eos", |ids, id| ids.eos = Some(id)),
        ("eot", |ids, id| ids.eot = Some(id)),
        ("eom", |ids, id| ids.eom = Some(id)),
        ("mask", |ids, id| ids.mask = Some(id)),
        ("padding", |ids, id| ids.pad = Some(id)),
        ("unknown", |ids, id| ids.unknown = Some(id)),
    ];
    for (name, set) in keys {
        for id in [256, 99_999, -2, i64::from(u32::MAX), i64::MAX, i64::MIN] {
            v.ids = ConfigIds::default();
            set(&mut v.ids, id);
            let message = refusal(&v);
            let key = format!("tokenizer.ggml.{name}_token_id");
            assert!(message.contains(&key) && message.contains(&id.to_string()), "{message}");
            assert!(message.contains("256"), "{message}");
        }
        v.ids = ConfigIds::default();
        set(&mut v.ids, -1);
        assert_eq!(v.build().ids().eos, None, "{name}");
    }
    let ids = *Vocabulary::bytes().build().ids();
    assert_eq!(ids.mask, None, "the model decides what a missing mask token means");
}

#[test]
fn a25_broken_vocabularies_are_refused_by_name() {
    for line in ["ab", "a  b", "a b c", " a", "a ", ""] {
        let mut v = Vocabulary::bytes();
        v.merges.push(line.as_bytes().to_vec());
        let message = refusal(&v);
        assert!(message.contains("tokenizer.ggml.merges") && message.contains("entry 0"), "{message}");
    }
    let mut v = Vocabulary::bytes();
    v.merges.push(b"a b".to_vec());
    assert!(refusal(&v).contains("\"ab\" is not in the vocabulary"));
    let mut v = Vocabulary::bytes();
    v.types.pop();
    assert!(refusal(&v).contains("tokenizer.ggml.token_type"));
    let mut v = Vocabulary::bytes();
    v.tokens.clear();
    v.types.clear();
    assert!(refusal(&v).contains("tokenizer.ggml.tokens"));
    let v = Vocabulary::bytes();
    let mut config = v.config();
    config.model = Some("llama");
    let error = Tokenizer::new(&config).expect_err("another family");
    assert!(matches!(error, TextError::UnsupportedModel { .. }));
    assert!(error.to_string().contains("llama"));
    config.model = None;
    assert!(Tokenizer::new(&config).expect_err("no family").to_string().contains("tokenizer.ggml.model"));
}

#[test]
fn a25_of_two_equal_tokens_the_first_is_encoded_and_both_decode() {
    let mut v = Vocabulary::bytes();
    let second = v.add("a", NORMAL);
    let t = v.build();
    assert_eq!(t.encode("a", Specials::Text), [97]);
    assert_eq!(t.decode(&[97, second]), "aa");
}

#[test]
fn end_tokens_are_found_by_key_and_failing_that_by_name() {
    let v = Vocabulary::llada();
    let t = v.build();
    assert_eq!(t.ids().eot, Some(v.id("<|eot_id|>")));
    assert!(t.is_end(v.id("<|eot_id|>")) && t.is_end(v.id("<|endoftext|>")));
    assert!(!t.is_end(97) && !t.is_end(v.id("<|mdm_mask|>")));
    let mut v = Vocabulary::dream();
    assert_eq!(v.build().ids().eot, Some(v.id("<|im_end|>")));
    v.ids.eot = Some(97);
    assert_eq!(v.build().ids().eot, Some(97));
    v.ids.eos = None;
    assert_eq!(v.build().ids().eos, Some(v.id("<|endoftext|>")));
    // A name that the file calls plain text ends nothing.
    let mut v = Vocabulary::bytes();
    v.add("<|eot_id|>", NORMAL);
    assert_eq!(v.build().ids().eot, None);
}

#[test]
fn special_and_unused_tokens_have_no_text() {
    let mut v = Vocabulary::llada();
    let hole = v.add("[PAD9]", UNUSED);
    let t = v.build();
    let ids = [72, v.id("<|eot_id|>"), hole, 999_999, 105];
    assert_eq!(t.decode(&ids), "Hi");
    assert_eq!(ids.map(|id| t.is_special(id)), [false, true, true, true, false]);
    assert_eq!(t.token_text(hole), "[PAD9]");
    assert_eq!(t.kind(hole), Some(TokenKind::Unused));
    assert_eq!(t.kind(999_999), None);
    assert_eq!(t.token_bytes(999_999), b"");
    assert_eq!(t.vocab_size(), v.tokens.len());
}

#[test]
fn bytes_without_a_token_are_a_warning() {
    let mut v = Vocabulary::bytes();
    v.tokens[usize::from(b'z')] = b"zz".to_vec();
    let t = v.build();
    assert!(t.warnings()[0].contains("1 of 256 bytes"), "{:?}", t.warnings());
    assert_eq!(t.encode("az", Specials::Text), [97]);
    // A byte token is a token for it.
    let named = v.add("<0x7A>", BYTE);
    let t = v.build();
    assert!(t.warnings().is_empty());
    assert_eq!(t.encode("az", Specials::Text), [97, named]);
}
