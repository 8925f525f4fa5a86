//! Reading the fixtures.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::VecDeque;
use std::path::PathBuf;

use demask::diffusion::EditKind;
use demask::model::{Family, MaskPredictor, ModelSpec, Output, Plan, Prediction};
use demask::{CachePolicy, Device, EndPolicy, Error, ModelFile, Request, StepReport, UnmaskRule};
use demask_compute::{RopeSpec, RopeStyle, RowStatistics};
use serde_json::Value;

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

pub(crate) fn read_f32s(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(fixture(name)).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

pub(crate) fn load(file: &str, threads: usize) -> demask::Model {
    let device = Device::cpu(Some(threads)).unwrap();
    ModelFile::open(fixture(file)).unwrap().load(&device, &mut |_, _| {}).unwrap()
}

pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) model: demask::Model,
    pub(crate) golden: serde_json::Value,
}

/// The models that have a golden file in `folder` and an architecture that runs.
pub(crate) fn models(folder: &str) -> impl Iterator<Item = Model> {
    let mut names: Vec<String> = std::fs::read_dir(fixture("golden").join(folder))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().unwrap().strip_suffix(".json").map(str::to_owned))
        .filter(|name| demask::model::ARCHITECTURES.iter().any(|row| name.starts_with(&format!("tiny-{}", row.name))))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no golden files in {folder}");
    let folder = folder.to_owned();
    names.into_iter().map(move |name| {
        let text = std::fs::read_to_string(fixture(&format!("golden/{folder}/{name}.json"))).unwrap();
        Model { model: load(&format!("{name}.gguf"), 2), golden: serde_json::from_str(&text).unwrap(), name }
    })
}

/// The oracle's options in our terms.
pub(crate) fn request(options: &Value, eos: u32) -> Request {
    let flag = |name: &str| options.get(name).and_then(Value::as_bool).unwrap_or(false);
    let count = |name: &str| options.get(name).and_then(Value::as_u64).map(|n| n as usize);
    let number = |name: &str| options.get(name).and_then(Value::as_f64);
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    let unmask = text("unmask").map(|name| UnmaskRule::from_name(name).unwrap());
    let ids = |name: &str| options.get(name).map(|ids| serde_json::from_value(ids.clone()).unwrap());
    Request {
        max_tokens: count("max_tokens").unwrap(),
        // The oracle is always told, but only schedules go by it.
        steps: count("steps").filter(|_| unmask.is_none_or(UnmaskRule::is_scheduled)),
        block_length: count("block_length"),
        unmask,
        threshold: number("threshold"),
        low: number("low"),
        factor: number("factor"),
        entropy: number("entropy"),
        add: number("add"),
        activate: number("activate"),
        back: number("back"),
        cache: text("cache").map(|name| CachePolicy::from_name(name).unwrap()),
        delay: count("delay"),
        refresh: count("refresh"),
        refresh_drift: number("refresh_drift"),
        no_repeat: count("no_repeat").unwrap_or(0),
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
        banned: if flag("logits_eos_inf") { vec![eos] } else { ids("banned").unwrap_or_default() },
        ..Request::default()
    }
}

/// Checks every edit of every step.
pub(crate) fn check_steps(label: &str, steps: &[StepReport], wanted: &Value, tolerance: f64) {
    let wanted = wanted.as_array().unwrap();
    for (step, wanted) in steps.iter().zip(wanted) {
        let place = format!("{label}, step {}", wanted["step"]);
        assert_eq!(step.step as u64, wanted["step"].as_u64().unwrap(), "{place}");
        assert_eq!(step.block.index as u64, wanted["block"].as_u64().unwrap_or(0), "{place}");
        let number = |edit: &Value, key: &str| edit[key].as_u64().unwrap();
        let edits = wanted["edits"].as_array().unwrap();
        let expected: Vec<[u64; 3]> =
            edits.iter().map(|e| ["position", "from", "to"].map(|key| number(e, key))).collect();
        let found = step.transfer.edits.iter().map(|e| [e.position as u64, u64::from(e.from), u64::from(e.to)]);
        assert_eq!(found.collect::<Vec<_>>(), expected, "{place}");
        for (edit, wanted) in step.transfer.edits.iter().zip(edits) {
            let kind = wanted.get("kind").map_or(EditKind::Unmask, |_| EditKind::Remask);
            assert_eq!(edit.kind, kind, "{place}: {edit:?}");
            match wanted["confidence"].as_f64() {
                Some(confidence) => {
                    assert!((edit.confidence - confidence).abs() < tolerance, "{place}: {edit:?}, wanted {confidence}")
                }
                None => assert_eq!(edit.confidence, f64::NEG_INFINITY, "{place}"),
            }
        }
    }
    assert_eq!(steps.len(), wanted.len(), "{label}: steps");
}

/// Row statistics by the formulas, in f64.
pub(crate) fn statistics(row: &[f32], excluded: &[u32]) -> RowStatistics {
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| f64::from(logit - greatest).exp();
    let total: f64 = row.iter().map(|&l| weight(l)).sum();
    let mut allowed: Vec<usize> = (0..row.len()).filter(|&v| !excluded.contains(&(v as u32))).collect();
    allowed.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
    let probability = |v: usize| weight(row[v]) / total;
    RowStatistics {
        token: allowed[0] as u32,
        probability: probability(allowed[0]),
        runner_up: allowed.get(1).map_or(0.0, |&v| probability(v)),
        entropy: -(0..row.len()).map(probability).filter(|p| *p > 0.0).map(|p| p * p.ln()).sum::<f64>(),
        finite: row.iter().all(|l| l.is_finite()),
    }
}

