//! Where the time of a layer goes: every operation of one LLaDA-8B layer, and the head with statistics for 32 rows.
//!
//! `cargo run --release -p demask-compute --example layer [threads] [rows] [isa]`
#![allow(clippy::print_stdout)]

use std::time::Duration;

use demask_compute::bench::best;
use demask_compute::conformance::{Random, random_weights};
use demask_compute::cpu::CpuOptions;
use demask_compute::quant::QuantType;
use demask_compute::{Backend, Cpu, RopeSpec, RopeStyle, Visibility};

const WIDTH: usize = 4096;
const FFN: usize = 12_288;
const HEADS: usize = 32;
/// A tenth or so of the vocabulary.
const VOCAB: usize = 12_800;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let threads = args.first().map_or(Ok(1), |t| t.parse())?;
    let rows: usize = args.get(1).map_or(Ok(148), |t| t.parse())?;
    let cpu = Cpu::new(&CpuOptions { threads: Some(threads), isa: args.get(2).cloned() })?;
    let (q4, q6) = (QuantType::Q4K, QuantType::Q6K);
    let square = cpu.matrix(&random_weights(q4, WIDTH, WIDTH, 1))?;
    let square_6 = cpu.matrix(&random_weights(q6, WIDTH, WIDTH, 1))?;
    let up = cpu.matrix(&random_weights(q4, FFN, WIDTH, 1))?;
    let down = cpu.matrix(&random_weights(q6, WIDTH, FFN, 1))?;
    let head = cpu.matrix(&random_weights(q6, VOCAB, WIDTH, 1))?;
    let values = Random::new(1).values(rows * WIDTH);
    let (mut x, mut q, mut k, mut v) =
        (cpu.rows(rows, WIDTH), cpu.rows(rows, WIDTH), cpu.rows(rows, WIDTH), cpu.rows(rows, WIDTH));
    [&mut x, &mut q, &mut k, &mut v].into_iter().for_each(|rows| cpu.write(&values, rows));
    let (mut gate, mut upped) = (cpu.rows(rows, FFN), cpu.rows(rows, FFN));
    let norm = vec![1.0; WIDTH];
    let (mut small, mut large) = (cpu.operand(rows, WIDTH), cpu.operand(rows, FFN));
    let mut few = cpu.operand(32, WIDTH);
    let mut kv = cpu.kv(1, rows, HEADS, WIDTH / HEADS);
    let positions: Vec<u32> = (0..rows as u32).collect();
    let spec = RopeSpec { style: RopeStyle::Interleaved, head_dim: WIDTH / HEADS, theta: 5e5, positions: rows };
    let rope = cpu.rope_table(&spec);
    let mut statistics = Vec::new();
    let mut total = 0.0;
    let mut report = |name: &str, times: f64, seconds: f64| {
        println!("{name:28} {times:2} x {:8.3} ms", seconds * 1e3);
        total += times * seconds;
    };
    let budget = Duration::from_millis(400);
    report("rms_norm + quantise", 2.0, best(budget, || cpu.rms_norm(&x, &norm, 1e-5, &mut small)));
    report("linear Q4_K 4096x4096", 3.0, best(budget, || cpu.linear(&small, &square, None, &mut q)));
    report("linear Q6_K 4096x4096", 1.0, best(budget, || cpu.linear(&small, &square_6, None, &mut v)));
    cpu.write(&values, &mut q);
    report("rope", 2.0, best(budget, || cpu.rope(&mut q, &positions, &rope)));
    report("kv_write", 1.0, best(budget, || cpu.kv_write(&k, &v, 0, &positions, &mut kv)));
    let visible = Visibility::Bidirectional { len: rows };
    report("attention", 1.0, best(budget, || cpu.attention(&q, &kv, 0, visible, &mut small)));
    let mut gated = || cpu.gated_linear(&small, [&up, &up], [&mut gate, &mut upped], &mut large);
    report("gated_linear Q4_K 12288x4096", 1.0, best(budget, &mut gated));
    report("linear_add Q6_K 4096x12288", 1.0, best(budget, || cpu.linear_add(&large, &down, &mut x)));
    println!("layer                             {:8.3} ms, 32 of them {:.3} s", total * 1e3, total * 32.0);
    cpu.write(&values[..32.min(rows) * WIDTH], &mut x);
    cpu.quantize(&x, &mut few);
    let seconds = best(budget, || cpu.row_statistics(&few, &head, &[], &mut statistics));
    println!("head with statistics              {:8.3} ms for {VOCAB} tokens", seconds * 1e3);
    Ok(())
}
