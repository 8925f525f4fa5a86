//! The text depends on the seed and nothing else: not on threads, and not on the kernels.
#![allow(clippy::unwrap_used, missing_docs)]

mod golden;

use std::ops::ControlFlow;

use demask::{Device, ModelFile, Request, StepReport};
use demask_compute::Cpu;
use demask_compute::cpu::{CpuOptions, kernels};

fn trace(file: &str, options: &CpuOptions, request: &Request) -> Vec<StepReport> {
    let device = Device::on_cpu(Cpu::new(options).unwrap());
    let model = ModelFile::open(golden::fixture(file)).unwrap().load(&device, &mut |_, _| {}).unwrap();
    let prompt = model.tokenizer().encode_prompt_raw("the same text every time");
    let mut steps = Vec::new();
    model
        .generate(&prompt, request, &mut |report, _| {
            steps.push(report.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    steps
}

#[test]
fn threads_and_instruction_sets_change_nothing() {
    for file in ["tiny-llada-q4_k_m.gguf", "tiny-llada-q8_0.gguf", "tiny-llada-f16.gguf", "tiny-dream-q4_k_m.gguf"] {
        for temperature in [0.0, 0.7] {
            let request = Request { max_tokens: 24, temperature, eos: demask::EndPolicy::Keep, ..Request::default() };
            let options = |threads, isa: &str| CpuOptions { threads: Some(threads), isa: Some(isa.to_owned()) };
            let wanted = trace(file, &options(1, "scalar"), &request);
            assert_eq!(wanted.iter().map(|step| step.transfer.edits.len()).sum::<usize>(), 24);
            for table in kernels::available() {
                for threads in [1, 2, 3] {
                    let found = trace(file, &options(threads, table.name), &request);
                    let tokens = |steps: &[StepReport]| -> Vec<(usize, u32)> {
                        steps.iter().flat_map(|s| s.transfer.edits.iter().map(|e| (e.position, e.to))).collect()
                    };
                    assert_eq!(tokens(&found), tokens(&wanted), "{file}, {}, {threads} threads", table.name);
                    if threads == 3 {
                        let again = trace(file, &options(threads, table.name), &request);
                        assert_eq!(found, again, "{file}: the same run twice");
                    }
                }
            }
        }
    }
}

#[test]
fn case_d31_another_seed_is_another_text() {
    let options = CpuOptions { threads: Some(2), isa: None };
    let request = |seed, temperature| Request { max_tokens: 24, temperature, seed, ..Request::default() };
    let run = |seed, temperature| trace("tiny-llada-f32.gguf", &options, &request(seed, temperature));
    assert_eq!(run(7, 0.8), run(7, 0.8));
    assert_ne!(run(7, 0.8), run(8, 0.8));
    assert_eq!(run(7, 0.0), run(8, 0.0), "greedy decoding draws nothing");
}
