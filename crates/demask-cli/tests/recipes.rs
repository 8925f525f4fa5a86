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
        for words in
            ["exact ", "fast ", "fastest ", "auto ", "d3llm ", "--unmask threshold", "--cache dual", "--freeze-prompt"]
        {
            assert!(outcome.text().contains(words), "{}", outcome.text());
        }
    }
}

#[test]
fn the_list_tells_what_was_measured() {
    let outcome = run(&["run", "--recipe", "list"]).succeeded();
    for row in demask::diffusion::RECIPES.iter().filter_map(|row| row.figures()) {
        assert!(outcome.text().contains(&format!("accuracy {:.1} %", row.accuracy * 100.0)), "{}", outcome.text());
    }
    assert!(outcome.text().contains("times the tokens/s of exact, "), "{}", outcome.text());
}

#[test]
fn a_guarded_answer_repeats_nothing() {
    let model = fixture("tiny-llada-f32");
    let args = ["run", "--no-chat", "-n", "32", "--eos", "keep", "--json", "hi", "-m", &model];
    let plain = run(&args).succeeded().json();
    let guarded = run(&[&args[..], &["--no-repeat", "1"]].concat()).succeeded().json();
    let once = |json: &serde_json::Value| {
        let tokens = json["tokens"].as_array().unwrap();
        tokens.iter().all(|token| tokens.iter().filter(|other| *other == token).count() == 1)
    };
    assert!(once(&guarded) && !once(&plain), "{plain}\n{guarded}");
    assert_eq!(guarded["request"]["no_repeat"], 1);
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
    assert!(fast.contains("\nof it                 linear ") && fast.contains(", sampling "), "{fast}");
    let drift = run(&[&args[..], &["fast", "--refresh-drift", "0.2", "--no-repeat", "2"]].concat()).succeeded().stderr;
    assert!(drift.contains("window 32, refresh drift 0.2 (approximate"), "{drift}");
    let exact = run(&[&args[..], &["exact"]].concat()).succeeded().stderr;
    assert!(exact.contains("cache                 none (exact)") && !exact.contains("approximate"), "{exact}");
}

#[test]
fn auto_measures_once_and_tells_what_it_chose() {
    let folder = tempfile::tempdir().unwrap();
    let model = fixture("tiny-llada-f32");
    let with = |args: &[&str]| {
        let mut command = harness::demask();
        command.env("XDG_CACHE_HOME", folder.path()).args(["run", "-n", "12", "--recipe", "auto", "hi", "-m", &model]);
        harness::finish(command.args(args)).succeeded()
    };
    let first = with(&["--json"]);
    assert!(first.stderr.contains("note: measuring forward passes") && first.stderr.contains("note: auto: "));
    let (json, auto) = (first.json(), first.json()["auto"].clone());
    assert_eq!((&json["request"]["recipe"], &json["request"]["unmask"]), (&"auto".into(), &"threshold".into()));
    assert_eq!((&json["request"]["window"], &json["request"]["refresh"]), (&auto["window"], &auto["refresh"]));
    assert!(auto["curve"].as_array().unwrap().len() > 1 && auto["over_fast"].as_f64().unwrap() <= 1.1, "{auto}");
    let kept = std::fs::read_to_string(folder.path().join("demask/curves.json")).unwrap();
    assert!(kept.contains("llada"), "{kept}");

    let second = with(&["-v"]);
    assert!(!second.stderr.contains("measuring") && second.stderr.contains("\nauto "), "{}", second.stderr);
    assert_eq!(second.text().trim_end_matches('\n'), json["text"].as_str().unwrap(), "the same curve, the same text");
    let mine = with(&["--window", "40", "--json"]);
    assert!(mine.json()["auto"].is_null() && mine.json()["request"]["window"] == 40);
    std::fs::write(folder.path().join("demask/curves.json"), "{").unwrap();
    assert!(with(&[]).stderr.contains("measuring"), "a spoilt file is measured anew");
    let other = harness::finish(
        harness::demask()
            .env_remove("XDG_CACHE_HOME")
            .env_remove("HOME")
            .args(["run", "-n", "12", "--recipe", "auto", "hi", "-m", &model]),
    );
    assert!(other.succeeded().stderr.contains("isn't kept"));
    // An unmasker or a flag that can't be is refused before anything is measured.
    run(&["run", "--recipe", "auto", "--factor", "2", "hi", "-m", &model]).refused(2, &["--factor 2", "factor can"]);
    let items = harness::workspace("assets/heldout.jsonl");
    let eval = run(&["eval", &items, "--recipe", "exact,auto", "--limit", "2", "-n", "32", "--json"]).succeeded();
    assert_eq!(eval.json()["summary"]["runs"][1]["name"], "auto");
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
    with(&["--refresh-drift", "0.1"]).refused(2, &["--refresh-drift 0.1", "--cache prefix, dual or delayed can"]);
    with(&["--no-repeat", "2", "--unmask", "wino"]).refused(2, &["--no-repeat 2", "the other unmaskers can"]);
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
        ("--recipe", "quick", "exact, fast, fastest, auto, d3llm"),
        ("--recipe", "fast:threshold=0.5", "options of their own"),
        ("--cache", "lru", "none, prefix, dual, delayed"),
        ("--threshold", "-1", "0 or more"),
        ("--entropy", "nan", "a number"),
        ("--refresh", "0", "1 (every step) or more"),
        ("--window", "-3", "whole number"),
        ("--back", "2", "between 0 and 1"),
        ("--delay", "0", "at least 1"),
        ("--refresh-drift", "3", "between 0 and 2"),
        ("--cfg-scale", "1000", "between 0 and 100"),
        ("--no-repeat", "-1", "whole number"),
        ("--ban", "x", "token ids like 5,17-20"),
    ] {
        let outcome =
            run_within(Duration::from_millis(300), &["run", "hi", "-m", "/nowhere/model.gguf", option, value]);
        outcome.refused(2, &[option, value, words]);
    }
}
