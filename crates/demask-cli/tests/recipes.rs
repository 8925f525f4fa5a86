//! Recipes, unmaskers and cache policies from the command line.
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;

use std::time::Duration;

use harness::{fixture, run, run_within};

fn json(args: &[&str]) -> serde_json::Value {
    let model = fixture("tiny-llada-f32");
    run(&[&["run", "--no-chat", "-n", "12", "--json", "hi", "-m", &model], args].concat()).succeeded().json()
}

#[test]
fn the_list_shows_every_recipe_and_needs_nothing_else() {
    for command in ["run", "infill", "eval"] {
        let outcome = run(&[command, "--recipe", "list", "-m", "/nowhere/model.gguf"]).succeeded();
        assert_eq!(outcome.stderr, "");
        for words in ["exact ", "fast ", "fastest ", "d3llm ", "--unmask threshold", "--cache dual", "--freeze-prompt"]
        {
            assert!(outcome.text().contains(words), "{}", outcome.text());
        }
    }
}

#[test]
fn a_recipe_fills_in_what_is_not_given() {
    let fast = json(&["--recipe", "FAST", "--threshold", "0.01", "--eos", "keep"]);
    let request = &fast["request"];
    assert_eq!((&request["recipe"], &request["unmask"]), (&"fast".into(), &"threshold".into()));
    assert_eq!(
        (&request["threshold"], &request["cache"], &request["window"]),
        (&0.01.into(), &"dual".into(), &32.into())
    );
    assert!(request["factor"].is_null() && request["delay"].is_null(), "{request}");
    assert_eq!((&fast["cache_exact"], &fast["commits"]), (&false.into(), &12.into()));
    assert!(fast["commits_per_step"].as_f64().unwrap() > 1.0, "{fast}");
    assert!(fast["steps"].as_u64().unwrap() < 12);

    let multi = json(&["--recipe", "d3llm", "--entropy", "0.25"]);
    let request = &multi["request"];
    assert_eq!(
        (&request["unmask"], &request["entropy"], &request["add"]),
        (&"multi-block".into(), &0.25.into(), &0.1.into())
    );
    assert_eq!((&request["cache"], &request["delay"]), (&"delayed".into(), &1.into()));

    let mixed =
        json(&["--recipe", "fast", "--unmask", "factor", "--factor", "2", "--cache", "prefix", "--dirty-rows", "2"]);
    let request = &mixed["request"];
    assert_eq!(
        (&request["unmask"], &request["factor"], &request["cache"]),
        (&"factor".into(), &2.0.into(), &"prefix".into())
    );
    assert!(request["threshold"].is_null() && request["dirty_rows"] == 2, "{request}");
}

#[test]
fn exact_caches_write_the_same_text() {
    let plain = json(&["--eos", "keep"]);
    let cached = json(&["--eos", "keep", "--cache", "dual", "--refresh", "1"]);
    assert_eq!((&plain["text"], &plain["tokens"]), (&cached["text"], &cached["tokens"]));
    assert_eq!((&cached["cache_exact"], &cached["refreshed_steps"]), (&true.into(), &12.into()));
}

#[test]
fn every_unmasker_of_the_family_runs_and_streams_what_json_holds() {
    for (model, rules) in [
        ("tiny-llada-f32", "random threshold factor entropy-threshold entropy-bound hierarchy credit multi-block wino"),
        (
            "tiny-dream-f32",
            "origin entropy threshold factor entropy-threshold entropy-bound hierarchy credit multi-block",
        ),
    ] {
        let model = fixture(model);
        for rule in rules.split(' ') {
            let args = ["run", "--no-chat", "-n", "12", "hi", "-m", &model, "--unmask", rule];
            let json = run(&[&args[..], &["--json"]].concat()).succeeded().json();
            assert_eq!(json["request"]["unmask"], rule);
            let text = run(&args).succeeded();
            assert_eq!(text.text(), format!("{}\n", json["text"].as_str().unwrap()), "{rule}");
        }
    }
}

#[test]
fn verbose_says_once_that_a_cache_is_approximate() {
    let model = fixture("tiny-llada-f32");
    let args = ["run", "-n", "12", "hi", "-m", &model, "-v", "--recipe"];
    let fast = run(&[&args[..], &["fast"]].concat()).succeeded().stderr;
    assert!(fast.contains("cache                 dual, window 32 (approximate: "), "{fast}");
    assert!(fast.contains("unmasker              threshold, threshold 0.9\n"), "{fast}");
    assert_eq!(fast.matches("approximate").count(), 1);
    let exact = run(&[&args[..], &["exact"]].concat()).succeeded().stderr;
    assert!(exact.contains("cache                 none (exact)") && !exact.contains("approximate"), "{exact}");
}

#[test]
fn what_has_no_use_is_refused_with_what_has() {
    let model = fixture("tiny-llada-f32");
    let with = |args: &[&str]| run(&[&["run", "hi", "-m", &model], args].concat());
    with(&["--threshold", "0.5"])
        .refused(2, &["--threshold 0.5", "low-confidence", "threshold, hierarchy, credit, wino can"]);
    with(&["--factor", "2", "--recipe", "fast"]).refused(2, &["--factor 2", "threshold", "factor can"]);
    with(&["--entropy", "1", "--unmask", "factor"]).refused(2, &["--entropy 1", "entropy-bound"]);
    with(&["--refresh", "3"]).refused(2, &["--refresh 3", "--cache prefix, dual or delayed can"]);
    with(&["--dirty-rows", "2"]).refused(2, &["--dirty-rows 2", "can"]);
    with(&["--delay", "2", "--cache", "dual"]).refused(2, &["--delay 2", "delayed can"]);
    with(&["--steps", "8", "--recipe", "fast"]).refused(2, &["--steps 8", "low-confidence, random can"]);
    with(&["--unmask", "wino", "--cache", "dual"]).refused(2, &["--cache dual", "wino"]);
    with(&["--eps", "0.1"]).refused(2, &["--eps 0.1", "Dream"]);
    with(&["--ban", "288"]).refused(2, &["--ban 288", "0 to 287"]);
    let dream = fixture("tiny-dream-f32");
    run(&["run", "hi", "-m", &dream, "--unmask", "wino"]).refused(2, &["--unmask wino", "Dream", "threshold"]);
}

#[test]
fn mistyped_decoding_values_are_misuse_before_a_model_is_opened() {
    for (option, value, words) in [
        ("--recipe", "quick", "exact, fast, fastest, d3llm"),
        ("--recipe", "fast:threshold=0.5", "options of their own"),
        ("--cache", "lru", "none, prefix, dual, delayed"),
        ("--threshold", "-1", "0 or more"),
        ("--entropy", "nan", "a number"),
        ("--refresh", "0", "1 (every step) or more"),
        ("--window", "-3", "whole number"),
        ("--back", "2", "between 0 and 1"),
        ("--delay", "0", "at least 1"),
        ("--ban", "x", "invalid digit"),
    ] {
        let outcome =
            run_within(Duration::from_millis(300), &["run", "hi", "-m", "/nowhere/model.gguf", option, value]);
        outcome.refused(2, &[option, value, words]);
    }
}
