//! The word scanner against the regular expressions that the rules were published as.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use demask::text::TextError;
use demask::text::pretokenize::{PRETOKENIZERS, SplitRule};
use proptest::prelude::*;

const RULES: [SplitRule; 4] = [SplitRule::Qwen2, SplitRule::BailingMoe, SplitRule::LlamaBpe, SplitRule::Gpt2];

fn by_expression(rule: SplitRule, text: &str) -> Vec<String> {
    static COMPILED: OnceLock<[fancy_regex::Regex; 4]> = OnceLock::new();
    let compiled = COMPILED
        .get_or_init(|| RULES.map(|r| fancy_regex::Regex::new(r.published_expression()).expect("a valid expression")));
    let at = RULES.iter().position(|r| *r == rule).expect("one of the rules");
    compiled[at].find_iter(text).map(|m| m.expect("a short text").as_str().to_owned()).collect()
}

fn check(text: &str) {
    for rule in RULES {
        let words: Vec<_> = rule.words(text).collect();
        assert_eq!(words.concat(), text, "{rule:?}");
        assert_eq!(words, by_expression(rule, text), "{rule:?} on {text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equals_the_expressions_on_any_text(text in "\\PC{0,60}") {
        check(&text);
    }

    #[test]
    fn equals_the_expressions_on_what_the_rules_look_at(
        text in "([ \t\n\r\u{a0}\u{3000}\u{85}\u{2028}]{0,3}|'|['’]?(s|S|ſ|t|ll|Ll|lL|re|rE|ve|m|D)|[a-céßK]{1,3}|[0-9½Ⅷ٣]{1,5}|[.,!<>|_]{1,3}|中|\u{301}|😀|\u{200b}){0,14}"
    ) {
        check(&text);
    }
}

#[test]
fn every_rule_has_a_name_and_resolves() {
    for row in PRETOKENIZERS {
        for name in row.names {
            let (rule, warning) = SplitRule::resolve(Some(name), "anything").expect("a known name");
            assert_eq!((rule, warning), (row.rule, None), "{name}");
        }
    }
    assert!(RULES.iter().all(|rule| PRETOKENIZERS.iter().any(|row| row.rule == *rule)));
}

#[test]
fn b23_unknown_names_are_refused_with_the_list() {
    let error = SplitRule::resolve(Some("foo-9"), "dream").expect_err("an unknown name");
    assert!(matches!(error, TextError::UnknownPreTokenizer { .. }));
    let message = error.to_string();
    for part in ["tokenizer.ggml.pre", "foo-9", "qwen2", "dream", "bailingmoe", "llada-moe", "llama-bpe", "gpt-2"] {
        assert!(message.contains(part), "{message}");
    }
    // A name can't drive the terminal that shows it.
    let message = SplitRule::resolve(Some("a\x1b[2J\n"), "dream").expect_err("unknown").to_string();
    assert!(!message.contains(['\x1b', '\n']), "{message}");
}

#[test]
fn b23_missing_and_default_follow_the_architecture_and_say_so() {
    for pre in [None, Some("default")] {
        for (architecture, rule) in [("dream", SplitRule::Qwen2), ("llada", SplitRule::BailingMoe)] {
            let (found, warning) = SplitRule::resolve(pre, architecture).expect("a known architecture");
            assert_eq!(found, rule);
            assert!(warning.expect("a warning").contains("tokenizer.ggml.pre"));
        }
        let message = SplitRule::resolve(pre, "gemma4").expect_err("no rule").to_string();
        assert!(message.contains("gemma4") && message.contains("qwen2"), "{message}");
    }
    assert_eq!(SplitRule::Qwen2.words("1234").count(), 4);
    assert_eq!(SplitRule::BailingMoe.words("1234").count(), 4);
    assert_eq!(SplitRule::LlamaBpe.words("1234").count(), 2);
    assert_eq!(SplitRule::Gpt2.words("1234").count(), 1);
}

#[test]
fn b17_no_text_takes_more_than_linear_time() {
    let patterns =
        [" ", "\n", " \n", "\n ", "a", "'", "'s", "1", ".", " .", " a", "\u{a0}", "中", "\u{301}", "\t\r\n "];
    for rule in RULES {
        for pattern in patterns {
            let text = pattern.repeat(1_000_000 / pattern.len());
            let started = Instant::now();
            let bytes: usize = rule.words(&text).map(str::len).sum();
            assert_eq!(bytes, text.len());
            assert!(started.elapsed() < Duration::from_secs(1), "{rule:?} on {pattern:?}");
        }
    }
}
