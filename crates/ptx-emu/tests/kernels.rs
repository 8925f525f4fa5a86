//! Kernels that clang has compiled give what plain code on the CPU gives, whatever the order of warps and blocks.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use ptx_emu::{Launch, Memory, Param};
use support::{
    Random, attention, download, gemm_q4, gemm_q8, histogram, kernel_text, module, reverse_in_warp, rms_norm_q8,
    row_statistics, upload,
};

#[test]
fn gemm_of_int8_with_a_pipeline() {
    let module = module("gemm_q8");
    for (shape, seed) in [([32, 32, 64], 1), ([64, 32, 128], 2), ([33, 1, 192], 3), ([70, 37, 256], 4), ([1, 3, 64], 5)]
    {
        let outcome = gemm_q8(&module, shape, seed).unwrap();
        assert!(outcome.error() < 1e-5, "{shape:?}: error {}", outcome.error());
        assert!(outcome.statistics.by_opcode.keys().any(|opcode| opcode.starts_with("mma.sync")));
    }
}

#[test]
fn gemm_of_nibbles_with_named_barriers() {
    let module = module("gemm_q4");
    for (shape, seed) in [([32, 16, 32], 1), ([48, 8, 96], 2), ([17, 5, 64], 3), ([70, 37, 128], 4)] {
        let outcome = gemm_q4(&module, shape, seed).unwrap();
        assert!(outcome.error() < 1e-5, "{shape:?}: error {}", outcome.error());
    }
}

#[test]
fn attention_with_matrix_loads() {
    let module = module("attention");
    for (heads, length, seed) in [(1, 32, 1), (2, 64, 2), (1, 7, 3), (2, 45, 4), (1, 1, 5)] {
        let outcome = attention(&module, heads, length, seed).unwrap();
        assert!(outcome.error() < 2e-3, "{heads} heads, length {length}: error {}", outcome.error());
    }
}

#[test]
fn norm_with_quantisation() {
    let module = module("rows");
    for (shape, seed) in [([3, 64], 1), ([2, 1024], 2), ([1, 32], 3)] {
        let outcome = rms_norm_q8(&module, shape, seed).unwrap();
        assert!(outcome.error() < 0.5 / 127.0 + 1e-5, "{shape:?}: error {}", outcome.error());
    }
}

#[test]
fn statistics_by_several_blocks() {
    let module = module("rows");
    for seed in 0..8 {
        let outcome = row_statistics(&module, [3, 600, 4], seed).unwrap();
        assert!(outcome.error() < 1e-6, "error {}", outcome.error());
    }
}

#[test]
fn atomics_on_shared_and_global_memory() {
    let module = module("rows");
    for seed in 0..4 {
        assert_eq!(histogram(&module, 1000, seed).unwrap().error(), 0.0);
    }
}

#[test]
fn exchange_within_a_warp() {
    assert_eq!(reverse_in_warp(&module("rows"), 1).unwrap().error(), 0.0);
}

/// Calls, local arrays, branches that go apart, structures as parameters, variables of the module.
#[test]
fn odds_and_ends() {
    let module = module("odds");
    let mut random = Random(7);
    let numbers: Vec<u32> = (0..200).map(|_| random.bits() as u32 >> 7).collect();
    let (kind, factor, divisor) = (9u8, 1.5f32, 12345u64);
    let horner = |degree: u32| (0..degree).fold(0f32, |sum, i| sum.mul_add(factor, (i + 1) as f32));
    let collatz = |mut n: u64| {
        let mut steps = 0;
        while n > 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        steps
    };
    let table = [3u32, 1, 4, 1, 5, 9, 2];
    let mut memory = Memory::new();
    let (from, to) = (upload(&mut memory, &numbers), memory.alloc(800).unwrap());
    for launch_number in 1..3 {
        let mut job = vec![kind, 0, 0, 0];
        job.extend(factor.to_le_bytes());
        job.extend(divisor.to_le_bytes());
        let launch = Launch { grid: [4, 1, 1], block: [64, 1, 1], dynamic_shared: 0, seed: 3 };
        let params = [Param::U64(from), Param::U64(to), Param::U32(200), Param::Bytes(job)];
        module.launch("odds", &launch, &params, &mut memory).unwrap();
        let found: Vec<u32> = download(&memory, to, 200);
        for (i, (&found, &value)) in (0u32..).zip(found.iter().zip(&numbers)) {
            let mut history = [0u32; 8];
            for j in 0..8u32 {
                history[((value + j * 3) & 7) as usize] = value.wrapping_mul(j + 1);
            }
            let mut result = history[(i & 7) as usize];
            let wide = u64::from(value) << 20 | u64::from(i);
            match value % 6 {
                0 => result = result.wrapping_add(table[(value % 7) as usize]),
                1 => result ^= (horner(value % 5) * 16.0) as u32,
                2 => result = result.wrapping_add(collatz(u64::from(value & 31))),
                3 => result = result.wrapping_add((wide / divisor) as u32),
                4 => result = result.wrapping_add((wide % divisor) as u32),
                _ => result = result.count_ones() + (value | 1).leading_zeros() + u32::from(kind),
            }
            if i == 0 {
                result = result.wrapping_add(5 + launch_number);
            }
            assert_eq!(found, result, "element {i}, value {value}");
        }
    }
}

/// A fault in a text with line information names the line of the source.
#[test]
fn faults_name_the_source() {
    let module = module("odds");
    let mut memory = Memory::new();
    let (from, to) = (upload(&mut memory, &[1u32; 64]), memory.alloc(64 * 4).unwrap());
    let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], dynamic_shared: 0, seed: 0 };
    let params = [Param::U64(from), Param::U64(to), Param::U32(65), Param::Bytes(vec![1; 16])];
    let fault = module.launch("odds", &launch, &params, &mut memory).unwrap_err();
    let source = fault.report().source.clone().unwrap_or_default();
    let line = kernel_line("u32 value = in[i]");
    assert!(source.ends_with(&format!("odds.cu:{line}")), "{fault}");
}

fn kernel_line(text: &str) -> usize {
    let path = format!("{}/tests/kernels/odds.cu", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(path).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() + 1
}

/// The order of warps and blocks changes nothing.
#[test]
fn seeds_change_no_result() {
    let module = module("gemm_q8");
    let first = gemm_q8(&module, [40, 33, 128], 9).unwrap();
    assert_eq!(first.found, gemm_q8(&module, [40, 33, 128], 9).unwrap().found);
    assert!(kernel_text("gemm_q8").contains("cp.async"));
}
