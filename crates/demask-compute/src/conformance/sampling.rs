//! Cases of [`Backend::sample`]: the tokens that the rules and the generator give, worked out in f64.

use super::{Random, f32_weights, operand};
use crate::backend::{Backend, Sample, Sampling, SamplingPlace, SamplingRule};

const RULES: [SamplingRule; 2] = [SamplingRule::Gumbel, SamplingRule::Categorical];

/// Both draws of a counter: Philox4x32 with ten rounds.
fn draws(seed: u64, counter: [u32; 4]) -> [f64; 2] {
    let (mut key, [mut a, mut b, mut c, mut d]) = ([seed as u32, (seed >> 32) as u32], counter);
    for _ in 0..10 {
        let (first, third) = (u64::from(a) * 0xD251_1F53, u64::from(c) * 0xCD9E_8D57);
        (a, b) = ((third >> 32) as u32 ^ b ^ key[0], third as u32);
        (c, d) = ((first >> 32) as u32 ^ d ^ key[1], first as u32);
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    [[a, b], [c, d]].map(|[low, high]| {
        let draw = u64::from(low) | u64::from(high) << 32;
        ((draw >> 11) as f64 + 0.5) / 2f64.powi(53)
    })
}

fn uniform(sampling: &Sampling<'_>, position: u32, index: usize) -> f64 {
    draws(sampling.seed, [(index / 2) as u32, sampling.step, position, 0])[index % 2]
}

/// `e^(l / t) / total` of every token, and the entropy.
fn softmax(logits: &[f32], t: f64) -> (Vec<f64>, f64) {
    let greatest = logits.iter().fold(f64::NEG_INFINITY, |m, &l| m.max(f64::from(l) / t));
    let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / t - greatest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let probabilities: Vec<f64> = weights.iter().map(|w| w / total).collect();
    let entropy = -probabilities.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>();
    (probabilities, entropy)
}

fn wanted(logits: &[f32], sampling: &Sampling<'_>, position: u32) -> Sample {
    let mask = sampling.mask_token as usize;
    let t = sampling.temperature;
    let allowed = || (0..logits.len()).filter(|&token| token != mask);
    let (plain, plain_entropy) = softmax(logits, 1.0);
    let (warm, warm_entropy) = softmax(logits, t);
    let mut best: Vec<usize> = allowed().collect();
    best.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let (probabilities, entropy, token) = match sampling.rule {
        SamplingRule::Gumbel => {
            let noisy = |token: usize| f64::from(logits[token]) - t * (-uniform(sampling, position, token).ln()).ln();
            let token = allowed().fold(best[0], |found, token| match noisy(token).total_cmp(&noisy(found)) {
                std::cmp::Ordering::Greater => token,
                std::cmp::Ordering::Equal => found.min(token),
                std::cmp::Ordering::Less => found,
            });
            (plain, plain_entropy, token)
        }
        SamplingRule::Categorical => {
            let goal = uniform(sampling, position, 0) * allowed().map(|token| warm[token]).sum::<f64>();
            let mut sum = 0.0;
            let passing = allowed().find(|&token| {
                sum += warm[token];
                sum > goal
            });
            (warm, warm_entropy, passing.unwrap_or(best[0]))
        }
    };
    let of = |rank: usize| best.get(rank).map_or(0.0, |&token| probabilities[token]);
    Sample {
        token: token as u32,
        probability: probabilities[token],
        margin: of(0) - of(1),
        entropy,
        plain_entropy,
        finite: true,
    }
}

/// Samples of rows of logits, through a head whose columns they are; none if the backend doesn't draw.
fn samples<B: Backend>(
    backend: &B,
    logits: &[Vec<f32>],
    sampling: &Sampling<'_>,
) -> Result<Option<Vec<Sample>>, String> {
    let (k, vocab) = (logits.len(), logits[0].len());
    let head: Vec<f32> = (0..vocab * k).map(|i| logits[i % k][i / k]).collect();
    let matrix = backend.matrix(&f32_weights(&head, k)).map_err(|e| e.to_string())?;
    let mut x = vec![0.0; k * k];
    x.iter_mut().step_by(k + 1).for_each(|v| *v = 1.0);
    let mut out = Vec::new();
    let draws = backend.sample(&operand(backend, &x, k), &matrix, sampling, &mut out);
    Ok(draws.then_some(out))
}

fn check<B: Backend>(backend: &B, logits: &[Vec<f32>], sampling: &Sampling<'_>) -> Result<(), String> {
    let Some(found) = samples(backend, logits, sampling)? else { return Ok(()) };
    if found.len() != sampling.places.len() {
        return Err(format!("{} samples for {} places", found.len(), sampling.places.len()));
    }
    for (found, place) in found.iter().zip(sampling.places) {
        let wanted = wanted(&logits[place.row as usize], sampling, place.position);
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-12 + 1e-11 * wanted.abs();
        let same = found.token == wanted.token
            && found.finite
            && near(found.probability, wanted.probability)
            && near(found.margin, wanted.margin)
            && near(found.entropy, wanted.entropy)
            && near(found.plain_entropy, wanted.plain_entropy);
        if !same {
            let (rule, t) = (sampling.rule, sampling.temperature);
            return Err(format!("{rule:?} at {t}, {place:?}: {found:?}, wanted {wanted:?}"));
        }
    }
    Ok(())
}

/// Every rule at several temperatures: ties, a mask token that takes all, rows of one warp and of many.
pub(super) fn rules<B: Backend>(backend: &B) -> Result<(), String> {
    for vocab in [2, 71, 1501] {
        let mut random = Random::new(vocab as u64);
        let mut logits: Vec<Vec<f32>> = (0..6).map(|_| random.values(vocab)).collect();
        logits[1].fill(-2.5);
        logits[2][1] = 60.0; // the mask token
        logits[3].iter_mut().for_each(|l| *l = l.abs() * -1e4);
        logits[3][1] = 3e38;
        logits[4][vocab - 1] = 9.0;
        // Two positions may share a row, and rows may be left out.
        let places: Vec<SamplingPlace> = [0, 0, 1, 2, 3, 4, 4, 4]
            .iter()
            .enumerate()
            .flat_map(|(i, &row)| (0..2).map(move |n| SamplingPlace { row, position: 5 + 2 * i as u32 + n }))
            .collect();
        for rule in RULES {
            for (step, temperature) in [0.2, 1.0, 30.0].into_iter().enumerate() {
                let (seed, step) = (0xfeed_5eed_0000_0000 + vocab as u64, step as u32);
                let sampling = Sampling { rule, temperature, seed, step, mask_token: 1, places: &places };
                check(backend, &logits, &sampling)?;
            }
        }
    }
    Ok(())
}

/// Two tokens of which one wins by a hair, 1e-13: a logarithm that is off by more doesn't pass.
pub(super) fn close_calls<B: Backend>(backend: &B) -> Result<(), String> {
    let rule = SamplingRule::Gumbel;
    let sampling = Sampling { rule, temperature: 1.0, seed: 7, step: 3, mask_token: u32::MAX, places: &[] };
    let lead = |position: u32| {
        let noise = |token| -(-uniform(&sampling, position, token).ln()).ln();
        noise(0) - noise(1)
    };
    let places: Vec<SamplingPlace> = (0..32).map(|row| SamplingPlace { row, position: 100 + 7 * row }).collect();
    for hair in [-1e-13, 1e-13] {
        let logits: Vec<Vec<f32>> = places
            .iter()
            .map(|place| {
                // Two logits hold a difference in twice the digits of one.
                let lead = lead(place.position);
                let second = lead as f32;
                vec![(f64::from(second) - lead + hair) as f32, second]
            })
            .collect();
        check(backend, &logits, &Sampling { places: &places, ..sampling })?;
    }
    Ok(())
}

/// What isn't finite is said to be so, row by row.
pub(super) fn not_finite<B: Backend>(backend: &B) -> Result<(), String> {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut logits = Random::new(23).values(300);
        logits[290] = bad;
        for rule in RULES {
            let places = [SamplingPlace { row: 0, position: 4 }];
            let sampling = Sampling { rule, temperature: 0.7, seed: 1, step: 0, mask_token: 9, places: &places };
            let found = samples(backend, &[logits.clone()], &sampling)?;
            if found.is_some_and(|found| found[0].finite) {
                return Err(format!("a row with {bad} isn't finite, but nothing says so"));
            }
        }
    }
    Ok(())
}
