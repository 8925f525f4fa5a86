//! Measures the machine's limits and how near the kernels come.
//!
//! Everything is timed in slices of about a millisecond and the best one counts: that is what the code can do,
//! whatever else runs on the machine.

use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::conformance::{Random, random_weights};
use crate::cpu::Cpu;
use crate::cpu::buffer::Buffer;
use crate::cpu::shared::SharedMut;
use crate::quant::QuantType;
use crate::weights::ComputeError;

/// Seconds for copying `bytes` once into fresh memory on all threads: what loading can be held against.
pub fn copy(cpu: &Cpu, bytes: &[u8]) -> f64 {
    /// Bytes per chunk.
    const PIECE: usize = 1 << 20;
    let start = Instant::now();
    let mut to = Buffer::<u8>::zeroed(bytes.len());
    let shared = SharedMut::new(&mut to);
    cpu.run(bytes.len().div_ceil(PIECE), PIECE, &|chunk, _| {
        let from = &bytes[chunk * PIECE..bytes.len().min((chunk + 1) * PIECE)];
        shared.slice(chunk * PIECE, from.len()).copy_from_slice(from);
    });
    start.elapsed().as_secs_f64()
}

/// What a measured matrix product reached.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// 10^9 multiply-accumulates per second.
    pub gmacs: f64,
    /// Limit of the kernel's instructions on as many threads, likewise; `None` without a loop to measure it.
    pub limit: Option<f64>,
    /// Seconds for packing the weights once, at most.
    pub pack_seconds: f64,
    /// Bytes of the weights as a file has them.
    pub file_bytes: usize,
    /// Bytes of the packed weights.
    pub packed_bytes: usize,
}

/// The shortest of many calls of `run` within `budget`, in seconds.
pub fn best(budget: Duration, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while best.is_infinite() || start.elapsed() < budget {
        let slice = Instant::now();
        run();
        best = best.min(slice.elapsed().as_secs_f64());
    }
    best
}

/// The limits of a backend's instructions on all its threads: name and 10^9 multiply-accumulates per second.
pub fn peaks(cpu: &Cpu, budget: Duration) -> Vec<(&'static str, f64)> {
    let each = budget / cpu.kernels().peaks.len().max(1) as u32;
    cpu.kernels().peaks.iter().map(|peak| (peak.name, cpu.peak(peak, each))).collect()
}

/// Times `[rows, k] * [n, k]^T` with random weights of type `ty`.
pub fn product(
    cpu: &Cpu,
    ty: QuantType,
    rows: usize,
    n: usize,
    k: usize,
    budget: Duration,
) -> Result<Product, ComputeError> {
    let weights = random_weights(ty, n, k, 1);
    let start = Instant::now();
    let matrix = cpu.matrix(&weights)?;
    let pack_seconds = start.elapsed().as_secs_f64();
    let mut x = cpu.rows(rows, k);
    cpu.write(&Random::new(2).values(rows * k), &mut x);
    let mut operand = cpu.operand(rows, k);
    cpu.quantize(&x, &mut operand);
    let mut out = cpu.rows(rows, n);
    // Half the time before the limit is measured and half after, so that both see the same machine.
    let before = best(budget / 3, || cpu.linear(&operand, &matrix, None, &mut out));
    let limit = cpu.limit(&matrix, budget / 3);
    let after = best(budget / 3, || cpu.linear(&operand, &matrix, None, &mut out));
    Ok(Product {
        gmacs: (rows * n * k) as f64 / before.min(after) * 1e-9,
        limit,
        pack_seconds,
        file_bytes: weights.bytes.len(),
        packed_bytes: matrix.bytes(),
    })
}

impl Cpu {
    /// The limit of one loop on all threads.
    fn peak(&self, peak: &crate::cpu::kernels::Peak, budget: Duration) -> f64 {
        let total = std::sync::atomic::AtomicUsize::new(0);
        let mut macs = 0;
        let seconds = best(budget, || {
            total.store(0, std::sync::atomic::Ordering::Relaxed);
            // Twice as many chunks as threads: a late thread finds one.
            self.run(2 * self.threads(), usize::MAX / 8, &|_, _| {
                total.fetch_add((peak.run)(), std::sync::atomic::Ordering::Relaxed);
            });
            macs = total.load(std::sync::atomic::Ordering::Relaxed);
        });
        macs as f64 / seconds * 1e-9
    }

    /// The limit of the instructions that multiply by `matrix`.
    fn limit(&self, matrix: &crate::cpu::Matrix, budget: Duration) -> Option<f64> {
        let (index, times) = (self.kernels().limit)(matrix.form());
        let peak = self.kernels().peaks.get(index)?;
        Some(self.peak(peak, budget) / times as f64)
    }
}