/// A stand-in for a model: answers step s with entry s of a list of logits, or its last.
pub(crate) struct Scripted {
    pub(crate) spec: ModelSpec,
    pub(crate) answers: VecDeque<Vec<Vec<f32>>>,
    pub(crate) shadows: VecDeque<Vec<Vec<f32>>>,
    pub(crate) calls: usize,
}

impl Scripted {
    pub(crate) fn new(spec: &ModelSpec, answers: VecDeque<Vec<Vec<f32>>>) -> Scripted {
        Scripted { spec: spec.clone(), answers, shadows: VecDeque::new(), calls: 0 }
    }
}

fn next(script: &mut VecDeque<Vec<Vec<f32>>>) -> Vec<Vec<f32>> {
    if script.len() > 1 { script.pop_front().unwrap() } else { script[0].clone() }
}

impl MaskPredictor for Scripted {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn predict(&mut self, _tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        self.calls += 1;
        let answer = next(&mut self.answers);
        out.rows = plan.wanted.to_vec();
        let rows = plan.wanted.iter().map(|&row| &answer[row as usize]);
        out.statistics.clear();
        out.logits.clear();
        match plan.output {
            Output::Samples(_) | Output::Logits => out.logits = rows.flatten().copied().collect(),
            Output::Statistics { excluded } => out.statistics = rows.map(|row| statistics(row, excluded)).collect(),
        }
        Ok(())
    }

    fn predict_shadow(&mut self, _tokens: &[u32], rows: &[u32], out: &mut Prediction) -> Result<(), Error> {
        let answer = next(&mut self.shadows);
        out.rows = rows.to_vec();
        out.logits = rows.iter().flat_map(|&row| answer[row as usize].clone()).collect();
        Ok(())
    }
}

pub(crate) fn spec(family: Family, vocab: usize, mask_token: u32, shift_logits: bool) -> ModelSpec {
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

/// A case's scripted logits, one entry for each step that runs; null is minus infinity.
fn answers(case: &Value, key: &str) -> VecDeque<Vec<Vec<f32>>> {
    let script = case[key].as_array().unwrap();
    let numbers = case["steps"].as_array().unwrap().iter().map(|step| step["step"].as_u64().unwrap() as usize);
    let row = |row: &Value| {
        row.as_array().unwrap().iter().map(|v| v.as_f64().map_or(f32::NEG_INFINITY, |v| v as f32)).collect()
    };
    let step = |step: &Value| step.as_array().unwrap().iter().map(row).collect();
    numbers.map(|number| step(&script[number.min(script.len() - 1)])).collect()
}

/// Runs a case of the scripted goldens and compares every edit.
pub(crate) fn check_scripted(file: &str, case: &Value, family: Family) {
    use std::ops::ControlFlow;

    use demask::Canvas;
    use demask::diffusion::{Denoising, Guided, generate};

    let label = format!("{file} {}", case["name"]);
    let prompt: Vec<u32> = serde_json::from_value(case["prompt"].clone()).unwrap();
    let id = |key: &str| case[key].as_u64().map(|id| id as u32);
    let shift = case.get("shift").and_then(Value::as_bool).unwrap_or(false);
    let spec = spec(family, case["vocab"].as_u64().unwrap() as usize, id("mask").unwrap(), shift);
    let request = request(&case["options"], id("eos").unwrap_or(0));
    let mut tokens: Vec<Option<u32>> = prompt.iter().copied().map(Some).collect();
    tokens.resize(prompt.len() + request.max_tokens, None);
    for forced in case["options"].get("forced").and_then(Value::as_array).into_iter().flatten() {
        tokens[forced[0].as_u64().unwrap() as usize] = Some(forced[1].as_u64().unwrap() as u32);
    }
    let open = tokens.iter().filter(|token| token.is_none()).count();
    let canvas = Canvas::with_blanks(&tokens, spec.mask_token);
    let ends = [id("eos"), id("eot")].into_iter().flatten().collect();
    let settings = request.settings(&spec, ends, open).unwrap_or_else(|e| panic!("{label}: {e}"));
    let mut conditional = Scripted::new(&spec, answers(case, "logits"));
    if case.get("shadow").is_some() {
        conditional.shadows = answers(case, "shadow");
    }
    let mut model: Box<dyn MaskPredictor> = match case.get("unconditional") {
        Some(_) if settings.cfg_scale > 0.0 => {
            let given = (0..canvas.len()).map(|p| !canvas.is_asked(p)).collect();
            let without = Scripted::new(&spec, answers(case, "unconditional"));
            Box::new(Guided::new(Box::new(conditional), Box::new(without), settings.cfg_scale, given))
        }
        _ => Box::new(conditional),
    };
    let mut steps = Vec::new();
    let generation = generate(&mut *model, Denoising::new(canvas, settings), &mut |report, _| {
        steps.push(report.clone());
        ControlFlow::Continue(())
    })
    .unwrap_or_else(|error| panic!("{label}: {error}"));
    check_steps(&label, &steps, &case["steps"], 1e-8);
    assert_eq!(generation.statistics.nfe as u64, case["nfe"].as_u64().unwrap(), "{label}: nfe");
    let last: Vec<u32> = serde_json::from_value(case["final"].clone()).unwrap();
    assert_eq!(generation.canvas.tokens(), last, "{label}");
}

/// The cases of a golden file.
pub(crate) fn cases(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture(&format!("golden/{file}.json"))).unwrap();
    let mut golden: Value = serde_json::from_str(&text).unwrap();
    std::mem::take(golden["cases"].as_array_mut().unwrap())
}

/// The family that a case names.
pub(crate) fn family(case: &Value) -> Family {
    if case["family"] == "llada" { Family::Llada } else { Family::Dream }
}
