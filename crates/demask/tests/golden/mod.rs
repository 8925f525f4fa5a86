//! Reading the fixtures.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::PathBuf;

use demask::{Device, EndPolicy, ModelFile, Request, StepReport, UnmaskRule};
use demask_compute::RowStatistics;
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

/// Checks every edit of every step.
pub(crate) fn check_steps(label: &str, steps: &[StepReport], wanted: &Value, tolerance: f64) {
    let wanted = wanted.as_array().unwrap();
    for (step, wanted) in steps.iter().zip(wanted) {
        let place = format!("{label}, step {}", wanted["step"]);
        assert_eq!(step.step as u64, wanted["step"].as_u64().unwrap(), "{place}");
        assert_eq!(step.block.index as u64, wanted["block"].as_u64().unwrap(), "{place}");
        let number = |edit: &Value, key: &str| edit[key].as_u64().unwrap();
        let edits = wanted["edits"].as_array().unwrap();
        let expected: Vec<[u64; 3]> =
            edits.iter().map(|e| ["position", "from", "to"].map(|key| number(e, key))).collect();
        let found = step.transfer.edits.iter().map(|e| [e.position as u64, u64::from(e.from), u64::from(e.to)]);
        assert_eq!(found.collect::<Vec<_>>(), expected, "{place}");
        for (edit, wanted) in step.transfer.edits.iter().zip(edits) {
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
