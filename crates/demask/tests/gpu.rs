//! Tiny models on the GPU backend, its PTX interpreted: against the numpy oracle, against the CPU, and split between both.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod golden;
#[path = "../../demask-gpu/tests/support/mod.rs"]
mod support;

use std::ops::ControlFlow;

use demask::model::{Output, Plan, Prediction};
use demask::{Device, Error, GpuLayers, ModelFile, StepReport};
use golden::{check_steps, fixture, read_f32s, request};
use support::Emulator;

fn load(name: &str, emulator: Emulator, layers: GpuLayers) -> Result<demask::Model, Error> {
    let device = Device::on_gpu(Box::new(emulator), layers, Some(1)).unwrap();
    ModelFile::open(fixture(&format!("{name}.gguf"))).unwrap().load(&device, &mut |_, _| {})
}

fn golden(folder: &str, name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(fixture(&format!("golden/{folder}/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn predict(model: &demask::Model, tokens: &[u32], output: Output<'_>) -> Result<Prediction, Error> {
    let canvas = model.canvas(tokens, 0).unwrap();
    let mut predictor = model.predictor(&canvas, 0.0);
    let rows: Vec<u32> = (0..tokens.len() as u32).collect();
    let mut out = Prediction::default();
    predictor.predict(tokens, &Plan { rows: &rows, wanted: &rows, output }, &mut out)?;
    Ok(out)
}

fn relative(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut found.iter().zip(wanted).map(|(a, b)| f64::from(a - b)));
    (difference / square(&mut wanted.iter().map(|&w| f64::from(w)))).sqrt()
}

/// f16 attention against f64; int8 activations as on the CPU.
const WIDE: f64 = 3e-3;
const INT8: f64 = 0.033;

#[test]
fn logits_equal_the_oracles_and_the_cpus() {
    for (name, layers) in [
        ("tiny-llada-q4_k_m", GpuLayers::Auto),
        ("tiny-llada-f32", GpuLayers::Auto),
        ("tiny-llada-gqa-f32", GpuLayers::Count(1)),
        ("tiny-llada-tied-bf16", GpuLayers::Auto),
        ("tiny-llada-f16", GpuLayers::Count(1)),
        ("tiny-llada-q8_0", GpuLayers::Count(1)),
        ("tiny-dream-q4_k_m", GpuLayers::Auto),
        ("tiny-dream-f32", GpuLayers::Count(1)),
        ("tiny-dream-q8_0", GpuLayers::Auto),
    ] {
        let model = load(name, Emulator::new(), layers).unwrap();
        assert_eq!(model.place().contains("the rest on the cpu"), layers != GpuLayers::Auto, "{}", model.place());
        let cpu = golden::load(&format!("{name}.gguf"), 1);
        let golden = golden("logits", name);
        let bound = if name.contains("_") { INT8 } else { WIDE };
        let case = &golden["cases"].as_array().unwrap()[0];
        let tokens: Vec<u32> = serde_json::from_value(case["canvas"].clone()).unwrap();
        let wanted = read_f32s(&format!("golden/logits/{}", case["file"].as_str().unwrap()));
        let found = predict(&model, &tokens, Output::Logits).unwrap();
        let on_cpu = predict(&cpu, &tokens, Output::Logits).unwrap();
        let (oracle, both) = (relative(&found.logits, &wanted), relative(&found.logits, &on_cpu.logits));
        println!("{name}: relative RMS {oracle:.2e} of the oracle's, {both:.2e} of the CPU's");
        assert!(oracle < bound, "{name}: relative RMS {oracle:.2e} against the oracle");
        assert!(both < 0.02, "{name}: relative RMS {both:.2e} against the CPU");
        assert!(model.peak_gpu_bytes().unwrap() > 0);

        // Statistics are those of the logits.
        let excluded = [model.spec().mask_token];
        let statistics = predict(&model, &tokens, Output::Statistics { excluded: &excluded }).unwrap().statistics;
        for (row, (logits, found)) in found.logits.chunks_exact(model.spec().vocab).zip(&statistics).enumerate() {
            let wanted = golden::statistics(logits, &excluded);
            assert_eq!(found.token, wanted.token, "{name} row {row}");
            for (found, wanted) in [
                (found.probability, wanted.probability),
                (found.runner_up, wanted.runner_up),
                (found.entropy, wanted.entropy),
            ] {
                assert!((found - wanted).abs() < 1e-5, "{name} row {row}: {found}, wanted {wanted}");
            }
        }
    }
}

#[test]
fn generations_equal_the_oracles_step_by_step() {
    for (name, layers) in [
        ("tiny-llada-f32", GpuLayers::Auto),
        ("tiny-llada-q4_k_m", GpuLayers::Count(1)),
        ("tiny-dream-f32", GpuLayers::Auto),
        ("tiny-dream-q4_k_m", GpuLayers::Auto),
    ] {
        let Ok(text) = std::fs::read_to_string(fixture(&format!("golden/generate/{name}.json"))) else {
            panic!("no golden generations of {name}");
        };
        let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
        let model = load(name, Emulator::new(), layers).unwrap();
        let mut cases: Vec<&serde_json::Value> = golden["cases"].as_array().unwrap().iter().collect();
        // The shortest, and the shortest whose tokens the device draws: interpreting takes its time.
        cases.sort_by_key(|case| case["nfe"].as_u64());
        let draws = |case: &serde_json::Value| {
            let request = request(&case["options"], 0);
            request.temperature > 0.0 && request.top_p >= 1.0 && request.top_k == 0 && request.cfg_scale == 0.0
        };
        let first_to_draw = cases.iter().position(|case| draws(case)).unwrap_or(0);
        assert!(first_to_draw > 0 || name.contains("_"), "{name} has a case with a temperature");
        let chosen = cases.iter().enumerate().filter(|&(rank, _)| rank < 2 || rank == first_to_draw);
        for (_, case) in chosen {
            let label = format!("{name} {}", case["name"]);
            let prompt: Vec<u32> = serde_json::from_value(case["prompt"].clone()).unwrap();
            let request = request(&case["options"], golden["eos"].as_u64().unwrap() as u32);
            let mut steps: Vec<StepReport> = Vec::new();
            model
                .generate(&prompt, &request, &mut |report, _| {
                    steps.push(report.clone());
                    ControlFlow::Continue(())
                })
                .unwrap_or_else(|error| panic!("{label}: {error}"));
            let tolerance = if name.contains("_") { 0.1 } else { 2e-2 };
            check_steps(&label, &steps, &case["steps"], tolerance);
        }
    }
}

#[test]
fn faults_come_to_light() {
    // Lost in mid-run: the error says so, and nothing panics.
    let model = load("tiny-llada-q8_0", Emulator::with_life(30), GpuLayers::Auto).unwrap();
    let error = predict(&model, &[1, 2, 3], Output::Statistics { excluded: &[] }).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("lost"), "{error}");
    assert!(error.hint().unwrap().contains("--device cpu"));
    let error = predict(&model, &[1, 2, 3], Output::Logits).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("lost"), "a lost device stays lost: {error}");
    // A card that is too small, and one that has no room for a long canvas.
    let error = load("tiny-llada-q8_0", Emulator::with_room(100 << 20), GpuLayers::Auto).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::GpuMemory { fitting: 0, .. }), "{error}");
}
