//! Tiny models against the float64 numpy oracle (`fixtures/make/forward.py`).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod golden;

use demask::model::{Output, Plan, Prediction};
use golden::{Model, models, read_f32s};

/// Relative RMS allowed against the oracle: f32 activations, or int8 ones (llama.cpp's own error on the tiny Q4_K_M models
/// is 2.9 to 3.2 %).
const WIDE: f64 = 1e-4;
const INT8: f64 = 0.032;

#[test]
fn logits_equal_the_oracles() {
    for Model { name, model, golden } in models("logits") {
        let bound = if name.ends_with("f32") || name.ends_with("f16") || name.ends_with("bf16") { WIDE } else { INT8 };
        for case in golden["cases"].as_array().unwrap() {
            let label = format!("{name} {}", case["name"]);
            let tokens: Vec<u32> = serde_json::from_value(case["canvas"].clone()).unwrap();
            let wanted = read_f32s(&format!("golden/logits/{}", case["file"].as_str().unwrap()));
            let canvas = model.canvas(&tokens, 0).unwrap();
            let mut predictor = model.predictor(&canvas, 0.0);
            let mut out = Prediction::default();
            let rows: Vec<u32> = (0..tokens.len() as u32).collect();
            let plan = Plan { rows: &rows, wanted: &rows, output: Output::Logits };
            predictor.predict(&tokens, &plan, &mut out).unwrap();

            let square = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>();
            let difference = square(&mut out.logits.iter().zip(&wanted).map(|(a, b)| f64::from(a - b)));
            let error = (difference / square(&mut wanted.iter().map(|&w| f64::from(w)))).sqrt();
            println!("{label}: relative RMS {error:.2e}");
            assert_eq!(out.logits.len(), wanted.len(), "{label}");
            assert!(error < bound, "{label}: relative RMS {error:.2e}, at most {bound:.0e}");

            // Statistics and logits of some rows are those of all rows; the argmax agrees on every clear row.
            let few: Vec<u32> = rows.iter().copied().filter(|r| r % 3 == 0).collect();
            let mut some = Prediction::default();
            let plan = Plan { rows: &rows, wanted: &few, output: Output::Logits };
            predictor.predict(&tokens, &plan, &mut some).unwrap();
            let vocab = model.spec().vocab;
            for (i, &row) in few.iter().enumerate() {
                let all = &out.logits[row as usize * vocab..][..vocab];
                let worst = all.iter().zip(&some.logits[i * vocab..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-4, "{label}: row {row} differs by {worst} when run for itself");
            }
            let plan = Plan {
                rows: &rows,
                wanted: &rows,
                output: Output::Statistics { excluded: &[model.spec().mask_token] },
            };
            predictor.predict(&tokens, &plan, &mut out).unwrap();
            assert!(out.logits.is_empty());
            for (row, statistics) in out.statistics.iter().enumerate() {
                let clear = case["lead"][row].as_f64().unwrap() > if bound == WIDE { 0.01 } else { 0.6 };
                assert!(statistics.finite);
                if clear {
                    assert_eq!(u64::from(statistics.token), case["guess"][row].as_u64().unwrap(), "{label} row {row}");
                }
            }
        }
    }
}
