//! Packing against copying: `pack [threads] [rows] [type]`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]
use demask_compute::conformance::random_weights;
use demask_compute::cpu::CpuOptions;
use demask_compute::{Backend, Cpu};
fn main() {
    let arg = |i| std::env::args().nth(i);
    let cpu = Cpu::new(&CpuOptions { threads: Some(arg(1).map_or(1, |a| a.parse().unwrap())), isa: None }).unwrap();
    let rows: usize = arg(2).map_or(1024, |a| a.parse().unwrap());
    let only = arg(3);
    for q in demask_compute::quant::QUANT_TYPES.iter().filter(|q| only.as_deref().is_none_or(|o| o == q.name)) {
        let w = random_weights(q.ty, rows, 4096, 1);
        let copy = demask_compute::bench::best(std::time::Duration::from_millis(400), || {
            std::hint::black_box(w.bytes.to_vec());
        });
        let pack = demask_compute::bench::best(std::time::Duration::from_millis(900), || {
            std::hint::black_box(cpu.matrix(&w).unwrap().bytes());
        });
        println!(
            "{:7} pack {:.2} GB/s copy {:.2} GB/s  ratio {:.2}  {:.2} Gweights/s",
            q.name,
            w.bytes.len() as f64 / pack * 1e-9,
            w.bytes.len() as f64 / copy * 1e-9,
            pack / copy,
            rows as f64 * 4096. / pack * 1e-9
        );
    }
}
