//! What holds for every unmasker, cache policy and seed: on a scripted model whose logits depend on what it sees, and, for
//! bit equality, on tiny real ones.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;

use std::ops::ControlFlow;

use demask::diffusion::{CacheSettings, Denoising, EditKind, Generation, RECIPES, Settings, generate};
use demask::model::{Family, MaskPredictor, ModelSpec, Output, Plan, Prediction};
use demask::{CachePolicy, Canvas, EndPolicy, Error, Recipe, Request, StepReport, UnmaskRule};
use golden::{load, spec};
use proptest::prelude::*;

const VOCAB: usize = 12;
const MASK: u32 = 11;
const ENDS: [u32; 2] = [9, 10];

/// A model whose logits of a row are a hash of the row's position and of the tokens near it, as they were when those rows
/// last ran. Rows that never ran are an error, as are rows that are scored without being run.
struct Hashed {
    spec: ModelSpec,
    seen: Vec<Option<u32>>,
    sharpness: f32,
    values: Vec<f32>,
}

impl Hashed {
    fn new(spec: &ModelSpec, positions: usize, sharpness: f32) -> Hashed {
        Hashed { spec: spec.clone(), seen: vec![None; positions], sharpness, values: Vec::new() }
    }

    fn logits(&self, row: usize, visible: usize) -> Vec<f32> {
        let near = row.saturating_sub(3)..(row + 4).min(visible);
        let context = near.fold(row as u64, |hash, p| mix(hash ^ u64::from(self.seen[p].expect("every row has run"))));
        let level = |v: usize| (mix(context ^ (v as u64) << 32) >> 40) as f32 / (1u64 << 24) as f32;
        (0..VOCAB).map(|v| self.sharpness * level(v)).collect()
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) ^ x >> 31
}

impl MaskPredictor for Hashed {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn predict(&mut self, tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        assert!(plan.rows.is_sorted_by(|a, b| a < b) && plan.wanted.is_sorted_by(|a, b| a < b));
        assert!(plan.wanted.iter().all(|row| plan.rows.contains(row)), "only rows that run are scored");
        plan.rows.iter().for_each(|&row| self.seen[row as usize] = Some(tokens[row as usize]));
        self.values = plan.rows.iter().flat_map(|&row| self.logits(row as usize, tokens.len())).collect();
        out.rows = plan.wanted.to_vec();
        let rows = plan.wanted.iter().map(|&row| self.logits(row as usize, tokens.len()));
        out.statistics.clear();
        out.logits.clear();
        match plan.output {
            Output::Samples(_) | Output::Logits => out.logits = rows.flatten().collect(),
            Output::Statistics { excluded } => {
                out.statistics = rows.map(|row| golden::statistics(&row, excluded)).collect();
            }
        }
        Ok(())
    }

    fn row_values(&self, out: &mut Vec<f32>) -> Result<(), Error> {
        out.clone_from(&self.values);
        Ok(())
    }

    fn predict_shadow(&mut self, tokens: &[u32], rows: &[u32], out: &mut Prediction) -> Result<(), Error> {
        let seen = self.seen.clone();
        rows.iter().for_each(|&row| self.seen[row as usize] = Some(MASK));
        out.rows = rows.to_vec();
        out.logits = rows.iter().flat_map(|&row| self.logits(row as usize, tokens.len())).collect();
        self.seen = seen;
        Ok(())
    }
}

/// A request that a rule and a policy accept.
fn request(family: Family, rule: UnmaskRule, policy: CachePolicy, seed: u64) -> Request {
    let cached = policy != CachePolicy::None;
    let scheduled = rule.is_scheduled();
    Request {
        max_tokens: 1 + (seed % 29) as usize,
        block_length: (family == Family::Llada || !scheduled).then_some(1 + (seed / 29 % 11) as usize),
        unmask: Some(rule),
        cache: Some(policy),
        refresh: (cached && seed.is_multiple_of(3)).then_some(1 + (seed / 7 % 5) as usize),
        refresh_drift: (cached && seed % 7 < 3).then(|| [0.0, 0.3, 2.0][(seed % 7) as usize]),
        no_repeat: if rule == UnmaskRule::Wino { 0 } else { [0, 0, 1, 2, 3][(seed / 37 % 5) as usize] },
        window: (seed % 4 == 1).then_some((seed / 11 % 9) as usize),
        freeze_prompt: Some(seed % 5 == 2),
        dirty_rows: cached.then_some((seed / 13 % 4) as usize),
        delay: (policy == CachePolicy::Delayed && seed.is_multiple_of(2)).then_some(1 + (seed / 17 % 3) as usize),
        temperature: [0.0, 0.7][(seed / 19 % 2) as usize],
        eos: [EndPolicy::Stop, EndPolicy::Keep][(seed / 23 % 2) as usize],
        seed,
        ..Request::default()
    }
}

