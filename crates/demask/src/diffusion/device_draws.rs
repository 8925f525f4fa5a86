//! Tokens that the GPU backend draws, its PTX interpreted, against those of the sampler.
#![allow(clippy::unwrap_used)]

#[path = "../../../demask-gpu/tests/support/mod.rs"]
mod support;

use demask_compute::{Sampling, SamplingPlace};
use support::Emulator;

use super::random::Random;
use super::sampler::{Draw, Sampler};
use crate::model::{Output, Plan, Prediction};
use crate::{Device, GpuLayers, Model, ModelFile};

fn load(name: &str, layers: GpuLayers) -> Model {
    let path = format!("{}/../../fixtures/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let device = Device::on_gpu(Box::new(Emulator::new()), layers, Some(1)).unwrap();
    ModelFile::open(path).unwrap().load(&device, &mut |_, _| {}).unwrap()
}

fn predict(model: &Model, tokens: &[u32], output: Output<'_>) -> Prediction {
    let rows: Vec<u32> = (0..tokens.len() as u32).collect();
    let mut out = Prediction::default();
    let mut predictor = model.predictor(&model.canvas(tokens, 0).unwrap(), 0.0);
    predictor.predict(tokens, &Plan { rows: &rows, wanted: &rows, output }, &mut out).unwrap();
    out
}

#[test]
fn tokens_drawn_on_the_device_are_those_that_the_host_draws_from_its_logits() {
    let tokens: Vec<u32> = (0..9).map(|i| 20 + i * 7).collect();
    // Every row for two positions.
    let places: Vec<SamplingPlace> = (0..18).map(|i| SamplingPlace { row: i / 2, position: 5 * i }).collect();
    for (name, draw) in [
        ("tiny-llada-q8_0", Draw::Gumbel),
        ("tiny-dream-q4_k_m", Draw::Filtered { top_p: 1.0, top_k: 0 }),
        ("tiny-dream-f32", Draw::Gumbel),
    ] {
        let model = load(name, GpuLayers::Auto);
        let logits = predict(&model, &tokens, Output::Logits).logits;
        let mask_token = model.spec().mask_token;
        for (step, temperature, seed) in [(0, 0.2, 1), (7, 1.0, 42), (1, 3.0, u64::MAX - 5), (2, 40.0, 1 << 40)] {
            let sampler = Sampler { temperature, draw, mask_token, banned: vec![], last: vec![] };
            let rule = sampler.device_rule().unwrap();
            let sampling = Sampling { rule, temperature, seed, step, mask_token, places: &places };
            let found = predict(&model, &tokens, Output::Samples(sampling));
            assert!(found.logits.is_empty() && found.samples.len() == places.len(), "{name} draws on the device");
            for (sample, place) in found.samples.iter().zip(&places) {
                let row = logits.chunks_exact(model.spec().vocab).nth(place.row as usize).unwrap();
                let mut row: Vec<f64> = row.iter().map(|&logit| f64::from(logit)).collect();
                let position = place.position as usize;
                let found = sampler.drawn(position, sample);
                let wanted = sampler.guess(position, step as usize, Random::new(seed), &mut row);
                assert_eq!(found.token, wanted.token, "{name} at {temperature}: {found:?}, wanted {wanted:?}");
                for (found, wanted) in [
                    (found.probability, wanted.probability),
                    (found.margin, wanted.margin),
                    (found.entropy, wanted.entropy),
                    (found.plain_entropy, wanted.plain_entropy),
                ] {
                    assert!((found - wanted).abs() < 1e-11, "{name} at {temperature}: {found}, wanted {wanted}");
                }
            }
        }
        // With the head on the processor the host draws, from logits.
        let split = load(name, GpuLayers::Count(1));
        let sampler = Sampler { temperature: 1.0, draw, mask_token, banned: vec![], last: vec![] };
        let rule = sampler.device_rule().unwrap();
        let sampling = Sampling { rule, temperature: 1.0, seed: 1, step: 0, mask_token, places: &places };
        let found = predict(&split, &tokens, Output::Samples(sampling));
        assert!(found.samples.is_empty() && found.logits.len() == tokens.len() * split.spec().vocab, "{name} split");
    }
}
