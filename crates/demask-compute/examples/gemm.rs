//! GMAC/s of every kernel table and weight type. Usage: `gemm [isa] [rows] [n] [k] [threads]`
#![allow(clippy::print_stdout, clippy::unwrap_used)]
use demask_compute::conformance::{Random, random_weights};
use demask_compute::cpu::{CpuOptions, kernels};
use demask_compute::quant::QUANT_TYPES;
use demask_compute::{Backend, Cpu};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let num = |i: usize, d: usize| args.get(i).map_or(d, |s| s.parse().unwrap());
    let only = args.first().map(String::as_str).unwrap_or("all");
    let (rows, n, k, threads) = (num(1, 148), num(2, 4096), num(3, 4096), num(4, 1));
    for table in kernels::available() {
        if (only != "all" && only != table.name) || (only == "all" && table.name == "scalar") {
            continue;
        }
        let cpu = Cpu::new(&CpuOptions { threads: Some(threads), isa: Some(table.name.into()) }).unwrap();
        let mut x = cpu.rows(rows, k);
        cpu.write(&Random::new(1).values(rows * k), &mut x);
        let mut op = cpu.operand(rows, k);
        cpu.quantize(&x, &mut op);
        let mut out = cpu.rows(rows, n);
        for q in QUANT_TYPES {
            let t = std::time::Instant::now();
            let w = random_weights(q.ty, n, k, 1);
            let made = t.elapsed();
            let t = std::time::Instant::now();
            let m = cpu.matrix(&w).unwrap();
            let pack = t.elapsed();
            let _ = made;
            let mut best = f64::MAX;
            let reps = if q.codes.is_none() { 6 } else { 12 };
            for _ in 0..reps {
                let t = std::time::Instant::now();
                cpu.linear(&op, &m, None, &mut out);
                best = best.min(t.elapsed().as_secs_f64());
            }
            println!(
                "{:11} {:7} {:8.1} GMAC/s  pack {:6.2} GB/s  {:.3} of file",
                table.name,
                q.name,
                (rows * n * k) as f64 / best * 1e-9,
                w.bytes.len() as f64 / pack.as_secs_f64() * 1e-9,
                m.bytes() as f64 / w.bytes.len() as f64
            );
        }
    }
}
