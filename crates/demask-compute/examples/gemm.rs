//! What matrix products reach of the machine's limits, per kernel table and weight type.
//!
//! `cargo run --release -p demask-compute --example gemm [threads] [rows] [n] [k] [isa] [type]`
#![allow(clippy::print_stdout)]

use std::time::Duration;

use demask_compute::cpu::{CpuOptions, kernels};
use demask_compute::quant::QUANT_TYPES;
use demask_compute::{Cpu, bench};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| -> Result<usize, std::num::ParseIntError> {
        args.get(i).map_or(Ok(default), |text| text.parse())
    };
    let (threads, rows, n, k) = (number(0, 1)?, number(1, 148)?, number(2, 256)?, number(3, 4096)?);
    let wanted = |i: usize, name: &str| args.get(i).is_none_or(|w| w.eq_ignore_ascii_case(name) || w == "all");
    let budget = Duration::from_millis(300);
    for table in kernels::available().iter().filter(|t| t.name != "scalar") {
        if !wanted(4, table.name) {
            continue;
        }
        let cpu = Cpu::new(&CpuOptions { threads: Some(threads), isa: Some(table.name.to_owned()) })?;
        for (name, gmacs) in bench::peaks(&cpu, budget) {
            println!("{:11} {name:22} {gmacs:7.1} GMAC/s", table.name);
        }
        for quant in QUANT_TYPES.iter().filter(|q| wanted(5, q.name)) {
            let found = bench::product(&cpu, quant.ty, rows, n, k, budget)?;
            let share = found.limit.map_or(0.0, |limit| 100.0 * found.gmacs / limit);
            println!(
                "{:11} {:7} {:7.1} GMAC/s  {share:3.0} % of limit  packs {:5.2} GB/s to {:.3} of file",
                table.name,
                quant.name,
                found.gmacs,
                found.file_bytes as f64 / found.pack_seconds * 1e-9,
                found.packed_bytes as f64 / found.file_bytes as f64,
            );
        }
    }
    Ok(())
}
