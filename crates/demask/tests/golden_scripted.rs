//! The samplers alone: scripted logits in, edits out, against the numpy oracle (`fixtures/make/make_scripted.py`).
//! Cases named D.. are those of real bug reports: counts, ties, guidance, end tokens that come last.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use demask::diffusion::{Denoising, generate, guidance::Guided};
use demask::model::{Family, MaskPredictor, ModelSpec, Output, Plan, Prediction};
use demask::{Canvas, Error};
use demask_compute::{RopeSpec, RopeStyle};
use serde_json::Value;

/// A stand-in for a model: answers step s with entry s of a list of logits, or its last.
struct Scripted {
    spec: ModelSpec,
    answers: VecDeque<Vec<Vec<f32>>>,
    calls: usize,
}

impl MaskPredictor for Scripted {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn predict(&mut self, _tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        self.calls += 1;
        let answer = if self.answers.len() > 1 { self.answers.pop_front().unwrap() } else { self.answers[0].clone() };
        out.rows = plan.wanted.to_vec();
        let rows = plan.wanted.iter().map(|&row| &answer[row as usize]);
        out.statistics.clear();
        out.logits.clear();
        match plan.output {
            Output::Logits => out.logits = rows.flatten().copied().collect(),
            Output::Statistics { excluded } => {
                out.statistics = rows.map(|row| golden::statistics(row, excluded)).collect();
            }
        }
        Ok(())
    }
}

fn spec(family: Family, vocab: usize, mask_token: u32, shift_logits: bool) -> ModelSpec {
    ModelSpec {
        architecture: "scripted",
        name: "scripted".to_owned(),
        family,
        layers: 1,
        width: 2,
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        ffn: 2,
        vocab,
        context: 1 << 20,
        norm_eps: 1e-5,
        rope: RopeSpec { style: RopeStyle::Interleaved, head_dim: 2, theta: 1e4, positions: 1 },
        mask_token,
        shift_logits,
        block_length: None,
    }
}

fn answers(value: &Value) -> VecDeque<Vec<Vec<f32>>> {
    let row = |row: &Value| {
        row.as_array().unwrap().iter().map(|v| v.as_f64().map_or(f32::NEG_INFINITY, |v| v as f32)).collect()
    };
    let step = |step: &Value| step.as_array().unwrap().iter().map(row).collect();
    value.as_array().unwrap().iter().map(step).collect()
}

#[test]
fn edits_equal_the_oracles() {
    let mut count = 0;
    for (file, family) in [("llada", Family::Llada), ("dream", Family::Dream)] {
        let text = std::fs::read_to_string(golden::fixture(&format!("golden/scripted/{file}.json"))).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let label = format!("{file} {}", case["name"]);
            let prompt: Vec<u32> = serde_json::from_value(case["prompt"].clone()).unwrap();
            let id = |key: &str| case[key].as_u64().map(|id| id as u32);
            let shift = case.get("shift").and_then(Value::as_bool).unwrap_or(false);
            let spec = spec(family, case["vocab"].as_u64().unwrap() as usize, id("mask").unwrap(), shift);
            let request = golden::request(&case["options"], id("eos").unwrap_or(0));
            let canvas = Canvas::continuing(&prompt, request.max_tokens, spec.mask_token);
            let ends = [id("eos"), id("eot")].into_iter().flatten().collect();
            let settings = request.settings(&spec, ends, request.max_tokens).unwrap_or_else(|e| panic!("{label}: {e}"));
            let scripted = |answers| Box::new(Scripted { spec: spec.clone(), answers, calls: 0 });
            let conditional = scripted(answers(&case["logits"]));
            let mut model: Box<dyn MaskPredictor> = match case.get("unconditional") {
                Some(without) if settings.cfg_scale > 0.0 => {
                    let given = (0..canvas.len()).map(|p| !canvas.is_asked(p)).collect();
                    Box::new(Guided::new(conditional, scripted(answers(without)), settings.cfg_scale, given))
                }
                _ => conditional,
            };
            let mut steps = Vec::new();
            let run = Denoising::new(canvas, settings);
            let generation = generate(&mut *model, run, &mut |report, _| {
                steps.push(report.clone());
                ControlFlow::Continue(())
            })
            .unwrap_or_else(|error| panic!("{label}: {error}"));
            golden::check_steps(&label, &steps, &case["steps"], 1e-8);
            assert_eq!(generation.statistics.nfe as u64, case["nfe"].as_u64().unwrap(), "{label}: nfe");
            let last: Vec<u32> = serde_json::from_value(case["final"].clone()).unwrap();
            assert_eq!(generation.canvas.tokens(), last, "{label}");
            count += 1;
        }
    }
    println!("{count} scripted cases");
    assert!(count > 20);
}

#[test]
fn case_d29_logits_that_are_not_finite_stop_the_run() {
    let spec = spec(Family::Llada, 4, 3, false);
    for temperature in [0.0, 1.0] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for row in [vec![0.0, bad, 1.0, 0.0], vec![bad; 4]] {
                let canvas = Canvas::continuing(&[0, 1], 2, 3);
                let request = demask::Request { max_tokens: 2, temperature, ..Default::default() };
                let settings = request.settings(&spec, vec![], 2).unwrap();
                let answers = vec![vec![vec![0.0; 4], vec![0.0; 4], vec![0.0; 4], row.clone()]].into();
                let mut model = Scripted { spec: spec.clone(), answers, calls: 0 };
                let mut edits = 0;
                let error = generate(&mut model, Denoising::new(canvas, settings), &mut |report, _| {
                    edits += report.transfer.edits.len();
                    ControlFlow::Continue(())
                })
                .unwrap_err();
                assert!(error.to_string().contains("step 0, position 3"), "{error}");
                assert_eq!(edits, 0, "nothing of the step is kept");
            }
        }
    }
}

#[test]
fn case_d35_dream_reads_the_row_before() {
    for (family, shift, wanted) in [(Family::Llada, false, [3, 4, 5, 6]), (Family::Dream, true, [2, 3, 4, 5])] {
        let spec = spec(family, 9, 8, shift);
        let rows: Vec<Vec<f32>> = (0..7).map(|r| (0..9).map(|v| if v == r { 5.0 } else { 0.0 }).collect()).collect();
        let mut model = Scripted { spec: spec.clone(), answers: vec![rows].into(), calls: 0 };
        let request = demask::Request { max_tokens: 4, ..Default::default() };
        let settings = request.settings(&spec, vec![], 4).unwrap();
        let run = Denoising::new(Canvas::continuing(&[0, 0, 0], 4, 8), settings);
        let generation = generate(&mut model, run, &mut |_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(generation.canvas.tokens()[3..], wanted);
    }
}
