//! The CPU backend against the conformance suite: every kernel table that this processor runs, on 1 to 3 threads,
//! and every table against the scalar one, bit for bit.
#![allow(clippy::unwrap_used)]

use demask_compute::conformance::{ROW_COUNTS, Random, cases, random_weights};
use demask_compute::cpu::{CpuOptions, kernels};
use demask_compute::quant::QUANT_TYPES;
use demask_compute::{Backend, Cpu};

fn cpu(isa: &str, threads: usize) -> Cpu {
    Cpu::new(&CpuOptions { threads: Some(threads), isa: Some(isa.to_owned()) }).unwrap()
}

#[test]
fn every_table_passes_every_case() {
    for table in kernels::available() {
        // The scalar kernels are slow, and threads divide the work the same way for all tables.
        let threads = if table.name == "scalar" { 2..=2 } else { 1..=3 };
        for threads in threads {
            let cpu = cpu(table.name, threads);
            let failures: Vec<String> = cases()
                .iter()
                .filter_map(|case| {
                    let error = (case.run)(&cpu).err()?;
                    Some(format!("{}: {error}", case.name))
                })
                .collect();
            assert!(failures.is_empty(), "{} with {threads} threads:\n{}", table.name, failures.join("\n"));
        }
    }
}

/// `DEMASK_REQUIRE_ISA` names tables that must be among the tested ones, so that an emulator can't hide them.
#[test]
fn required_tables_are_there() {
    let required = std::env::var("DEMASK_REQUIRE_ISA").unwrap_or_default();
    let names: Vec<&str> = kernels::available().iter().map(|table| table.name).collect();
    for name in required.split(',').filter(|name| !name.is_empty()) {
        assert!(names.contains(&name), "{name} is required; there are {names:?}");
    }
}

/// Every operation once, on all types and row counts: all results as bits.
fn results(cpu: &Cpu) -> Vec<(String, Vec<u32>)> {
    let mut all = Vec::new();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    let (n, k) = (72, 512);
    for quant in QUANT_TYPES {
        let matrix = cpu.matrix(&random_weights(quant.ty, n, k, 1)).unwrap();
        for rows in ROW_COUNTS {
            let mut x = cpu.rows(rows, k);
            cpu.write(&Random::new(rows as u64).values(rows * k), &mut x);
            let (mut normed, mut gated) = (cpu.operand(rows, k), cpu.operand(rows, k));
            cpu.rms_norm(&x, &vec![1.5; k], 1e-6, &mut normed);
            cpu.silu_mul(&x, &x, &mut gated);
            let mut out = cpu.rows(rows, n);
            cpu.linear(&normed, &matrix, None, &mut out);
            cpu.linear_add(&gated, &matrix, &mut out);
            all.push((format!("linear {} x {rows}", quant.name), bits(&cpu.read(&out))));
            let mut statistics = Vec::new();
            cpu.row_statistics(&normed, &matrix, &[2], &mut statistics);
            let fields = statistics
                .iter()
                .flat_map(|s| [s.probability, s.runner_up, s.entropy, f64::from(s.token)])
                .flat_map(|f| [f.to_bits() as u32, (f.to_bits() >> 32) as u32]);
            all.push((format!("statistics {} x {rows}", quant.name), fields.collect()));
        }
    }
    for rows in ROW_COUNTS {
        let (heads, dim) = (4, 48);
        let mut x = cpu.rows(rows, heads * dim);
        cpu.write(&Random::new(3).values(rows * heads * dim), &mut x);
        let mut kv = cpu.kv(1, rows, heads, dim);
        let positions: Vec<u32> = (0..rows as u32).collect();
        cpu.kv_write(&x, &x, 0, &positions, &mut kv);
        let visible = demask_compute::Visibility::Bidirectional { len: rows };
        let mut out = cpu.operand(rows, heads * dim);
        cpu.attention(&x, &kv, 0, visible, &mut out);
        all.push((format!("attention x {rows}"), bits(out.wide())));
    }
    all
}

#[test]
fn tables_and_thread_counts_agree_bit_for_bit() {
    let truth = results(&cpu("scalar", 1));
    for table in kernels::available() {
        let threads = if table.name == "scalar" { 2..=2 } else { 1..=3 };
        for threads in threads {
            for (wanted, found) in truth.iter().zip(results(&cpu(table.name, threads))) {
                assert!(*wanted == found, "{} with {threads} threads differs from scalar: {}", table.name, found.0);
            }
        }
    }
}
