//! The reference samplers alone: scripted logits in, edits out, against the numpy oracle (`fixtures/make/make_scripted.py`).
//! Cases named D.. are those of real bug reports: counts, ties, guidance, end tokens that come last.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod golden;

use std::ops::ControlFlow;

use demask::diffusion::{Denoising, Generation, generate};
use demask::model::Family;
use demask::{Canvas, EndPolicy, ModelSpec, Request, StepReport, UnmaskRule};
use demask_gguf::{Gguf, Value, Writer};
use golden::{Scripted, cases, check_scripted, family, spec};

#[test]
fn edits_equal_the_oracles() {
    let mut count = 0;
    for (file, family) in [("llada", Family::Llada), ("dream", Family::Dream)] {
        for case in cases(&format!("scripted/{file}")) {
            check_scripted(file, &case, family);
            count += 1;
        }
    }
    assert!(count > 20);
}

#[test]
fn forced_and_banned_tokens_equal_the_oracles() {
    let cases = cases("scripted/forced");
    cases.iter().for_each(|case| check_scripted("forced", case, family(case)));
    assert!(cases.len() >= 7);
}

/// Runs scripted logits behind a prompt of zeros; vocabulary and canvas are as large as the logits.
fn run(family: Family, mask: u32, ends: &[u32], logits: &[&[f32]], request: &Request) -> (Generation, Vec<StepReport>) {
    let spec = spec(family, logits[0].len(), mask, false);
    let prompt = vec![0; logits.len() - request.max_tokens];
    let rows = logits.iter().map(|row| row.to_vec()).collect();
    let settings = request.settings(&spec, ends.to_vec(), request.max_tokens).unwrap();
    let mut model = Scripted::new(&spec, vec![rows].into());
    let canvas = Canvas::continuing(&prompt, request.max_tokens, mask);
    let mut steps = Vec::new();
    let generation = generate(&mut model, Denoising::new(canvas, settings), &mut |report, _| {
        steps.push(report.clone());
        ControlFlow::Continue(())
    });
    (generation.unwrap(), steps)
}

fn order(steps: &[StepReport]) -> Vec<usize> {
    steps.iter().flat_map(|step| step.transfer.edits.iter().map(|edit| edit.position)).collect()
}

#[test]
fn case_d02_more_steps_than_positions_are_as_many() {
    let rows: Vec<&[f32]> = vec![&[0.0, 1.0, 3.0, 2.0]; 4];
    let with = |steps| {
        let request = Request { max_tokens: 3, steps: Some(steps), ..Request::default() };
        run(Family::Llada, 3, &[], &rows, &request)
    };
    let (wanted, _) = with(3);
    for more in [4, 8, 1000] {
        let (generation, steps) = with(more);
        assert_eq!(generation.canvas, wanted.canvas);
        assert_eq!((generation.statistics.nfe, steps.len()), (3, 3), "steps that do nothing call no model");
    }
}

#[test]
fn case_d07_equally_sure_positions_go_from_left_to_right() {
    let rows: Vec<&[f32]> = vec![&[1.0; 5]; 7];
    for (family, unmask) in [(Family::Llada, UnmaskRule::LowConfidence), (Family::Dream, UnmaskRule::Entropy)] {
        let request = Request { max_tokens: 6, steps: Some(3), unmask: Some(unmask), ..Request::default() };
        let (generation, steps) = run(family, 4, &[], &rows, &request);
        assert_eq!(order(&steps), [1, 2, 3, 4, 5, 6]);
        assert_eq!(generation.canvas.tokens(), [0; 7]);
    }
}

#[test]
fn case_d13_dream_decides_the_lowest_entropy_first() {
    let rows = [
        [1.0; 5],
        [0.5, 0.5, 0.0, 0.0, 0.0],
        [0.45, 0.19, 0.18, 0.18, 0.0],
        [0.6, 0.4, 0.0, 0.0, 0.0],
        [0.55, 0.15, 0.15, 0.15, 0.0],
    ];
    let rows = rows.map(|row: [f32; 5]| row.map(|p| if p > 0.0 { p.ln() } else { -1e4 }));
    let rows: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
    // Dream's schedule decides nothing in a first step of as many as there are positions, and two in the last.
    let request = Request { max_tokens: 4, unmask: Some(UnmaskRule::Entropy), ..Request::default() };
    let (_, steps) = run(Family::Dream, 4, &[], &rows, &request);
    let confidences: Vec<(usize, f64)> =
        steps.iter().flat_map(|step| step.transfer.edits.iter().map(|e| (e.position - 1, e.confidence))).collect();
    let entropy = |position: usize| -confidences.iter().find(|(p, _)| *p == position).unwrap().1;
    for (position, wanted) in [(2, 0.673), (0, 0.693), (3, 1.183), (1, 1.292)] {
        assert!((entropy(position) - wanted).abs() < 1e-3, "{position}: {}", entropy(position));
    }
    assert_eq!(order(&steps)[..2], [3, 1], "positions 2 and 0 of the answer come first");
}

