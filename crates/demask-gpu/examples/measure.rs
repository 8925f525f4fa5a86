//! Measures a card: conformance of the backend on it, what it can do at most, and forward passes of the 8B and 7B shapes
//! with their parts. `bench/gpu.sh` runs it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::time::Instant;

use demask_compute::conformance::{Random, Suite, cases_of, random_weights};
use demask_compute::{Backend, QuantType, RopeSpec, RopeStyle, Visibility};
use demask_gpu::{Args, CudaDevice, Gpu, GpuDevice, Kernel, Launch, MODULES};

const ROWS: [usize; 4] = [32, 148, 256, 512];
const REPEATS: usize = 10;

/// A model's shape.
struct Shape {
    name: &'static str,
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    ffn: usize,
    vocab: usize,
    rope: RopeStyle,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "llada-8b Q4_K_M",
        layers: 32,
        width: 4096,
        heads: 32,
        kv_heads: 32,
        ffn: 12288,
        vocab: 126_464,
        rope: RopeStyle::Interleaved,
    },
    Shape {
        name: "dream-7b Q4_K_M",
        layers: 28,
        width: 3584,
        heads: 28,
        kv_heads: 4,
        ffn: 18944,
        vocab: 152_064,
        rope: RopeStyle::HalfSplit,
    },
];
const HEAD_DIM: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = CudaDevice::open(0)?;
    println!("card: {}", device.describe());
    let (int8, read) = peaks(&device)?;
    println!("at most: {int8:.0} TOP/s of int8, {read:.0} GB/s read");

    let gpu = Gpu::new(Box::new(device));
    let suite = Suite { rows: &[1, 3, 7, 8, 33, 148], half_attention: true };
    let cases = cases_of::<Gpu>(suite);
    let mut failures = 0;
    for case in &cases {
        let result = (case.run)(&gpu).and_then(|()| gpu.status().map_err(|error| error.to_string()));
        if let Err(error) = result {
            failures += 1;
            eprintln!("FAILED {}: {error}", case.name);
        }
    }
    println!("conformance: {} of {} cases pass", cases.len() - failures, cases.len());

    println!("shape            rows  forward ms   gemm  attention   head   rest   TOP/s (of peak)   GB/s (of peak)");
    for shape in &SHAPES {
        measure(&gpu, shape, int8, read)?;
    }
    let (_, peak) = gpu.usage();
    println!("peak memory of two layers and the head: {:.2} GB", peak as f64 / 1e9);
    if failures > 0 { Err("conformance failed".into()) } else { Ok(()) }
}

/// int8 TOP/s and GB/s of reads.
fn peaks(device: &CudaDevice) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let module = MODULES.iter().position(|module| module.name == "peaks").ok_or("no module of peaks")?;
    let (blocks, steps, bytes) = (2048u32, 4096u32, 1usize << 30);
    let (data, out) = (device.alloc(bytes)?, device.alloc(blocks as usize * 256 * 4)?);
    device.zero(data, bytes)?;
    let launch = |function, args| Launch { kernel: Kernel { module, function }, grid: [blocks, 1], threads: 256, args };
    let mma = launch("peak_mma", Args::default().with(out).with(steps));
    let read = Args::default().with(data).with(out).with((bytes / 16) as u32).with(blocks);
    let read = launch("peak_read", read);
    let seconds = |launch: Launch| -> Result<f64, Box<dyn std::error::Error>> {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            device.download(out, &mut [0; 4])?;
            let start = Instant::now();
            device.run(std::slice::from_ref(&launch))?;
            device.download(out, &mut [0; 4])?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    let operations = f64::from(blocks) * 8.0 * f64::from(steps) * 4.0 * 2.0 * (16 * 8 * 32) as f64;
    let found = (operations / seconds(mma)? / 1e12, bytes as f64 / seconds(read)? / 1e9);
    device.free(data);
    device.free(out);
    Ok(found)
}

/// One layer's matrices; types as in a Q4_K_M file.
struct Layer<B: Backend> {
    q: B::Matrix,
    k: B::Matrix,
    v: B::Matrix,
    o: B::Matrix,
    gate: B::Matrix,
    up: B::Matrix,
    down: B::Matrix,
}

