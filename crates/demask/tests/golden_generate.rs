//! Whole generations against the float64 numpy oracle (`fixtures/make/sampler.py`): every edit of every step.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;

use std::ops::ControlFlow;

use demask::StepReport;
use golden::{Model, check_steps, models, request};

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
            // Quantised models run with int8 activations: the edits are the same, their confidences only about.
            let tolerance = if name.contains("_") { 0.1 } else { 2e-3 };
            check_steps(&label, &steps, &case["steps"], tolerance);
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
