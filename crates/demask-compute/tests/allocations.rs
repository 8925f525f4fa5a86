//! After the first step, a step allocates nothing: every operation runs twice, and the second time is counted.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use demask_compute::conformance::{Random, random_weights};
use demask_compute::cpu::CpuOptions;
use demask_compute::quant::QuantType;
use demask_compute::{Backend, Cpu, RopeSpec, RopeStyle, RowStatistics, Visibility};

/// The system's allocator, counting.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_step_allocates_nothing_after_the_first() {
    let (rows, heads, dim, vocab) = (40, 4, 32, 500);
    let width = heads * dim * 2;
    for threads in [1, 2] {
        let cpu = Cpu::new(&CpuOptions { threads: Some(threads), isa: None }).expect("a backend");
        for ty in [QuantType::F32, QuantType::BF16, QuantType::Q4K, QuantType::Q6K, QuantType::Q8_0] {
            let square = cpu.matrix(&random_weights(ty, width, width, 1)).expect("valid weights");
            let head = cpu.matrix(&random_weights(ty, vocab, width, 2)).expect("valid weights");
            let table = cpu.table(&random_weights(ty, vocab, width, 3)).expect("valid weights");
            let norm = vec![1.0; width];
            let tokens: Vec<u32> = Random::new(4).values(rows).iter().map(|v| v.abs() as u32 * 7 % 500).collect();
            let positions: Vec<u32> = (0..rows as u32).collect();
            let kept: Vec<u32> = (0..rows as u32 / 2).collect();
            let spec = RopeSpec { style: RopeStyle::Interleaved, head_dim: 2 * dim, theta: 1e4, positions: rows };
            let rope = cpu.rope_table(&spec);
            let (mut x, mut q, mut gate) = (cpu.rows(rows, width), cpu.rows(rows, width), cpu.rows(rows, width));
            let (mut operand, mut gated) = (cpu.operand(rows, width), cpu.operand(rows, width));
            let mut kv = cpu.kv(1, rows, heads, 2 * dim);
            let (mut statistics, mut logits): (Vec<RowStatistics>, Vec<f32>) = (Vec::new(), Vec::new());
            let mut step = || {
                cpu.embed(&table, &tokens, &mut x);
                cpu.rms_norm(&x, &norm, 1e-5, &mut operand);
                cpu.linear(&operand, &square, Some(&norm), &mut q);
                cpu.rope(&mut q, &positions, &rope);
                cpu.kv_write(&q, &q, 0, &positions, &mut kv);
                cpu.attention(&q, &kv, 0, Visibility::Bidirectional { len: rows }, &mut operand);
                cpu.linear_add(&operand, &square, &mut x);
                cpu.linear(&operand, &square, None, &mut gate);
                cpu.silu_mul(&gate, &q, &mut operand);
                cpu.rms_norm(&x, &norm, 1e-5, &mut operand);
                cpu.gated_linear(&operand, [&square, &square], [&mut gate, &mut q], &mut gated);
                cpu.select(&mut x, &kept);
                cpu.rms_norm(&x, &norm, 1e-5, &mut operand);
                cpu.row_statistics(&operand, &head, &[3], &mut statistics);
                cpu.logits(&operand, &head, &mut logits);
            };
            step();
            let mut count = || {
                let before = COUNT.load(Ordering::Relaxed);
                // Which thread takes which chunk differs from step to step.
                (0..10).for_each(|_| step());
                COUNT.load(Ordering::Relaxed) - before
            };
            // Threads allocate when they start, the test's own too, which may be late: not in every round.
            let counts = [(); 5].map(|()| count());
            assert!(counts.contains(&0), "{ty:?} with {threads} threads: {counts:?} allocations in ten steps");
        }
    }
}