fn measure(gpu: &Gpu, s: &Shape, int8: f64, read: f64) -> Result<(), Box<dyn std::error::Error>> {
    let (q_width, kv_width) = (s.heads * HEAD_DIM, s.kv_heads * HEAD_DIM);
    let mut bytes = 0;
    let mut matrix = |ty, rows, cols, seed| -> Result<_, Box<dyn std::error::Error>> {
        bytes += demask_gpu::matrix_bytes(ty, rows, cols);
        Ok(gpu.matrix(&random_weights(ty, rows, cols, seed))?)
    };
    let (q4, q6) = (QuantType::Q4K, QuantType::Q6K);
    // Two layers that take turns: more than the caches hold.
    let mut layers = Vec::new();
    for n in 0..2 {
        layers.push(Layer::<Gpu> {
            q: matrix(q4, q_width, s.width, n)?,
            k: matrix(q4, kv_width, s.width, n)?,
            v: matrix(q6, kv_width, s.width, n)?,
            o: matrix(q4, s.width, q_width, n)?,
            gate: matrix(q4, s.ffn, s.width, n)?,
            up: matrix(q4, s.ffn, s.width, n)?,
            down: matrix(if n == 0 { q6 } else { q4 }, s.width, s.ffn, n)?,
        });
    }
    let layer_bytes = bytes / 2;
    let head = gpu.matrix(&random_weights(q6, s.vocab, s.width, 9))?;
    let table = gpu.table(&random_weights(q4, 1024, s.width, 10))?;
    let norm = gpu.vector(&vec![1.0; s.width]);
    let total_bytes = layer_bytes * s.layers + demask_gpu::matrix_bytes(q6, s.vocab, s.width);

    for rows in ROWS {
        let spec = RopeSpec { style: s.rope, head_dim: HEAD_DIM, theta: 5e5, positions: rows };
        let rope = gpu.rope_table(&spec);
        let mut kv = gpu.kv(s.layers, rows, s.kv_heads, HEAD_DIM);
        let (mut x, mut q) = (gpu.rows(rows, s.width), gpu.rows(rows, q_width));
        let (mut k, mut v) = (gpu.rows(rows, kv_width), gpu.rows(rows, kv_width));
        let (mut gate, mut up) = (gpu.rows(rows, s.ffn), gpu.rows(rows, s.ffn));
        let (mut normed, mut attended) = (gpu.operand(rows, s.width), gpu.operand(rows, q_width));
        let mut gated = gpu.operand(rows, s.ffn);
        let positions: Vec<u32> = (0..rows as u32).collect();
        let visible = Visibility::Bidirectional { len: rows };
        let mut statistics = Vec::new();
        let mut probe = gpu.rows(1, 4);
        gpu.write(&[0.0; 4], &mut probe);
        gpu.write(&Random::new(1).values(rows * s.width), &mut x);
        gpu.write(&Random::new(2).values(rows * q_width), &mut q);

        // Median milliseconds of a whole forward, or of a part of it.
        let mut time = |gemm: bool, attention: bool, scored: bool, rest: bool| {
            let mut times: Vec<f64> = (0..REPEATS + 3)
                .map(|_| {
                    gpu.read(&probe);
                    let start = Instant::now();
                    if rest {
                        gpu.embed(&table, &positions, &mut x);
                    }
                    for n in 0..s.layers {
                        let layer = &layers[n % 2];
                        if rest {
                            gpu.rms_norm(&x, &norm, 1e-5, &mut normed);
                        }
                        if gemm {
                            gpu.linear(&normed, &layer.k, None, &mut k);
                            gpu.linear(&normed, &layer.v, None, &mut v);
                            gpu.linear(&normed, &layer.q, None, &mut q);
                        }
                        if rest {
                            gpu.rope(&mut k, &positions, &rope);
                            gpu.kv_write(&k, &v, n, &positions, &mut kv);
                            gpu.rope(&mut q, &positions, &rope);
                        }
                        if attention {
                            gpu.attention(&q, &kv, n, visible, &mut attended);
                        }
                        if gemm {
                            gpu.linear_add(&attended, &layer.o, &mut x);
                        }
                        if rest {
                            gpu.rms_norm(&x, &norm, 1e-5, &mut normed);
                        }
                        if gemm {
                            gpu.linear(&normed, &layer.gate, None, &mut gate);
                            gpu.linear(&normed, &layer.up, None, &mut up);
                        }
                        if rest {
                            gpu.silu_mul(&gate, &up, &mut gated);
                        }
                        if gemm {
                            gpu.linear_add(&gated, &layer.down, &mut x);
                        }
                    }
                    if rest {
                        gpu.rms_norm(&x, &norm, 1e-5, &mut normed);
                    }
                    if scored {
                        gpu.row_statistics(&normed, &head, &[0], &mut statistics);
                    }
                    gpu.read(&probe);
                    start.elapsed().as_secs_f64() * 1e3
                })
                .skip(3) // loading kernels, the first run, making the graph
                .collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let whole = time(true, true, true, true);
        let (gemm, attention) = (time(true, false, false, false), time(false, true, false, false));
        let scored = time(false, false, true, false);
        gpu.status()?;
        let weights =
            (2 * s.width * q_width + 2 * s.width * kv_width + 3 * s.width * s.ffn) * s.layers + s.vocab * s.width;
        let tops = 2.0 * weights as f64 * rows as f64 / (whole * 1e-3) / 1e12;
        let gbps = total_bytes as f64 / (whole * 1e-3) / 1e9;
        println!(
            "{:<16} {rows:>4} {whole:>11.2} {gemm:>6.2} {attention:>10.2} {scored:>6.2} {:>6.2} {tops:>7.0} ({:>3.0} %) {gbps:>9.0} ({:>3.0} %)",
            s.name,
            (whole - gemm - attention - scored).max(0.0),
            100.0 * tops / int8,
            100.0 * gbps / read,
        );
    }
    Ok(())
}