#[test]
fn case_d19_end_tokens_come_last_at_every_temperature() {
    let rows: [&[f32]; 4] =
        [&[0.0; 5], &[0.0, 0.0, 4.0, -5.0, -9.0], &[1.0, 0.0, 0.0, -5.0, -9.0], &[0.0, 0.0, 0.0, 3.0, -9.0]];
    for temperature in [0.0, 0.01] {
        let request = Request { max_tokens: 3, temperature, eos: EndPolicy::Last, ..Request::default() };
        let (generation, steps) = run(Family::Llada, 4, &[2, 3], &rows, &request);
        let first = steps[0].transfer.edits[0];
        assert_eq!((first.position, first.to), (2, 0));
        assert!((first.confidence - 0.7311).abs() < 1e-3, "{}", first.confidence);
        assert_eq!(steps[1].transfer.edits[0].confidence, f64::NEG_INFINITY);
        assert_eq!(generation.canvas.tokens(), [0, 2, 0, 3], "all positions are filled in the end");
    }
}

#[test]
fn case_d27_randomised_order_with_vanishing_weights() {
    // Rows whose negative entropies are far apart: at alg_temp 0.01 two of four weights are 0 in f32.
    let rows: [&[f32]; 5] =
        [&[0.0; 6], &[0.0; 6], &[9.0, 0.0, 0.0, 0.0, 0.0, 0.0], &[12.0, 0.0, 0.0, 0.0, 0.0, 0.0], &[0.1; 6]];
    for seed in 0..50 {
        let request = Request {
            max_tokens: 4,
            steps: Some(1),
            alg_temp: 0.01,
            seed,
            unmask: Some(UnmaskRule::Entropy),
            ..Request::default()
        };
        let (_, steps) = run(Family::Dream, 5, &[], &rows, &request);
        assert_eq!(order(&steps), [1, 2, 3, 4]);
        let request = Request { steps: Some(2), ..request };
        let (_, steps) = run(Family::Dream, 5, &[], &rows, &request);
        let mut positions = order(&steps);
        positions.sort_unstable();
        assert_eq!(positions, [1, 2, 3, 4], "each position once");
    }
}

#[test]
fn case_d36_origin_decides_by_chance() {
    let rows: Vec<&[f32]> = vec![&[0.0, 0.0, 2.0, 1.0]; 65];
    let mut first = 0;
    for seed in 0..500 {
        let request = Request {
            max_tokens: 64,
            steps: Some(8),
            seed,
            unmask: Some(UnmaskRule::Origin),
            eos: EndPolicy::Keep,
            ..Request::default()
        };
        let (generation, steps) = run(Family::Dream, 3, &[], &rows, &request);
        first += steps.iter().filter(|step| step.step == 0).map(|step| step.transfer.edits.len()).sum::<usize>();
        assert!(generation.canvas.tokens()[1..].iter().all(|&token| token == 2), "the likeliest token everywhere");
    }
    let mean = first as f64 / 500.0;
    assert!((mean - 7.99).abs() < 0.4, "{mean}");
}

#[test]
fn case_d21_d23_what_is_visible() {
    // EOS = 2 in the middle: one visible token; everything EOS: none, and no failure.
    let token = |token: usize| (0..8).map(|v| if v == token { 9.0 } else { 0.0 }).collect::<Vec<f32>>();
    let mixed: Vec<Vec<f32>> = [0, 5, 2, 6, 6, 6].map(token).to_vec();
    let ends: Vec<Vec<f32>> = vec![token(2); 6];
    for (rows, visible, text) in [(mixed, 1, vec![5]), (ends, 0, vec![])] {
        let rows: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        for eos in [EndPolicy::Stop, EndPolicy::Keep] {
            let request = Request { max_tokens: 5, block_length: Some(3), eos, ..Request::default() };
            let (generation, _) = run(Family::Llada, 7, &[2], &rows, &request);
            assert_eq!(generation.statistics.visible_tokens, visible);
            assert_eq!(generation.canvas.tokens()[1..1 + visible], text);
            let r = generation.statistics.rows_per_visible_token();
            assert_eq!(r.is_none(), visible == 0, "R has no meaning without visible tokens");
        }
    }
}

