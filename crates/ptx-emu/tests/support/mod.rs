//! What the tests share: random numbers, memory full of them, the kernels with their references.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::Instant;

use half::f16;
use ptx_emu::{Fault, Launch, Memory, Module, Param, Statistics};

/// Numbers that look random (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// From -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn units(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.unit()).collect()
    }

    pub(crate) fn codes(&mut self, count: usize) -> Vec<i8> {
        (0..count).map(|_| self.bits() as i8).collect()
    }
}

/// A number that has bytes.
pub(crate) trait Bytes: Copy {
    const SIZE: usize;
    fn put(self) -> Vec<u8>;
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! bytes {
    ($($number:ty)*) => {$(
        impl Bytes for $number {
            const SIZE: usize = size_of::<$number>();
            fn put(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn take(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}
bytes!(u8 i8 u16 u32 u64 f32 f16);

pub(crate) fn upload<T: Bytes>(memory: &mut Memory, values: &[T]) -> u64 {
    let address = memory.alloc(values.len() * T::SIZE).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.put()).collect();
    memory.write(address, &bytes).unwrap();
    address
}

pub(crate) fn download<T: Bytes>(memory: &Memory, address: u64, count: usize) -> Vec<T> {
    let mut bytes = vec![0; count * T::SIZE];
    memory.read(address, &mut bytes).unwrap();
    bytes.chunks_exact(T::SIZE).map(T::take).collect()
}

pub(crate) fn kernel_text(name: &str) -> String {
    let path = format!("{}/tests/kernels/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn module(name: &str) -> Module {
    Module::parse(&format!("{name}.ptx"), &kernel_text(name)).unwrap()
}

/// What a kernel gave, beside what it should give.
pub(crate) struct Outcome {
    pub(crate) found: Vec<f32>,
    pub(crate) expected: Vec<f32>,
    pub(crate) statistics: Statistics,
    /// Of the processor's time, in the launch alone.
    pub(crate) seconds: f64,
}

/// Time that this thread has had of a processor, where the system tells; else time that has passed.
fn processor_seconds(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn timed(
    module: &Module,
    kernel: &str,
    launch: &Launch,
    params: &[Param],
    memory: &mut Memory,
) -> Result<(Statistics, f64), Fault> {
    let start = Instant::now();
    let before = processor_seconds(start);
    let statistics = module.launch(kernel, launch, params, memory)?;
    Ok((statistics, processor_seconds(start) - before))
}

impl Outcome {
    /// Largest error, relative to the largest value.
    pub(crate) fn error(&self) -> f32 {
        let scale = self.expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let error =
            |(found, expected): (&f32, &f32)| if found.is_nan() { f32::INFINITY } else { (found - expected).abs() };
        self.found.iter().zip(&self.expected).map(error).fold(0f32, f32::max) / scale
    }
}

/// `gemm_q8` on random matrices.
pub(crate) fn gemm_q8(module: &Module, [rows, tokens, inner]: [usize; 3], seed: u64) -> Result<Outcome, Fault> {
    let mut random = Random(seed);
    let (a, b) = (random.codes(rows * inner), random.codes(tokens * inner));
    let (a_scales, b_scales) = (random.units(rows * inner / 32), random.units(tokens * inner / 32));
    let mut memory = Memory::new();
    let (a_at, b_at) = (upload(&mut memory, &a), upload(&mut memory, &b));
    let (a_scales_at, b_scales_at) = (upload(&mut memory, &a_scales), upload(&mut memory, &b_scales));
    let out = memory.alloc(rows * tokens * 4).unwrap();
    let grid = [rows.div_ceil(32) as u32, tokens.div_ceil(32) as u32, 1];
    let launch = Launch { grid, block: [128, 1, 1], dynamic_shared: 0, seed };
    let size = |size: usize| Param::U32(size as u32);
    let params = [
        Param::U64(a_at),
        Param::U64(a_scales_at),
        Param::U64(b_at),
        Param::U64(b_scales_at),
        Param::U64(out),
        size(rows),
        size(tokens),
        size(inner),
    ];
    let (statistics, seconds) = timed(module, "gemm_q8", &launch, &params, &mut memory)?;
    let mut expected = Vec::new();
    for token in 0..tokens {
        for row in 0..rows {
            let mut sum = 0f64;
            for block in 0..inner / 32 {
                let part = |matrix: &[i8], line: usize| -> Vec<i32> {
                    matrix[line * inner + block * 32..][..32].iter().map(|&code| i32::from(code)).collect()
                };
                let dot: i32 = part(&a, row).iter().zip(part(&b, token)).map(|(x, y)| x * y).sum();
                let scale =
                    f64::from(a_scales[row * inner / 32 + block]) * f64::from(b_scales[token * inner / 32 + block]);
                sum += f64::from(dot) * scale;
            }
            expected.push(sum as f32);
        }
    }
    Ok(Outcome { found: download(&memory, out, rows * tokens), expected, statistics, seconds })
}

/// `gemm_q4` on random matrices.
pub(crate) fn gemm_q4(module: &Module, [rows, tokens, inner]: [usize; 3], seed: u64) -> Result<Outcome, Fault> {
    let mut random = Random(seed);
    let nibbles: Vec<u8> = (0..rows * inner / 2).map(|_| random.bits() as u8).collect();
    let (b, scales) = (random.codes(tokens * inner), random.units(rows * inner / 32));
    let mut memory = Memory::new();
    let (a_at, b_at, scales_at) =
        (upload(&mut memory, &nibbles), upload(&mut memory, &b), upload(&mut memory, &scales));
    let out = memory.alloc(rows * tokens * 4).unwrap();
    let grid = [rows.div_ceil(32) as u32, tokens.div_ceil(16) as u32, 1];
    let launch = Launch { grid, block: [128, 1, 1], dynamic_shared: 0, seed };
    let size = |size: usize| Param::U32(size as u32);
    let params = [
        Param::U64(a_at),
        Param::U64(scales_at),
        Param::U64(b_at),
        Param::U64(out),
        size(rows),
        size(tokens),
        size(inner),
    ];
    let (statistics, seconds) = timed(module, "gemm_q4", &launch, &params, &mut memory)?;
    let mut expected = Vec::new();
    for token in 0..tokens {
        for row in 0..rows {
            let mut sum = 0f64;
            for block in 0..inner / 32 {
                let bytes = &nibbles[(row * inner / 32 + block) * 16..][..16];
                let inputs = &b[token * inner + block * 32..][..32];
                let dot: i32 = (0..32)
                    .map(|i| {
                        let nibble = if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 };
                        (i32::from(nibble) - 8) * i32::from(inputs[i])
                    })
                    .sum();
                sum += f64::from(dot) * f64::from(scales[row * inner / 32 + block]);
            }
            expected.push(sum as f32);
        }
    }
    Ok(Outcome { found: download(&memory, out, rows * tokens), expected, statistics, seconds })
}

/// `attention` on random queries, keys and values.
pub(crate) fn attention(module: &Module, heads: usize, length: usize, seed: u64) -> Result<Outcome, Fault> {
    const DIM: usize = 64;
    let mut random = Random(seed);
    let mut tensor = || -> Vec<f16> { (0..heads * length * DIM).map(|_| f16::from_f32(random.unit() * 2.0)).collect() };
    let (q, k, v) = (tensor(), tensor(), tensor());
    let mut memory = Memory::new();
    let (q_at, k_at, v_at) = (upload(&mut memory, &q), upload(&mut memory, &k), upload(&mut memory, &v));
    let out = memory.alloc(heads * length * DIM * 4).unwrap();
    let grid = [length.div_ceil(32) as u32, heads as u32, 1];
    let launch = Launch { grid, block: [64, 1, 1], dynamic_shared: 0, seed };
    let params = [
        Param::U64(q_at),
        Param::U64(k_at),
        Param::U64(v_at),
        Param::U64(out),
        Param::U32(length as u32),
        Param::F32(0.125),
    ];
    let (statistics, seconds) = timed(module, "attention", &launch, &params, &mut memory)?;
    let mut expected = Vec::new();
    for head in 0..heads {
        let row = |tensor: &[f16], at: usize| -> Vec<f64> {
            tensor[(head * length + at) * DIM..][..DIM].iter().map(|value| value.to_f64()).collect()
        };
        for query in 0..length {
            let weights: Vec<f64> = (0..length)
                .map(|key| {
                    let dot: f64 = row(&q, query).iter().zip(row(&k, key)).map(|(x, y)| x * y).sum();
                    (dot * 0.125).exp()
                })
                .collect();
            let total: f64 = weights.iter().sum();
            let mut sums = [0f64; DIM];
            for (key, weight) in weights.iter().enumerate() {
                for (sum, value) in sums.iter_mut().zip(row(&v, key)) {
                    *sum += weight / total * value;
                }
            }
            expected.extend(sums.map(|sum| sum as f32));
        }
    }
    Ok(Outcome { found: download(&memory, out, heads * length * DIM), expected, statistics, seconds })
}

/// `rms_norm_q8` on random rows: codes times scales.
pub(crate) fn rms_norm_q8(module: &Module, [rows, width]: [usize; 2], seed: u64) -> Result<Outcome, Fault> {
    let mut random = Random(seed);
    let (x, weight) = (random.units(rows * width), random.units(width));
    let mut memory = Memory::new();
    let (x_at, weight_at) = (upload(&mut memory, &x), upload(&mut memory, &weight));
    let (codes, scales) = (memory.alloc(rows * width).unwrap(), memory.alloc(rows * width / 8).unwrap());
    let launch = Launch { grid: [rows as u32, 1, 1], block: [128, 1, 1], dynamic_shared: 0, seed };
    let params = [
        Param::U64(x_at),
        Param::U64(weight_at),
        Param::U64(codes),
        Param::U64(scales),
        Param::U32(width as u32),
        Param::F32(1e-5),
    ];
    let (statistics, seconds) = timed(module, "rms_norm_q8", &launch, &params, &mut memory)?;
    let (codes, scales): (Vec<i8>, Vec<f32>) =
        (download(&memory, codes, rows * width), download(&memory, scales, rows * width / 32));
    let found = codes.iter().enumerate().map(|(i, &code)| f32::from(code) * scales[i / 32]).collect();
    let mut expected = Vec::new();
    for row in x.chunks_exact(width) {
        let mean = row.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / width as f64;
        let factor = 1.0 / (mean + 1e-5).sqrt();
        expected.extend(row.iter().zip(&weight).map(|(&v, &w)| (f64::from(v) * factor * f64::from(w)) as f32));
    }
    Ok(Outcome { found, expected, statistics, seconds })
}

/// `row_statistics` on random logits: the largest, the sum of exponentials and the place of the largest.
pub(crate) fn row_statistics(module: &Module, [rows, width, blocks]: [usize; 3], seed: u64) -> Result<Outcome, Fault> {
    let mut random = Random(seed);
    let logits: Vec<f32> = random.units(rows * width).iter().map(|value| value * 8.0).collect();
    let mut memory = Memory::new();
    let logits_at = upload(&mut memory, &logits);
    let (parts, out) = (memory.alloc(rows * blocks * 12).unwrap(), memory.alloc(rows * 12).unwrap());
    let finished = upload(&mut memory, &vec![0u32; rows]);
    let launch = Launch { grid: [blocks as u32, rows as u32, 1], block: [64, 1, 1], dynamic_shared: 0, seed };
    let params =
        [Param::U64(logits_at), Param::U64(parts), Param::U64(finished), Param::U64(out), Param::U32(width as u32)];
    let (statistics, seconds) = timed(module, "row_statistics", &launch, &params, &mut memory)?;
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for (row, at) in logits.chunks_exact(width).zip((0..).step_by(12)) {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|&value| f64::from(value - largest).exp()).sum();
        let place = row.iter().position(|&value| value == largest).unwrap();
        expected.extend([largest * std::f32::consts::LOG2_E, sum as f32, place as f32]);
        found.extend(download::<f32>(&memory, out + at, 2));
        found.push(download::<u32>(&memory, out + at + 8, 1)[0] as f32);
    }
    Ok(Outcome { found, expected, statistics, seconds })
}

/// `histogram` of random bytes.
pub(crate) fn histogram(module: &Module, length: usize, seed: u64) -> Result<Outcome, Fault> {
    let mut random = Random(seed);
    let values: Vec<u8> = (0..length).map(|_| (random.bits() & random.bits()) as u8).collect();
    let mut memory = Memory::new();
    let (values_at, counts) = (upload(&mut memory, &values), upload(&mut memory, &[0u32; 256]));
    let launch = Launch { grid: [3, 1, 1], block: [96, 1, 1], dynamic_shared: 0, seed };
    let params = [Param::U64(values_at), Param::U64(counts), Param::U32(length as u32)];
    let (statistics, seconds) = timed(module, "histogram", &launch, &params, &mut memory)?;
    let mut expected = vec![0f32; 256];
    for value in values {
        expected[usize::from(value)] += 1.0;
    }
    let found = download::<u32>(&memory, counts, 256).iter().map(|&count| count as f32).collect();
    Ok(Outcome { found, expected, statistics, seconds })
}

/// `reverse_in_warp` of some numbers.
pub(crate) fn reverse_in_warp(module: &Module, seed: u64) -> Result<Outcome, Fault> {
    let numbers: Vec<u32> = (0..256).collect();
    let mut memory = Memory::new();
    let (from, to) = (upload(&mut memory, &numbers), memory.alloc(1024).unwrap());
    let launch = Launch { grid: [2, 1, 1], block: [128, 1, 1], dynamic_shared: 0, seed };
    let params = [Param::U64(from), Param::U64(to)];
    let (statistics, seconds) = timed(module, "reverse_in_warp", &launch, &params, &mut memory)?;
    let found = download::<u32>(&memory, to, 256).iter().map(|&number| number as f32).collect();
    Ok(Outcome { found, expected: numbers.iter().map(|&number| (number ^ 31) as f32).collect(), statistics, seconds })
}