/// A prompt with the mask token in it, and, for some seeds, given tokens between the blanks.
fn canvas(open: usize, seed: u64) -> Canvas {
    let mut tokens: Vec<Option<u32>> = (0..seed / 31 % 6).map(|p| Some(if p == 1 { MASK } else { p as u32 })).collect();
    for position in 0..open {
        if seed % 6 == 5 && position % 4 == 2 {
            tokens.push(Some(3));
        }
        tokens.push(None);
    }
    Canvas::with_blanks(&tokens, MASK)
}

fn run(
    model: &mut dyn MaskPredictor,
    canvas: &Canvas,
    settings: &Settings,
) -> (Generation, Vec<StepReport>, Vec<Canvas>) {
    let (mut steps, mut canvases) = (Vec::new(), Vec::new());
    let generation = generate(model, Denoising::new(canvas.clone(), settings.clone()), &mut |step, canvas| {
        steps.push(step.clone());
        canvases.push(canvas.clone());
        if steps.len() > 400 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (generation.unwrap(), steps, canvases)
}

fn check(family: Family, rule: UnmaskRule, policy: CachePolicy, seed: u64, sharpness: f32) {
    let label = format!("{} {} {} seed {seed} sharpness {sharpness}", family.name(), rule.name(), policy.name());
    let request = request(family, rule, policy, seed);
    let spec = spec(family, VOCAB, MASK, family == Family::Dream);
    let open = request.max_tokens;
    let settings = request.settings(&spec, ENDS.to_vec(), open).unwrap_or_else(|error| panic!("{label}: {error}"));
    let start = canvas(open, seed);
    let (generation, steps, canvases) = run(&mut Hashed::new(&spec, start.len(), sharpness), &start, &settings);

    // The same seed gives the same trace.
    let (_, again, _) = run(&mut Hashed::new(&spec, start.len(), sharpness), &start, &settings);
    assert_eq!(steps, again, "{label}");

    // Progress: a step decides something, or is stale and followed by one that isn't.
    let held_back = |step: &StepReport| step.transfer.edits.is_empty();
    for pair in steps.windows(2) {
        assert!(!held_back(&pair[0]) || (!pair[0].refreshed && pair[1].refreshed), "{label}: {pair:?}");
    }
    let bound = if settings.cache.policy == CachePolicy::None { open } else { 2 * open };
    assert!(steps.len() <= bound, "{label}: {} steps for {open} positions", steps.len());

    let mut settled = 0;
    for (step, canvas) in steps.iter().zip(&canvases) {
        assert!(step.transfer.edits.is_sorted_by(|a, b| a.position < b.position), "{label}: {step:?}");
        for edit in &step.transfer.edits {
            assert!(start.is_asked(edit.position), "{label}: the prompt is never edited");
            assert!(edit.kind != EditKind::Unmask || edit.to != MASK, "{label}: the mask token is never decided");
            assert!(edit.position >= settled, "{label}: position {} was settled", edit.position);
            assert!(step.refreshed || !ENDS.contains(&edit.to), "{label}: an end token from a stale step");
        }
        assert!(step.settled >= settled && step.settled <= canvas.frontier(), "{label}: settled");
        settled = step.settled;
    }
    let canvas = &generation.canvas;
    assert!(start.asked_range().all(|p| start.is_asked(p) || canvas.tokens()[p] == start.tokens()[p]), "{label}");
    let finished = canvas.open_or_end(&ENDS).is_none_or(|p| !canvas.is_open(p));
    assert!(finished, "{label}: the answer is decided up to its end");
    assert!(settings.eos == EndPolicy::Stop || canvas.frontier() == canvas.len(), "{label}: all is decided");

    if request.no_repeat > 0 {
        assert_no_repetition(canvas, request.no_repeat, &label);
    }

    let sums = generation.statistics;
    let edits: usize = steps.iter().map(|step| step.transfer.edits.len()).sum();
    assert_eq!((sums.steps, sums.nfe, sums.commits + sums.remasks), (steps.len(), steps.len(), edits), "{label}");
    assert_eq!(sums.rows, steps.iter().map(|step| step.rows).sum::<usize>(), "{label}");
}

/// No run of plain tokens of the answer stands twice, as long as there were others to write.
fn assert_no_repetition(canvas: &Canvas, length: usize, label: &str) {
    let plain = |p: usize| canvas.is_asked(p) && !canvas.is_open(p) && !ENDS.contains(&canvas.tokens()[p]);
    let mut runs = std::collections::HashSet::new();
    for start in 0..(canvas.len() + 1).saturating_sub(length) {
        if (start..start + length).all(plain) {
            let run = &canvas.tokens()[start..start + length];
            assert!(runs.insert(run), "{label}: {run:?} stands twice in {:?}", canvas.tokens());
        }
    }
}

fn pairs() -> impl Iterator<Item = (Family, UnmaskRule, CachePolicy)> {
    let families = [Family::Llada, Family::Dream];
    let rules = move |family: Family| UnmaskRule::ALL.into_iter().filter(move |rule| rule.runs_on(family));
    let policies =
        |rule| CachePolicy::ALL.into_iter().filter(move |p| rule != UnmaskRule::Wino || *p == CachePolicy::None);
    families.into_iter().flat_map(move |family| {
        rules(family).flat_map(move |rule| policies(rule).map(move |policy| (family, rule, policy)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_unmasker_with_every_cache_policy(seed: u64, sharpness in 0.0f32..25.0) {
        for (family, rule, policy) in pairs() {
            check(family, rule, policy, seed, sharpness);
        }
    }
}

/// Runs a tiny model; confidences are compared bit for bit.
fn tiny(model: &demask::Model, request: &Request) -> (Vec<u32>, Vec<StepReport>) {
    let mut steps = Vec::new();
    let generation = model.generate(&[5, 70, 33, 120, 8], request, &mut |step, _| {
        steps.push(step.clone());
        ControlFlow::Continue(())
    });
    (generation.unwrap().canvas.tokens().to_vec(), steps)
}

#[test]
fn exact_policies_equal_none_bit_for_bit() {
    for file in ["tiny-llada-f32.gguf", "tiny-llada-q8_0.gguf", "tiny-dream-f32.gguf"] {
        let model = load(file, 2);
        for rule in [UnmaskRule::Threshold, UnmaskRule::EntropyBound, UnmaskRule::MultiBlock] {
            let none = Request {
                max_tokens: 20,
                block_length: Some(8),
                unmask: Some(rule),
                eos: EndPolicy::Keep,
                ..Request::default()
            };
            let wanted = tiny(&model, &none);
            for policy in CachePolicy::ALL {
                let every = (policy != CachePolicy::None).then_some(1);
                let request = Request { cache: Some(policy), refresh: every, ..none.clone() };
                let canvas = model.canvas(&[5, 70, 33, 120, 8], 20).unwrap();
                assert!(model.settings(&canvas, &request).unwrap().cache.is_exact());
                assert_eq!(tiny(&model, &request), wanted, "{file} {} {}", rule.name(), policy.name());
            }
        }
    }
    let stale = CacheSettings { policy: CachePolicy::Dual, ..CacheSettings::default() };
    assert!(!stale.is_exact());
    assert!(!CacheSettings { window: Some(8), ..CacheSettings::default() }.is_exact());
    assert!(!CacheSettings { freeze_prompt: true, ..CacheSettings::default() }.is_exact());
}

#[test]
fn one_thread_equals_two() {
    for file in ["tiny-llada-f32.gguf", "tiny-llada-q4_k_m.gguf", "tiny-dream-q8_0.gguf"] {
        let (one, two) = (load(file, 1), load(file, 2));
        for recipe in RECIPES.iter().map(|row| row.recipe) {
            for temperature in [0.0, 0.8] {
                let request = Request { max_tokens: 24, recipe, temperature, ..Request::default() }.before_tuning();
                assert_eq!(tiny(&one, &request), tiny(&two, &request), "{file} {}", recipe.name());
            }
        }
    }
}

#[test]
fn guidance_goes_with_every_cache_policy() {
    let model = load("tiny-llada-f32.gguf", 2);
    for policy in CachePolicy::ALL {
        let request = Request {
            max_tokens: 16,
            block_length: Some(8),
            unmask: Some(UnmaskRule::Threshold),
            cfg_scale: 1.0,
            cache: Some(policy),
            eos: EndPolicy::Keep,
            ..Request::default()
        };
        let (tokens, steps) = tiny(&model, &request);
        assert!(steps.iter().all(|step| step.nfe == 2 && step.rows % 2 == 0), "{}", policy.name());
        let always = Request { refresh: (policy != CachePolicy::None).then_some(1), ..request };
        let none = Request { cache: None, refresh: None, ..always.clone() };
        assert_eq!(tiny(&model, &always), tiny(&model, &none), "both predictors get the same plan");
        assert_eq!(tokens.len(), 21);
    }
}

#[test]
fn case_d37_nothing_approximate_unasked() {
    assert_eq!(Request::default().recipe, Recipe::Exact);
    for file in ["tiny-llada-f32.gguf", "tiny-dream-f32.gguf"] {
        let model = load(file, 2);
        let canvas = model.canvas(&[5, 70, 33], 16).unwrap();
        let default = Request { max_tokens: 16, ..Request::default() };
        let settings = model.settings(&canvas, &default).unwrap();
        assert!(settings.cache.is_exact() && settings.unmask == model.spec().family.default_rule());
        // The loop without any of its exact savings: all logits, every position decided.
        for seed in 0..20 {
            let prompt: Vec<u32> = (0..6).map(|i| (seed * 37 + i * 11) % 250).collect();
            let text = |request: &Request| {
                let generation = model.generate(&prompt, request, &mut |_, _| ControlFlow::Continue(())).unwrap();
                model.answer_tokens(&generation.canvas).to_vec()
            };
            let slow = Request { full_logits: true, eos: EndPolicy::Keep, ..default.clone() };
            assert_eq!(text(&default), text(&slow), "{file} prompt {seed}");
        }
    }
    let approximate = RECIPES.iter().filter(|row| row.cache.is_some());
    assert!(approximate.clone().count() == 4 && approximate.clone().all(|row| row.recipe != Recipe::Exact));
}

#[test]
fn recipes_fill_in_and_the_request_wins() {
    for family in [Family::Llada, Family::Dream] {
        let spec = spec(family, VOCAB, MASK, false);
        let settings = |request: Request| request.before_tuning().settings(&spec, vec![], 100).unwrap();
        for row in &RECIPES {
            assert_eq!(Recipe::from_name(row.name), Some(row.recipe));
            let json = serde_json::to_value(row.recipe).unwrap();
            assert_eq!(json, row.name, "one name on the command line and in JSON");
            let filled = settings(Request { recipe: row.recipe, ..Request::default() });
            assert_eq!(filled.unmask, row.unmask.unwrap_or(family.default_rule()));
            assert_eq!(filled.cache.policy, row.cache.unwrap_or_default());
            assert!(row.block_length.is_none_or(|length| length == filled.block_length));
            assert!(!row.description.is_empty());
        }
        let mine = Request {
            recipe: Recipe::Fast,
            threshold: Some(0.7),
            block_length: Some(10),
            window: Some(5),
            ..Request::default()
        };
        let mine = settings(mine);
        assert_eq!((mine.numbers.threshold, mine.block_length, mine.cache.window), (0.7, 10, Some(5)));
        // Another unmasker takes nothing that it has no use for from the recipe.
        let other = Request { recipe: Recipe::Fast, unmask: Some(UnmaskRule::EntropyBound), ..Request::default() };
        assert_eq!(settings(other).numbers.entropy, 0.5);
        let uncached = Request { recipe: Recipe::Fastest, cache: Some(CachePolicy::None), ..Request::default() };
        assert_eq!((settings(uncached.clone()).cache.dirty_rows, settings(uncached).cache.refresh), (0, None));
    }
    assert_eq!(
        Recipe::Fast.row().flags(),
        "--unmask threshold --block-length 32 --threshold 0.9 --cache dual --window 32"
    );
    assert_eq!(Recipe::Exact.row().flags(), "");
}

#[test]
fn case_d12_d15_d39_what_cannot_be_used_says_what_can() {
    let (llada, dream) = (spec(Family::Llada, VOCAB, MASK, false), spec(Family::Dream, VOCAB, MASK, true));
    let base = Request { max_tokens: 40, ..Request::default() };
    let refused: Vec<(&ModelSpec, Request, &str, &str)> = vec![
        (&llada, Request { threshold: Some(0.9), ..base.clone() }, "--threshold", "hierarchy"),
        (&llada, Request { factor: Some(1.0), ..base.clone() }, "--factor", "factor can"),
        (&llada, Request { entropy: Some(1.0), recipe: Recipe::Fast, ..base.clone() }, "--entropy", "entropy-bound"),
        (&llada, Request { entropy: Some(f64::NAN), ..base.clone() }, "--entropy", "0 or more"),
        (&llada, Request { add: Some(2.0), ..base.clone() }, "--add", "between 0 and 1"),
        (&llada, Request { back: Some(0.5), ..base.clone() }, "--back", "wino can"),
        (&llada, Request { steps: Some(8), recipe: Recipe::Fast, ..base.clone() }, "--steps", "low-confidence"),
        (&llada, Request { refresh: Some(4), ..base.clone() }, "--refresh", "prefix, dual or delayed"),
        (&llada, Request { refresh: Some(0), recipe: Recipe::Fast, ..base.clone() }, "--refresh", "1 (every step)"),
        (&llada, Request { dirty_rows: Some(1), ..base.clone() }, "--dirty-rows", "prefix, dual or delayed"),
        (&llada, Request { refresh_drift: Some(0.1), ..base.clone() }, "--refresh-drift", "prefix, dual or delayed"),
        (
            &llada,
            Request { refresh_drift: Some(3.0), recipe: Recipe::Fast, ..base.clone() },
            "--refresh-drift",
            "between 0 and 2",
        ),
        (&llada, Request { cfg_scale: 1e38, ..base.clone() }, "--cfg-scale", "between 0 and 100"),
        (
            &llada,
            Request { unmask: Some(UnmaskRule::Wino), no_repeat: 2, ..base.clone() },
            "--no-repeat",
            "the other unmaskers can",
        ),
        (&llada, Request { delay: Some(1), recipe: Recipe::Fast, ..base.clone() }, "--delay", "delayed can"),
        (&llada, Request { unmask: Some(UnmaskRule::Origin), ..base.clone() }, "--unmask", "low-confidence, random"),
        (&dream, Request { unmask: Some(UnmaskRule::Random), ..base.clone() }, "--unmask", "origin, maskgit-plus"),
        (&dream, Request { unmask: Some(UnmaskRule::Wino), ..base.clone() }, "--unmask", "multi-block"),
        (&dream, Request { block_length: Some(8), ..base.clone() }, "--block-length", "threshold"),
        (&llada, Request { eps: 0.5, ..base.clone() }, "--eps", "Dream"),
        (&llada, Request { top_p: 0.9, ..base.clone() }, "--top-p", "Dream models do"),
        (&dream, Request { top_p: 1.5, ..base.clone() }, "--top-p", "between 0 and 1"),
        (&dream, Request { top_p: -0.1, ..base.clone() }, "--top-p", "between 0 and 1"),
        (&dream, Request { top_p: f64::NAN, ..base.clone() }, "--top-p", "between 0 and 1"),
        (&llada, Request { temperature: f64::NAN, ..base.clone() }, "--temperature", "0 or more"),
        (&llada, Request { temperature: -1.0, ..base.clone() }, "--temperature", "0 or more"),
        (&llada, Request { steps: Some(0), ..base.clone() }, "--steps", "at least 1"),
        (&llada, Request { max_tokens: 0, ..base.clone() }, "--max-tokens", "at least 1"),
        (&llada, Request { steps: Some(1), ..base.clone() }, "--steps", "2 blocks"),
        (&dream, Request { alg_temp: 0.5, recipe: Recipe::Fast, ..base.clone() }, "--alg-temp", "maskgit-plus"),
        (&llada, Request { banned: vec![12], ..base.clone() }, "--ban", "0 to 11"),
        (
            &llada,
            Request { unmask: Some(UnmaskRule::Wino), cache: Some(CachePolicy::Dual), ..base.clone() },
            "--cache",
            "the other unmaskers can",
        ),
        (
            &llada,
            Request { unmask: Some(UnmaskRule::Wino), cfg_scale: 1.0, ..base.clone() },
            "--cfg-scale",
            "the other unmaskers can",
        ),
    ];
    for (spec, request, option, reason) in refused {
        let error = request.settings(spec, vec![], request.max_tokens).unwrap_err();
        assert_eq!(error.option, option, "{error}");
        assert!(error.reason.contains(reason), "{error}: no `{reason}`");
    }
    assert_eq!(UnmaskRule::from_name("LOW_CONFIDENCE"), Some(UnmaskRule::LowConfidence));
    assert_eq!(UnmaskRule::from_name("topk_margin"), Some(UnmaskRule::Margin));
    assert_eq!(UnmaskRule::from_name("foo"), None);
    for rule in UnmaskRule::ALL {
        assert_eq!(UnmaskRule::from_name(rule.name()), Some(rule));
        assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
    }
    let unknown = serde_json::from_str::<Request>(r#"{"tresh": 1}"#).unwrap_err();
    assert!(unknown.to_string().contains("threshold"), "{unknown}");
}

#[test]
fn a_machine_is_measured_with_the_callers_clock() {
    let model = load("tiny-llada-f32.gguf", 2);
    let mut reads = 0;
    let mut now = || {
        reads += 1;
        f64::from(reads)
    };
    let curve = model.curve(60, &mut now).unwrap();
    let rows: Vec<usize> = curve.points().iter().map(|point| point.0).collect();
    assert_eq!(rows, [32, 64], "a power of two that covers the canvas");
    assert!(curve.points().iter().all(|point| point.1 == 1.0), "one tick a pass: {curve:?}");
    let request = Request { max_tokens: 40, recipe: Recipe::Auto, ..Request::default() };
    assert!(model.canvas(&[1; 8], 40).and_then(|canvas| model.settings(&canvas, &request)).is_err());
    let (tuned, tuning) = request.tuned(&curve, model.spec(), 8, 40);
    assert_eq!((tuned.window, tuned.refresh, tuning.seconds > 0.0), (Some(40), Some(1), true), "a flat curve");
    assert!(model.generate(&[1; 8], &tuned, &mut |_, _| ControlFlow::Continue(())).is_ok());
}

#[test]
fn case_d31_seeds_differ_and_repeat() {
    let model = load("tiny-llada-f32.gguf", 2);
    let answer = |seed, temperature| {
        tiny(&model, &Request { max_tokens: 16, seed, temperature, eos: EndPolicy::Keep, ..Request::default() }).0
    };
    assert_eq!(answer(7, 0.8), answer(7, 0.8));
    assert_ne!(answer(7, 0.8), answer(8, 0.8));
    assert_eq!(answer(7, 0.0), answer(8, 0.0));
}

#[test]
fn case_d33_a_prompt_that_does_not_fit_is_refused() {
    let model = load("tiny-llada-gqa-f32.gguf", 1);
    for length in [64, 65, 200] {
        let request = Request { max_tokens: 16, ..Request::default() };
        let error = model.generate(&vec![1; length], &request, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&length.to_string()) && text.contains("16") && text.contains("64"), "{text}");
    }
}

#[test]
fn the_window_and_the_end_shrink_the_canvas() {
    // Every position is sure of an end token but the first two: once it stands, nothing behind it runs.
    let spec = spec(Family::Llada, VOCAB, MASK, false);
    let rows: Vec<Vec<f32>> = (0..44)
        .map(|p| (0..VOCAB).map(|v| if v == if p < 6 { 3 } else { 9 } { 20.0 } else { 0.0 }).collect())
        .collect();
    let request = Request {
        max_tokens: 40,
        recipe: Recipe::Fast,
        block_length: Some(8),
        window: Some(8),
        threshold: Some(1.0),
        ..Request::default()
    };
    let settings = request.settings(&spec, ENDS.to_vec(), 40).unwrap();
    let mut model = golden::Scripted::new(&spec, vec![rows].into());
    let (generation, steps, _) = run(&mut model, &Canvas::continuing(&[0; 4], 40, MASK), &settings);
    assert_eq!(steps[0].rows, 4 + 8 + 8, "the prompt, the block and the window");
    assert_eq!(generation.statistics.visible_tokens, 2);
    assert_eq!(generation.canvas.frontier(), 7, "nothing behind the end is decided");
}

/// Rows of each step and the positions it decided, on logits that are the same in every step.
fn rows_and_edits(request: &Request, rows: &[Vec<f32>], prompt: usize) -> Vec<(usize, Vec<usize>)> {
    let spec = spec(Family::Llada, VOCAB, MASK, false);
    let settings = request.settings(&spec, ENDS.to_vec(), request.max_tokens).unwrap();
    let mut model = golden::Scripted::new(&spec, vec![rows.to_vec()].into());
    let canvas = Canvas::continuing(&vec![0; prompt], request.max_tokens, MASK);
    let (_, steps, _) = run(&mut model, &canvas, &settings);
    steps.iter().map(|step| (step.rows, step.transfer.edits.iter().map(|edit| edit.position).collect())).collect()
}

/// Rows that are surest of token `p % 5`, the sooner the further left.
fn left_to_right(positions: usize) -> Vec<Vec<f32>> {
    let level = |p: usize, v: usize| if v == p % 5 { 9.0 - p as f32 / 8.0 } else { 0.0 };
    (0..positions).map(|p| (0..VOCAB).map(|v| level(p, v)).collect()).collect()
}

#[test]
fn dirty_rows_and_a_frozen_prompt_save_rows() {
    let one_per_step = Request {
        max_tokens: 8,
        block_length: Some(4),
        unmask: Some(UnmaskRule::Threshold),
        threshold: Some(1.0),
        cache: Some(CachePolicy::Dual),
        ..Request::default()
    };
    let rows = |request: &Request| -> Vec<usize> {
        rows_and_edits(request, &left_to_right(14), 6).into_iter().map(|(rows, _)| rows).collect()
    };
    assert_eq!(rows(&one_per_step), [14, 4, 4, 4, 14, 4, 4, 4]);
    let dirty = |n| Request { dirty_rows: Some(n), ..one_per_step.clone() };
    // Open rows and those decided in the last step: 3 + 1, 2 + 1, 1 + 1.
    assert_eq!(rows(&dirty(1)), [14, 4, 3, 2, 14, 4, 3, 2]);
    assert_eq!(rows(&dirty(2)), [14, 4, 4, 3, 14, 4, 4, 3]);
    let frozen = Request { freeze_prompt: Some(true), ..dirty(1) };
    assert_eq!(rows(&frozen), [14, 4, 3, 2, 8, 4, 3, 2]);
    let refreshed = Request { refresh: Some(2), ..one_per_step.clone() };
    assert_eq!(rows(&refreshed), [14, 4, 14, 4, 14, 4, 14, 4]);
    let window = Request { window: Some(1), ..one_per_step };
    assert_eq!(rows(&window), [11, 4, 4, 4, 14, 4, 4, 4], "rows that join the window run");
}

#[test]
fn end_tokens_wait_for_a_refreshed_step() {
    // Positions 6 to 9 in that order of sureness; 8 and 9 are sure of an end token.
    let mut rows = left_to_right(10);
    for row in &mut rows[8..] {
        row.iter_mut().for_each(|level| *level = 0.0);
        row[ENDS[0] as usize] = 2.0;
    }
    rows[9][ENDS[0] as usize] = 1.5;
    let request = Request {
        max_tokens: 4,
        block_length: Some(4),
        unmask: Some(UnmaskRule::Threshold),
        threshold: Some(1.0),
        cache: Some(CachePolicy::Dual),
        eos: EndPolicy::Keep,
        ..Request::default()
    };
    let steps = rows_and_edits(&request, &rows, 6);
    let wanted = [(10, vec![6]), (4, vec![7]), (4, vec![]), (10, vec![8]), (4, vec![]), (10, vec![9])];
    assert_eq!(steps, wanted);
    let stop = Request { eos: EndPolicy::Stop, ..request };
    assert_eq!(rows_and_edits(&stop, &rows, 6), wanted[..4], "the canvas ends where a refreshed step ended it");
}

#[test]
fn wino_opens_again_and_is_only_final_when_its_block_is() {
    let spec = spec(Family::Llada, VOCAB, MASK, false);
    let mut remasks = 0;
    for seed in 0..40 {
        let request = Request {
            max_tokens: 18,
            block_length: Some(9),
            unmask: Some(UnmaskRule::Wino),
            threshold: Some(0.3),
            seed,
            ..Request::default()
        };
        let settings = request.settings(&spec, ENDS.to_vec(), 18).unwrap();
        let start = Canvas::continuing(&[seed as u32 % 9], 18, MASK);
        let (generation, steps, _) = run(&mut Hashed::new(&spec, 19, 18.0), &start, &settings);
        remasks += generation.statistics.remasks;
        let last = steps.last().unwrap();
        let open = generation.canvas.open_in(last.block.range.clone()).count();
        assert_eq!(open, 0, "a block is finished before its end token counts");
        assert!(last.settled >= last.block.range.end, "then it is settled");
    }
    assert!(remasks > 0, "some tokens are opened again");
}