#[test]
fn case_d17_guidance_counts_its_calls() {
    let cases = cases("scripted/llada");
    let guided: Vec<_> = cases.iter().filter(|case| case.get("unconditional").is_some()).collect();
    assert!(!guided.is_empty());
    guided.iter().for_each(|case| check_scripted("llada", case, Family::Llada));
    let request = Request { max_tokens: 2, cfg_scale: 0.5, ..Request::default() };
    let error = request.settings(&spec(Family::Dream, 5, 4, true), vec![], 2).unwrap_err();
    assert!(error.to_string().contains("LLaDA models do"), "{error}");
}

#[test]
fn case_d29_logits_that_are_not_finite_stop_the_run() {
    let spec = spec(Family::Llada, 4, 3, false);
    for temperature in [0.0, 1.0] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for row in [vec![0.0, bad, 1.0, 0.0], vec![bad; 4]] {
                let canvas = Canvas::continuing(&[0, 1], 2, 3);
                let request = Request { max_tokens: 2, temperature, ..Default::default() };
                let settings = request.settings(&spec, vec![], 2).unwrap();
                let answers = vec![vec![vec![0.0; 4], vec![0.0; 4], vec![0.0; 4], row.clone()]].into();
                let mut model = Scripted::new(&spec, answers);
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
        let mut model = Scripted::new(&spec, vec![rows].into());
        let request = Request { max_tokens: 4, ..Default::default() };
        let settings = request.settings(&spec, vec![], 4).unwrap();
        let run = Denoising::new(Canvas::continuing(&[0, 0, 0], 4, 8), settings);
        let generation = generate(&mut model, run, &mut |_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(generation.canvas.tokens()[3..], wanted);
    }
    // Without a prompt there is no row before the first position: its own scores it.
    let rows: [&[f32]; 3] = [&[0.0, 0.0, 0.0, 5.0, 0.0], &[0.0, 5.0, 0.0, 0.0, 0.0], &[0.0, 0.0, 5.0, 0.0, 0.0]];
    let shifted = spec(Family::Dream, 5, 4, true);
    let request = Request { max_tokens: 3, ..Request::default() };
    let settings = request.settings(&shifted, vec![], 3).unwrap();
    let mut model = Scripted::new(&shifted, vec![rows.iter().map(|row| row.to_vec()).collect()].into());
    let run = Denoising::new(Canvas::continuing(&[], 3, 4), settings);
    let generation = generate(&mut model, run, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(generation.canvas.tokens(), [3, 3, 1]);
}

#[test]
fn case_d35_the_file_says_which_row_scores() {
    let key = "diffusion.shift_logits";
    for (file, own) in [("tiny-llada-f32.gguf", false), ("tiny-dream-f32.gguf", true)] {
        let gguf = Gguf::open(golden::fixture(file)).unwrap();
        let shifts = |value: Option<Value>| {
            let mut writer = Writer::new();
            for (name, value) in gguf.metadata().iter().filter(|(name, _)| *name != key) {
                writer.add(name, value.clone()).unwrap();
            }
            if let Some(value) = value {
                writer.add(key, value).unwrap();
            }
            for tensor in gguf.tensors() {
                writer.tensor(&tensor.name, &tensor.dims, tensor.ty, gguf.bytes(tensor).to_vec()).unwrap();
            }
            let mut bytes = Vec::new();
            writer.write_to(&mut bytes).unwrap();
            ModelSpec::from_gguf(&Gguf::from_bytes("changed", bytes).unwrap()).map(|spec| spec.shift_logits)
        };
        assert_eq!(shifts(None).unwrap(), own);
        for value in [true, false] {
            assert_eq!(shifts(Some(Value::Bool(value))).unwrap(), value);
            assert_eq!(shifts(Some(value.to_string().as_str().into())).unwrap(), value, "as older converters wrote it");
        }
        assert!(shifts(Some("maybe".into())).unwrap_err().to_string().contains(key));
    }
}
