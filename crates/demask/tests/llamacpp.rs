//! Whole-model logits against llama.cpp on the same files (`fixtures/make/llamacpp.py`), and our error against the float64
//! oracle beside llama.cpp's own.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod golden;

use demask::model::{Output, Plan, Prediction};
use golden::{Model, models, read_f32s};

/// Rows of all canvases of a model: ours, llama.cpp's and the oracle's logits.
struct Rows {
    ours: Vec<f32>,
    llamacpp: Vec<f32>,
    oracle: Vec<f32>,
}

fn relative_rms(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut found.iter().zip(wanted).map(|(f, w)| f64::from(f - w)));
    (difference / square(&mut wanted.iter().map(|&w| f64::from(w)))).sqrt()
}

fn median_cosine(found: &[f32], wanted: &[f32], vocab: usize) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = |(a, b): (&[f32], &[f32])| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let mut cosines: Vec<f64> = found.chunks(vocab).zip(wanted.chunks(vocab)).map(cosine).collect();
    cosines.sort_by(f64::total_cmp);
    cosines[cosines.len() / 2]
}

#[test]
fn logits_agree_with_llamacpp() {
    for Model { name, model, golden } in models("logits") {
        let text = std::fs::read_to_string(golden::fixture(&format!("golden/llamacpp/{name}.json"))).unwrap();
        let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut rows = Rows { ours: vec![], llamacpp: vec![], oracle: vec![] };
        for case in golden["cases"].as_array().unwrap() {
            let tokens: Vec<u32> = serde_json::from_value(case["canvas"].clone()).unwrap();
            let file = case["file"].as_str().unwrap();
            let mut predictor = model.predictor(&model.canvas(&tokens, 0).unwrap(), 0.0);
            let all: Vec<u32> = (0..tokens.len() as u32).collect();
            let mut out = Prediction::default();
            let plan = Plan { rows: &all, wanted: &all, output: Output::Logits };
            predictor.predict(&tokens, &plan, &mut out).unwrap();
            rows.ours.append(&mut out.logits);
            rows.llamacpp.append(&mut read_f32s(&format!("golden/llamacpp/{file}")));
            rows.oracle.append(&mut read_f32s(&format!("golden/logits/{file}")));
        }
        let cosine = median_cosine(&rows.ours, &rows.llamacpp, model.spec().vocab);
        let ours = relative_rms(&rows.ours, &rows.oracle);
        let llamacpp = theirs["all"]["relative_rms"].as_f64().unwrap();
        println!("{name}: median cosine {cosine:.6}; error against float64 {ours:.2e}, llama.cpp's {llamacpp:.2e}");
        assert!(cosine > 0.9995, "{name}: median cosine {cosine:.6}");
        // Both run in f32 where nothing is quantised: there only the order of sums differs.
        let bound = llamacpp.max(1e-5);
        assert!(ours <= bound, "{name}: error against float64 {ours:.3e}, llama.cpp's {llamacpp:.3e}");
    }
}
