//! Whole generations against the float64 numpy oracle (`fixtures/make/sampler.py`): every edit of every step.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;

use std::ops::ControlFlow;

use demask::{EndPolicy, Request, StepReport, UnmaskRule};
use golden::{Model, models};
use serde_json::Value;

/// The oracle's options in our terms.
fn request(options: &Value, eos: u32) -> Request {
    let flag = |name: &str| options.get(name).and_then(Value::as_bool).unwrap_or(false);
    let count = |name: &str| options.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let number = |name: &str| options.get(name).and_then(Value::as_f64);
    Request {
        max_tokens: count("max_tokens").unwrap(),
        steps: count("steps"),
        block_length: count("block_length"),
        unmask: options.get("unmask").map(|name| UnmaskRule::from_name(name.as_str().unwrap()).unwrap()),
        temperature: number("temperature").unwrap_or(0.0),
        top_p: number("top_p").unwrap_or(1.0),
        top_k: count("top_k").unwrap_or(0),
        alg_temp: number("alg_temp").unwrap_or(0.0),
        cfg_scale: number("cfg_scale").unwrap_or(0.0),
        eps: number("eps").unwrap_or(1e-3),
        seed: options["seed"].as_u64().unwrap(),
        eos: match (flag("early_stop"), flag("confidence_eos_eot_inf")) {
            (true, _) => EndPolicy::Stop,
            (_, true) => EndPolicy::Last,
            _ => EndPolicy::Keep,
        },
        banned: if flag("logits_eos_inf") { vec![eos] } else { vec![] },
        ..Request::default()
    }
}

#[test]
fn edits_equal_the_oracles_step_by_step() {
    for Model { name, model, golden } in models("generate") {
        for case in golden["cases"].as_array().unwrap() {
            let label = format!("{name} {}", case["name"]);
            let prompt: Vec<u32> = serde_json::from_value(case["prompt"].clone()).unwrap();
            let request = request(&case["options"], golden["eos"].as_u64().unwrap() as u32);
            let mut steps: Vec<StepReport> = Vec::new();
            let generation = model
                .generate(&prompt, &request, &mut |report, _| {
                    steps.push(report.clone());
                    ControlFlow::Continue(())
                })
                .unwrap_or_else(|error| panic!("{label}: {error}"));
            let wanted = case["steps"].as_array().unwrap();
            for (step, wanted) in steps.iter().zip(wanted) {
                let place = format!("{label}, step {}", wanted["step"]);
                assert_eq!(step.step as u64, wanted["step"].as_u64().unwrap(), "{place}");
                assert_eq!(step.block.index as u64, wanted["block"].as_u64().unwrap(), "{place}");
                let found: Vec<(u64, u64, u64)> = step
                    .transfer
                    .edits
                    .iter()
                    .map(|e| (e.position as u64, u64::from(e.from), u64::from(e.to)))
                    .collect();
                let edits = wanted["edits"].as_array().unwrap();
                let number = |edit: &Value, key: &str| edit[key].as_u64().unwrap();
                let expected: Vec<(u64, u64, u64)> =
                    edits.iter().map(|e| (number(e, "position"), number(e, "from"), number(e, "to"))).collect();
                assert_eq!(found, expected, "{place}");
                for (edit, wanted) in step.transfer.edits.iter().zip(edits) {
                    match wanted["confidence"].as_f64() {
                        Some(confidence) => assert!((edit.confidence - confidence).abs() < 2e-3, "{place}: {edit:?}"),
                        None => assert_eq!(edit.confidence, f64::NEG_INFINITY, "{place}"),
                    }
                }
            }
            assert_eq!(steps.len(), wanted.len(), "{label}: steps");
            assert_eq!(generation.statistics.nfe as u64, case["nfe"].as_u64().unwrap(), "{label}: nfe");
            let last: Vec<u32> = serde_json::from_value(case["final"].clone()).unwrap();
            assert_eq!(generation.canvas.tokens(), last, "{label}");
            if let Some(visible) = case.get("visible") {
                let visible: Vec<u32> = serde_json::from_value(visible.clone()).unwrap();
                assert_eq!(model.answer_tokens(&generation.canvas), visible, "{label}: visible");
            }
        }
    }
}
