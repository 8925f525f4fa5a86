//! The GPU backend against the conformance suite, its PTX interpreted; and against the CPU's bits.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use demask_compute::conformance::{Case, Random, Suite, cases_of, random_weights};
use demask_compute::cpu::CpuOptions;
use demask_compute::quant::QUANT_TYPES;
use demask_compute::{Backend, Cpu, QuantType, Sampling, SamplingPlace, SamplingRule};
use demask_gpu::Gpu;
use support::Emulator;

const SUITE: Suite = Suite { rows: &[1, 3, 7, 8, 33, 148], half_attention: true };

/// Runs cases on two threads; `DEMASK_CASE` names those to run, by a part of their name.
fn check<B: Backend + 'static>(cases: impl Fn() -> Vec<Case<B>> + Sync, backend: impl Fn() -> B + Sync) {
    let wanted = std::env::var("DEMASK_CASE").unwrap_or_default();
    let next = AtomicUsize::new(0);
    let run = || {
        let (backend, cases, mut failures) = (backend(), cases(), Vec::new());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return failures };
            if !case.name.contains(&wanted) {
                continue;
            }
            let begun = std::time::Instant::now();
            let result = (case.run)(&backend).and_then(|()| backend.status().map_err(|error| error.to_string()));
            println!("{}: {:.2} s", case.name, begun.elapsed().as_secs_f64());
            if let Err(error) = result {
                failures.push(format!("{}: {error}", case.name));
            }
        }
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_passes_on_the_emulator() {
    check(|| cases_of(SUITE), || Gpu::new(Box::new(Emulator::new())));
}

#[test]
fn tokens_are_drawn_on_the_device() {
    // The cases of sampling pass with backends that don't draw.
    let gpu = Gpu::new(Box::new(Emulator::new()));
    let head = gpu.matrix(&random_weights(QuantType::Q8_0, 70, 64, 1)).unwrap();
    let (mut x, mut operand) = (gpu.rows(3, 64), gpu.operand(3, 64));
    gpu.write(&Random::new(2).values(3 * 64), &mut x);
    gpu.quantize(&x, &mut operand);
    let places = [SamplingPlace { row: 1, position: 7 }, SamplingPlace { row: 2, position: 9 }];
    let rule = SamplingRule::Gumbel;
    let sampling = Sampling { rule, temperature: 1.0, seed: 3, step: 1, mask_token: 0, places: &places };
    let mut drawn = Vec::new();
    assert!(gpu.sample(&operand, &head, &sampling, &mut drawn));
    gpu.status().unwrap();
    assert!(drawn.len() == 2 && drawn.iter().all(|sample| sample.finite && sample.token != 0), "{drawn:?}");
}

/// Norm, product, gate and residual sum of a type, as bits; and rows of the table.
fn bits<B: Backend>(backend: &B, quant: &demask_compute::quant::QuantRow, rows: usize) -> Vec<u32> {
    let (n, k) = (81, 512);
    let weights = random_weights(quant.ty, n, k, 1);
    let matrix = backend.matrix(&weights).unwrap();
    let mut x = backend.rows(rows, k);
    backend.write(&Random::new(rows as u64).values(rows * k), &mut x);
    let (mut normed, mut gated) = (backend.operand(rows, k), backend.operand(rows, k));
    backend.rms_norm(&x, &backend.vector(&Random::new(3).values(k)), 1e-6, &mut normed);
    backend.silu_mul(&x, &x, &mut gated);
    let mut out = backend.rows(rows, n);
    backend.linear(&normed, &matrix, Some(&backend.vector(&Random::new(4).values(n))), &mut out);
    backend.linear_add(&gated, &matrix, &mut out);
    let mut all = backend.read(&out);
    let tokens: Vec<u32> = (0..rows as u32).map(|r| r * 5 % n as u32).collect();
    backend.embed(&backend.table(&weights).unwrap(), &tokens, &mut x);
    all.extend(backend.read(&x));
    backend.status().unwrap();
    all.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn norms_products_gates_and_embeddings_are_the_cpus_bit_for_bit() {
    let cpu = Cpu::new(&CpuOptions { threads: Some(1), isa: None }).unwrap();
    let gpu = Gpu::new(Box::new(Emulator::new()));
    for quant in QUANT_TYPES {
        for rows in [3, 17] {
            assert!(bits(&cpu, quant, rows) == bits(&gpu, quant, rows), "{} x {rows} rows", quant.name);
        }
    }
}

#[test]
fn memory_is_given_back() {
    let gpu = Gpu::new(Box::new(Emulator::new()));
    let before = gpu.memory().unwrap().0;
    let kept = gpu.rows(3, 64);
    drop(gpu.operand(8, 64));
    let (used, peak) = gpu.usage();
    assert!(used == 3 * 64 * 4 && peak > used, "{used} of {peak}");
    drop(kept);
    assert_eq!(gpu.memory().unwrap().0, before);
}

#[test]
fn what_does_not_fit_is_a_fault_of_the_operation_and_of_nothing_else() {
    let gpu = Gpu::new(Box::new(Emulator::with_room(1 << 20)));
    let mut large = gpu.rows(1024, 1024);
    assert!(gpu.status().is_ok(), "nothing was done with it yet");
    let table = gpu.table(&random_weights(QuantType::F32, 8, 1024, 1)).unwrap();
    gpu.embed(&table, &[1, 2], &mut large);
    let error = gpu.status().unwrap_err().to_string();
    assert!(error.contains("out of memory"), "{error}");
    let mut small = gpu.rows(2, 1024);
    gpu.embed(&table, &[1, 2], &mut small);
    assert_eq!(gpu.read(&small).len(), 2048);
    gpu.status().unwrap();
    let error = gpu.matrix(&random_weights(QuantType::Q4K, 4096, 1024, 1)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
    // Heads that no kernel takes.
    let (mut kv, rows) = (gpu.kv(1, 4, 1, 256), gpu.rows(0, 256));
    gpu.kv_write(&rows, &rows, 0, &[], &mut kv);
    assert!(gpu.status().unwrap_err().to_string().contains("heads have 256 features"));
}
