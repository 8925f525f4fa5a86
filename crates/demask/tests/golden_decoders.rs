//! The other unmaskers and the cache policies against the float64 numpy oracle (`fixtures/make/decoders.py`): every edit of
//! every step, and how many rows each step ran.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;

use std::ops::ControlFlow;

use demask::{Request, StepReport};
use golden::{Model, cases, check_scripted, check_steps, family, models, request};

#[test]
fn edits_on_scripted_logits_equal_the_oracles() {
    let cases = cases("decoders/scripted");
    cases.iter().for_each(|case| check_scripted("decoders", case, family(case)));
    assert!(cases.len() > 52, "{}", cases.len());
}

#[test]
fn case_d25_threshold() {
    let cases = cases("decoders/scripted");
    let d25: Vec<_> = cases.iter().filter(|case| case["name"].as_str().unwrap().starts_with("D25")).collect();
    assert_eq!(d25.len(), 5);
    d25.iter().for_each(|case| check_scripted("decoders", case, family(case)));
    for threshold in [f64::NAN, -1.0, f64::INFINITY] {
        let request = Request { threshold: Some(threshold), ..Request::default() };
        let error = request.check().unwrap_err();
        assert!(error.to_string().starts_with("--threshold") && error.reason.contains("0 or more"), "{error}");
    }
}

#[test]
fn edits_and_rows_on_tiny_models_equal_the_oracles() {
    let mut count = 0;
    for Model { name, model, golden } in models("decoders") {
        for case in golden["cases"].as_array().unwrap() {
            let label = format!("{name} {}", case["name"]);
            let prompt: Vec<u32> = serde_json::from_value(case["prompt"].clone()).unwrap();
            let request = request(&case["options"], golden["eos"].as_u64().unwrap() as u32);
            let mut steps: Vec<StepReport> = Vec::new();
            let result = model.generate(&prompt, &request, &mut |report, _| {
                steps.push(report.clone());
                ControlFlow::Continue(())
            });
            let generation = result.unwrap_or_else(|error| panic!("{label}: {error}"));
            check_steps(&label, &steps, &case["steps"], 2e-3);
            assert_eq!(generation.statistics.nfe as u64, case["nfe"].as_u64().unwrap(), "{label}: nfe");
            if let Some(rows) = case.get("rows") {
                let wanted: Vec<usize> = serde_json::from_value(rows.clone()).unwrap();
                assert_eq!(steps.iter().map(|step| step.rows).collect::<Vec<_>>(), wanted, "{label}: rows");
            }
            let last: Vec<u32> = serde_json::from_value(case["final"].clone()).unwrap();
            assert_eq!(generation.canvas.tokens(), last, "{label}");
            count += 1;
        }
    }
    assert!(count >= 32, "{count}");
}
