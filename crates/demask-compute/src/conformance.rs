//! One list of cases that every backend must pass, and the random data they run on.
//!
//! [`cases`] covers every operation of [`Backend`], every weight type, and row counts on both sides of every tile
//! height. Each case computes its own truth in f64 from the definitions in `backend.rs`, shares no code with a
//! backend, and allows the error that the operation's number formats imply and no more: 8-bit activations with one
//! scale per 32 values for quantised weights, f32 sums elsewhere.

mod sampling;

use crate::backend::{Backend, RopeSpec, RopeStyle, Visibility};
use crate::quant::{QUANT_TYPES, QuantType};
use crate::weights::{SharedBytes, Weights};

/// Row counts that cases run with: tails of every tile height, and more than one tile.
pub const ROW_COUNTS: [usize; 9] = [1, 3, 7, 8, 16, 17, 33, 148, 255];

/// What the cases of a backend go by.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Row counts.
    pub rows: &'static [usize],
    /// Whether attention rounds queries, keys, values and weights to f16.
    pub half_attention: bool,
}

/// All row counts, attention in f32.
pub const FULL: Suite = Suite { rows: &ROW_COUNTS, half_attention: false };

/// One case.
pub struct Case<B> {
    /// What is tested, for messages.
    pub name: String,
    /// Runs it; the error says what was expected and found.
    pub run: Run<B>,
}

/// Runs a case on a backend.
type Run<B> = Box<dyn Fn(&B) -> Result<(), String>>;

/// Every case.
pub fn cases<B: Backend + 'static>() -> Vec<Case<B>> {
    cases_of(FULL)
}

/// Every case of a suite.
pub fn cases_of<B: Backend + 'static>(suite: Suite) -> Vec<Case<B>> {
    let mut cases: Vec<Case<B>> = Vec::new();
    let mut add = |name: String, run: Run<B>| {
        cases.push(Case { name, run });
    };
    for quant in QUANT_TYPES {
        let ty = quant.ty;
        for &rows in suite.rows {
            add(format!("linear {} x {rows} rows", quant.name), Box::new(move |b| linear(b, ty, rows)));
        }
        add(format!("embed {}", quant.name), Box::new(move |b| embed(b, ty)));
        add(format!("logits and statistics {}", quant.name), Box::new(move |b| head(b, ty)));
    }
    add("linear, K of several panels".into(), Box::new(deep));
    for (gate, up) in [
        (QuantType::Q4K, QuantType::Q4K),
        (QuantType::Q6K, QuantType::Q6K),
        (QuantType::F16, QuantType::F16),
        (QuantType::Q8_0, QuantType::Q4K),
    ] {
        add(format!("gated linear {gate:?}, {up:?}"), Box::new(move |b| gated_linear(b, [gate, up])));
    }
    for &rows in suite.rows {
        for width in [64, 96] {
            add(format!("rms_norm [{rows}, {width}]"), Box::new(move |b| rms_norm(b, rows, width)));
            add(format!("silu_mul [{rows}, {width}]"), Box::new(move |b| silu_mul(b, rows, width)));
        }
        for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
            add(format!("rope {style:?} x {rows} rows"), Box::new(move |b| rope(b, style, rows)));
        }
    }
    for (rows, len, heads, kv_heads, dim) in [
        (1, 1, 1, 1, 32),
        (3, 63, 2, 2, 64),
        (7, 64, 4, 2, 32),
        (8, 65, 4, 1, 48),
        (17, 148, 6, 2, 80),
        (33, 33, 2, 1, 128),
        (148, 148, 2, 2, 16),
        (255, 300, 2, 1, 64),
    ] {
        add(
            format!("attention {rows} rows, {len} positions, {heads}/{kv_heads} heads of {dim}"),
            Box::new(move |b| {
                let attention = |b: &B, visible| attention(b, suite, rows, visible, heads, kv_heads, dim);
                attention(b, Visibility::Bidirectional { len })?;
                // A shadow row that sees nothing at all doesn't exist.
                let shadow = Visibility::Shadow { len, first: len / 3 };
                if len > 1 { attention(b, shadow) } else { Ok(()) }
            }),
        );
    }
    add("select".into(), Box::new(select));
    add("statistics: ties, exclusions, what isn't finite".into(), Box::new(statistics));
    // Of backends that draw.
    add("sampling: rules, temperatures, shared rows".into(), Box::new(sampling::rules));
    add("sampling: close calls".into(), Box::new(sampling::close_calls));
    add("sampling: what isn't finite".into(), Box::new(sampling::not_finite));
    add("quantize: zero rows, outliers, tiny values".into(), Box::new(quantize));
    cases
}

/// Random numbers, the same on every machine (Steele, Lea and Flood 2014, SplitMix64).
pub struct Random(u64);

impl Random {
    /// A generator.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[-1, 1)`.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `len` values with a bell-like distribution of variance about 1, and an outlier now and then.
    pub fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len)
            .map(|_| {
                let bell = 1.7 * (self.signed() + self.signed() + self.signed()) / 3f32.sqrt();
                if self.bits().is_multiple_of(97) { bell * 12.0 } else { bell }
            })
            .collect()
    }
}

/// Bytes in a quant block at which the type keeps f16 scales.
fn half_fields(ty: QuantType) -> &'static [usize] {
    match ty {
        QuantType::F32 | QuantType::F16 | QuantType::BF16 => &[],
        QuantType::Q8_0 | QuantType::Q4_0 | QuantType::Q5_0 => &[0],
        QuantType::Iq4Nl | QuantType::Iq4Xs => &[0],
        QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q4K | QuantType::Q5K => &[0, 2],
        QuantType::Q2K => &[80, 82],
        QuantType::Q3K => &[108],
        QuantType::Q6K => &[208],
    }
}

/// Random valid weights of a type: every code and integer scale occurs, f16 scales of both signs from subnormal up.
pub fn random_weights(ty: QuantType, rows: usize, cols: usize, seed: u64) -> Weights {
    let mut random = Random::new(seed);
    let quant = ty.row();
    let blocks = rows * cols / quant.block_len;
    let mut bytes = Vec::with_capacity(blocks * quant.block_bytes);
    for _ in 0..blocks {
        let start = bytes.len();
        match ty {
            QuantType::F32 => bytes.extend(random.signed().to_le_bytes()),
            QuantType::F16 => bytes.extend(half::f16::from_f32(random.signed()).to_le_bytes()),
            QuantType::BF16 => bytes.extend(half::bf16::from_f32(random.signed()).to_le_bytes()),
            _ => {
                for _ in 0..quant.block_bytes.div_ceil(8) {
                    bytes.extend(random.bits().to_le_bytes());
                }
                bytes.truncate(start + quant.block_bytes);
                for &at in half_fields(ty) {
                    let scale = random.signed() * 2f32.powi((random.bits() % 12) as i32 - 16);
                    bytes[start + at..start + at + 2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
                }
            }
        }
    }
    Weights { name: format!("random {}", quant.name), ty, rows, cols, bytes: SharedBytes::new(bytes) }
}

/// F32 weights from values.
fn f32_weights(values: &[f32], cols: usize) -> Weights {
    Weights {
        name: "test".to_owned(),
        ty: QuantType::F32,
        rows: values.len() / cols,
        cols,
        bytes: SharedBytes::new(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()),
    }
}

/// The greatest relative error of rounding to f16.
const HALF_STEP: f64 = 1.0 / 2048.0;

fn decoded(weights: &Weights) -> Vec<f32> {
    let mut out = vec![0.0; weights.rows * weights.cols];
    weights.ty.decode(&weights.bytes, &mut out);
    out
}

/// `x * w^T` in f64, and how far a backend may be from it.
fn product(x: &[f32], w: &[f32], cols: usize, quantised: bool) -> Vec<(f64, f64)> {
    let mut out = Vec::with_capacity(x.len() / cols * (w.len() / cols));
    for x in x.chunks_exact(cols) {
        // What rounding to 8 bits with one scale per 32 can change in a value.
        let steps: Vec<f64> = x
            .chunks(32)
            .map(|group| {
                let greatest = group.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                f64::from(greatest) / 254.0
            })
            .collect();
        for w in w.chunks_exact(cols) {
            let (mut sum, mut magnitude, mut rounding) = (0.0, 0.0, 0.0);
            for (k, (&x, &w)) in x.iter().zip(w).enumerate() {
                let (x, w) = (f64::from(x), f64::from(w));
                sum += x * w;
                magnitude += (x * w).abs();
                rounding += w.abs() * steps[k / 32];
            }
            let rounding = if quantised { rounding } else { 0.0 };
            // Minima and scales cancel in quantised weights, so sums are larger on the way than at the end.
            out.push((sum, rounding * 1.001 + magnitude * 4e-6 + 1e-30));
        }
    }
    out
}

fn compare(what: &str, found: &[f32], wanted: &[(f64, f64)]) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} values, wanted {}", found.len(), wanted.len()));
    }
    for (i, (&found, &(wanted, bound))) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(found) - wanted).abs();
        if error.is_nan() || error > bound {
            return Err(format!("{what}, value {i}: {found}, wanted {wanted} within {bound:.3e}"));
        }
    }
    Ok(())
}

/// The relative root mean square error must stay below `limit`.
fn compare_rms(found: &[f32], wanted: &[(f64, f64)], limit: f64) -> Result<(), String> {
    let error: f64 = found.iter().zip(wanted).map(|(&f, &(w, _))| (f64::from(f) - w).powi(2)).sum();
    let size: f64 = wanted.iter().map(|&(w, _)| w * w).sum();
    let relative = (error / size.max(1e-300)).sqrt();
    if relative > limit {
        return Err(format!("relative RMS error {relative:.3e}, limit {limit:.1e}"));
    }
    Ok(())
}

fn operand<B: Backend>(backend: &B, x: &[f32], width: usize) -> B::Operand {
    let mut rows = backend.rows(x.len() / width, width);
    backend.write(x, &mut rows);
    let mut operand = backend.operand(x.len() / width, width);
    backend.quantize(&rows, &mut operand);
    operand
}

/// Reads an operand's f32 values through an F32 identity matrix.
fn read_operand<B: Backend>(backend: &B, x: &B::Operand, rows: usize, width: usize) -> Result<Vec<f32>, String> {
    let mut identity = vec![0.0; width * width];
    identity.iter_mut().step_by(width + 1).for_each(|v| *v = 1.0);
    let matrix = backend.matrix(&f32_weights(&identity, width)).map_err(|e| e.to_string())?;
    let mut out = backend.rows(rows, width);
    backend.linear(x, &matrix, None, &mut out);
    Ok(backend.read(&out))
}

fn is_quantised(ty: QuantType) -> bool {
    ty.row().codes.is_some()
}

fn linear<B: Backend>(backend: &B, ty: QuantType, rows: usize) -> Result<(), String> {
    let (n, k) = (72, 512);
    linear_of(backend, ty, rows, n, k)
}

/// More K than a panel or a slice of wide weights holds, and few rows.
fn deep<B: Backend>(backend: &B) -> Result<(), String> {
    for quant in QUANT_TYPES {
        linear_of(backend, quant.ty, 13, 33, 4096 + 512).map_err(|e| format!("{}: {e}", quant.name))?;
    }
    // Widths that end inside a group of 32.
    for ty in [QuantType::F32, QuantType::F16, QuantType::BF16] {
        linear_of(backend, ty, 7, 5, 300).map_err(|e| format!("{ty:?}: {e}"))?;
    }
    Ok(())
}

fn linear_of<B: Backend>(backend: &B, ty: QuantType, rows: usize, n: usize, k: usize) -> Result<(), String> {
    let mut random = Random::new(rows as u64 * 31 + k as u64);
    let weights = random_weights(ty, n, k, rows as u64);
    let matrix = backend.matrix(&weights).map_err(|e| e.to_string())?;
    let x = random.values(rows * k);
    let operand = operand(backend, &x, k);
    let wanted = product(&x, &decoded(&weights), k, is_quantised(ty));
    // Room for more rows than are written: nothing may depend on it.
    let mut out = backend.rows(rows + 5, n);
    backend.linear(&operand, &matrix, None, &mut out);
    let plain = backend.read(&out);
    compare("linear", &plain, &wanted)?;
    compare_rms(&plain, &wanted, if is_quantised(ty) { 2e-2 } else { 5e-6 })?;

    let bias = random.values(n);
    backend.linear(&operand, &matrix, Some(&backend.vector(&bias)), &mut out);
    let biased: Vec<(f64, f64)> = plain
        .iter()
        .zip(bias.iter().cycle())
        .map(|(&p, &b)| (f64::from(p) + f64::from(b), 1e-6 * f64::from(p.abs() + b.abs())))
        .collect();
    compare("linear with bias", &backend.read(&out), &biased)?;

    let residual = random.values(rows * n);
    backend.write(&residual, &mut out);
    backend.linear_add(&operand, &matrix, &mut out);
    let added: Vec<(f64, f64)> = plain
        .iter()
        .zip(&residual)
        .map(|(&p, &r)| (f64::from(p) + f64::from(r), 1e-6 * f64::from(p.abs() + r.abs())))
        .collect();
    compare("linear_add", &backend.read(&out), &added)
}

fn embed<B: Backend>(backend: &B, ty: QuantType) -> Result<(), String> {
    let (vocab, width) = (40, 256);
    let weights = random_weights(ty, vocab, width, 5);
    let table = backend.table(&weights).map_err(|e| e.to_string())?;
    let tokens: Vec<u32> = (0..33).map(|i| i * 7 % vocab as u32).collect();
    let mut out = backend.rows(tokens.len(), width);
    backend.embed(&table, &tokens, &mut out);
    let values = decoded(&weights);
    let wanted: Vec<(f64, f64)> = tokens
        .iter()
        .flat_map(|&t| &values[t as usize * width..(t as usize + 1) * width])
        .map(|&v| (f64::from(v), 1e-6 * f64::from(v.abs())))
        .collect();
    compare("embed", &backend.read(&out), &wanted)
}

fn rms_norm<B: Backend>(backend: &B, rows: usize, width: usize) -> Result<(), String> {
    let mut random = Random::new(17);
    let (x, weight, eps) = (random.values(rows * width), random.values(width), 1e-5);
    let mut input = backend.rows(rows, width);
    backend.write(&x, &mut input);
    let mut out = backend.operand(rows, width);
    backend.rms_norm(&input, &backend.vector(&weight), eps, &mut out);
    let wanted: Vec<(f64, f64)> = x
        .chunks_exact(width)
        .flat_map(|row| {
            let square: f64 = row.iter().map(|&v| f64::from(v).powi(2)).sum();
            let scale = 1.0 / (square / width as f64 + f64::from(eps)).sqrt();
            row.iter().zip(&weight).map(move |(&v, &w)| {
                let value = f64::from(v) * scale * f64::from(w);
                (value, 1e-6 * value.abs() + 1e-30)
            })
        })
        .collect();
    compare("rms_norm", &read_operand(backend, &out, rows, width)?, &wanted)
}

fn silu_mul<B: Backend>(backend: &B, rows: usize, width: usize) -> Result<(), String> {
    let mut random = Random::new(18);
    let (gate, up) = (random.values(rows * width), random.values(rows * width));
    let mut gate: Vec<f32> = gate.iter().map(|v| v * 4.0).collect();
    gate[0] = -200.0;
    gate[1] = 200.0;
    gate[2] = 0.0;
    let (mut g, mut u) = (backend.rows(rows, width), backend.rows(rows, width));
    backend.write(&gate, &mut g);
    backend.write(&up, &mut u);
    let mut out = backend.operand(rows, width);
    backend.silu_mul(&g, &u, &mut out);
    let wanted: Vec<(f64, f64)> = gate
        .iter()
        .zip(&up)
        .map(|(&g, &u)| {
            let value = f64::from(g) / (1.0 + (-f64::from(g)).exp()) * f64::from(u);
            (value, 2e-6 * value.abs() + 1e-30)
        })
        .collect();
    compare("silu_mul", &read_operand(backend, &out, rows, width)?, &wanted)
}

/// The same bits as the operations that it stands for, as f32 and as codes.
fn gated_linear<B: Backend>(backend: &B, types: [QuantType; 2]) -> Result<(), String> {
    let k = 768;
    for (n, rows) in [(88, 1), (96, 5), (88, 13), (96, 60)] {
        let matrix = |ty, n, k, seed| backend.matrix(&random_weights(ty, n, k, seed)).map_err(|e| e.to_string());
        let (gate, up) = (matrix(types[0], n, k, 1)?, matrix(types[1], n, k, 2)?);
        let x = operand(backend, &Random::new(rows as u64).values(rows * k), k);
        let (mut a, mut b) = (backend.rows(rows, n), backend.rows(rows, n));
        let (mut wanted, mut found) = (backend.operand(rows, n), backend.operand(rows, n));
        backend.linear(&x, &gate, None, &mut a);
        backend.linear(&x, &up, None, &mut b);
        backend.silu_mul(&a, &b, &mut wanted);
        backend.gated_linear(&x, [&gate, &up], [&mut a, &mut b], &mut found);
        // Wide weights see the values, quantised ones the codes.
        let down = matrix(if n % 32 == 0 { QuantType::Q8_0 } else { QuantType::F16 }, 40, n, 3)?;
        let (mut of_wanted, mut of_found) = (backend.rows(rows, 40), backend.rows(rows, 40));
        backend.linear(&wanted, &down, None, &mut of_wanted);
        backend.linear(&found, &down, None, &mut of_found);
        if backend.read(&of_found) != backend.read(&of_wanted) {
            return Err(format!("{rows} rows of {n}: another result than of linear, linear and silu_mul"));
        }
    }
    Ok(())
}

fn rope<B: Backend>(backend: &B, style: RopeStyle, rows: usize) -> Result<(), String> {
    let (heads, dim, theta) = (3, 20, 10_000.0f64);
    let width = heads * dim;
    let table = backend.rope_table(&RopeSpec { style, head_dim: dim, theta, positions: 2 * rows + 1 });
    let x = Random::new(19).values(rows * width);
    let positions: Vec<u32> = (0..rows as u32).map(|r| 2 * r + r % 2).collect();
    let mut out = backend.rows(rows, width);
    backend.write(&x, &mut out);
    backend.rope(&mut out, &positions, &table);
    let mut wanted = vec![(0.0, 0.0); x.len()];
    for (i, cell) in wanted.iter_mut().enumerate() {
        let (r, feature) = (i / width, i % dim);
        let (pair, first, other) = match style {
            RopeStyle::Interleaved => (feature / 2, feature % 2 == 0, i ^ 1),
            RopeStyle::HalfSplit if feature < dim / 2 => (feature, true, i + dim / 2),
            RopeStyle::HalfSplit => (feature - dim / 2, false, i - dim / 2),
        };
        let angle = f64::from(positions[r]) * theta.powf(-2.0 * pair as f64 / dim as f64);
        let sign = if first { -1.0 } else { 1.0 };
        let (a, b) = (f64::from(x[i]), f64::from(x[other]));
        *cell = (a * angle.cos() + sign * b * angle.sin(), 1e-6 * (a.abs() + b.abs()));
    }
    compare("rope", &backend.read(&out), &wanted)
}

fn attention<B: Backend>(
    backend: &B,
    suite: Suite,
    rows: usize,
    visible: Visibility,
    heads: usize,
    kv_heads: usize,
    dim: usize,
) -> Result<(), String> {
    let len = visible.len();
    let mut random = Random::new(len as u64);
    let (width, kv_width) = (heads * dim, kv_heads * dim);
    let q = random.values(rows * width);
    let mut k = random.values(len * kv_width);
    let mut v = random.values(len * kv_width);
    // A later layer than the first, more room than is visible, and stale values behind the visible part.
    let room = len + 9;
    let mut kv = backend.kv(2, room, kv_heads, dim);
    let write = |kv: &mut B::Kv, k: &[f32], v: &[f32], positions: &[u32]| {
        let mut k_rows = backend.rows(positions.len(), kv_width);
        let mut v_rows = backend.rows(positions.len(), kv_width);
        backend.write(k, &mut k_rows);
        backend.write(v, &mut v_rows);
        backend.kv_write(&k_rows, &v_rows, 1, positions, kv);
    };
    let all: Vec<u32> = (0..room as u32).collect();
    let stale = vec![1e3; room * kv_width];
    write(&mut kv, &stale, &stale, &all);
    write(&mut kv, &k, &v, &all[..len]);
    // Overwrite every third position, as a cache policy does.
    let some: Vec<u32> = (0..len as u32).step_by(3).collect();
    let (new_k, new_v) = (random.values(some.len() * kv_width), random.values(some.len() * kv_width));
    write(&mut kv, &new_k, &new_v, &some);
    for (i, &p) in some.iter().enumerate() {
        let (to, from) = (p as usize * kv_width, i * kv_width);
        k[to..to + kv_width].copy_from_slice(&new_k[from..from + kv_width]);
        v[to..to + kv_width].copy_from_slice(&new_v[from..from + kv_width]);
    }
    let mut q_rows = backend.rows(rows, width);
    backend.write(&q, &mut q_rows);
    let mut out = backend.operand(rows, width);
    backend.attention(&q_rows, &kv, 1, visible, &mut out);
    let found = read_operand(backend, &out, rows, width)?;

    let mut wanted = Vec::with_capacity(found.len());
    for r in 0..rows {
        for head in 0..heads {
            let kv_head = head * kv_heads / heads;
            let at = |values: &[f32], p: usize, i: usize| f64::from(values[p * kv_width + kv_head * dim + i]);
            let scores: Vec<f64> = (0..len)
                .map(|p| {
                    let dot: f64 = (0..dim).map(|i| f64::from(q[r * width + head * dim + i]) * at(&k, p, i)).sum();
                    if visible.hidden(r) == Some(p) { f64::NEG_INFINITY } else { dot / (dim as f64).sqrt() }
                })
                .collect();
            let greatest = scores.iter().fold(f64::NEG_INFINITY, |m, &s| m.max(s));
            let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
            let total: f64 = weights.iter().sum();
            // Scores of this size carry f32 errors of about 1e-5, and so do the weights.
            let mut slack = 2e-6 * (10.0 + greatest.abs());
            if suite.half_attention {
                // A product of two f16 is off by up to 2^-10, one way or the other; four standard deviations of their
                // sum shift a score, and two scores a weight. Weights and values are rounded once each.
                let spread = (0..len).map(|p| {
                    (0..dim).map(|i| (f64::from(q[r * width + head * dim + i]) * at(&k, p, i)).powi(2)).sum::<f64>()
                });
                let spread = spread.fold(0.0, f64::max).sqrt();
                slack += 8.0 * HALF_STEP * spread / (dim as f64).sqrt() + 3.0 * HALF_STEP;
            }
            wanted.extend((0..dim).map(|i| {
                let part = |p: usize| weights[p] / total * at(&v, p, i);
                let magnitude: f64 = (0..len).map(|p| part(p).abs()).sum();
                ((0..len).map(part).sum::<f64>(), slack * magnitude + 1e-9)
            }));
        }
    }
    compare("attention", &found, &wanted)?;
    compare_rms(&found, &wanted, if suite.half_attention { 1e-2 } else { 1e-5 })
}

fn select<B: Backend>(backend: &B) -> Result<(), String> {
    let (rows, width) = (17, 24);
    let x = Random::new(20).values(rows * width);
    let mut out = backend.rows(rows, width);
    for indices in [vec![], vec![0], vec![16], vec![0, 3, 4, 16], (0..17).collect::<Vec<u32>>()] {
        backend.write(&x, &mut out);
        backend.select(&mut out, &indices);
        let wanted: Vec<(f64, f64)> = indices
            .iter()
            .flat_map(|&i| &x[i as usize * width..(i as usize + 1) * width])
            .map(|&v| (f64::from(v), 0.0))
            .collect();
        compare("select", &backend.read(&out), &wanted)?;
    }
    Ok(())
}

/// Logits against the product, statistics against the logits.
fn head<B: Backend>(backend: &B, ty: QuantType) -> Result<(), String> {
    let (vocab, k) = (1111, 256);
    let weights = random_weights(ty, vocab, k, 21);
    let matrix = backend.matrix(&weights).map_err(|e| e.to_string())?;
    let values = decoded(&weights);
    for rows in [1, 7, 33] {
        let x = Random::new(rows as u64).values(rows * k);
        let operand = operand(backend, &x, k);
        let mut logits = Vec::new();
        backend.logits(&operand, &matrix, &mut logits);
        compare("logits", &logits, &product(&x, &values, k, is_quantised(ty)))?;
        let excluded = [3, 500, 1110];
        let mut statistics = Vec::new();
        backend.row_statistics(&operand, &matrix, &excluded, &mut statistics);
        if statistics.len() != rows {
            return Err(format!("{} statistics for {rows} rows", statistics.len()));
        }
        for (r, (row, found)) in logits.chunks_exact(vocab).zip(&statistics).enumerate() {
            check_statistics(row, &excluded, found).map_err(|e| format!("row {r}: {e}"))?;
        }
    }
    Ok(())
}

/// Statistics of a row by their definitions, from the backend's own logits.
fn check_statistics(logits: &[f32], excluded: &[u32], found: &crate::RowStatistics) -> Result<(), String> {
    let greatest = logits.iter().fold(f64::NEG_INFINITY, |m, &l| m.max(l.into()));
    let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) - greatest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut order: Vec<usize> = (0..logits.len()).filter(|&t| !excluded.contains(&(t as u32))).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let entropy: f64 = weights.iter().filter(|&&w| w > 0.0).map(|w| -(w / total) * (w / total).ln()).sum();
    let close = |what: &str, found: f64, wanted: f64| {
        let slack = 2e-6 * wanted.abs() + 1e-7;
        if (found - wanted).abs() <= slack { Ok(()) } else { Err(format!("{what} {found}, wanted {wanted}")) }
    };
    if !found.finite {
        return Err("finite logits are said not to be".to_owned());
    }
    if found.token as usize != order[0] {
        return Err(format!("token {}, wanted {}", found.token, order[0]));
    }
    close("probability", found.probability, weights[order[0]] / total)?;
    close("runner-up", found.runner_up, weights[order[1]] / total)?;
    close("entropy", found.entropy, entropy)
}

/// Logits that are chosen one by one: row r of the operand is the r-th unit vector, column r of the head the logits.
fn statistics<B: Backend>(backend: &B) -> Result<(), String> {
    let (vocab, k) = (70, 8);
    let base = Random::new(22).values(vocab);
    let mut logits = vec![base; k];
    (logits[0][10], logits[0][11], logits[0][65]) = (50.0, 50.0, 50.0);
    logits[1].fill(-3.0);
    (logits[2][0], logits[2][69]) = (1e4, -1e4);
    (logits[3][1], logits[3][40]) = (90.0, 80.0);
    logits[4][69] = f32::NAN;
    logits[5][3] = f32::INFINITY;
    logits[6][33] = f32::NEG_INFINITY;
    let mut head = vec![0.0; vocab * k];
    for (r, row) in logits.iter().enumerate() {
        row.iter().enumerate().for_each(|(token, &l)| head[token * k + r] = l);
    }
    let mut x = vec![0.0; k * k];
    x.iter_mut().step_by(k + 1).for_each(|v| *v = 1.0);
    // 0 * inf and 0 * NaN poison the other rows too: rows with them get a head of their own.
    for bad in [false, true] {
        let rows: Vec<usize> = if bad { vec![4, 5, 6] } else { vec![0, 1, 2, 3, 7] };
        for &r in &rows {
            let mut head = head.clone();
            for other in (4..7).filter(|&o| o != r) {
                (0..vocab).for_each(|t| head[t * k + other] = 0.0);
            }
            let matrix = backend.matrix(&f32_weights(&head, k)).map_err(|e| e.to_string())?;
            let operand = operand(backend, &x[r * k..(r + 1) * k], k);
            for excluded in [&[][..], &[1, 10]] {
                let mut found = Vec::new();
                backend.row_statistics(&operand, &matrix, excluded, &mut found);
                if bad && found[0].finite {
                    return Err(format!("row {r} isn't finite, but nothing says so"));
                }
                if !bad {
                    check_statistics(&logits[r], excluded, &found[0])
                        .map_err(|e| format!("row {r}, {excluded:?} excluded: {e}"))?;
                }
            }
        }
    }
    Ok(())
}

/// Quantised activations through Q8_0 weights: the error stays within the group of its cause.
fn quantize<B: Backend>(backend: &B) -> Result<(), String> {
    let k = 96;
    let weights = random_weights(QuantType::Q8_0, 40, k, 23);
    let matrix = backend.matrix(&weights).map_err(|e| e.to_string())?;
    let mut x = Random::new(24).values(5 * k);
    x[..k].fill(0.0);
    x[k + 3] = 1e4; // an outlier costs its own group of 32 its precision, not the others
    x[2 * k..3 * k].iter_mut().for_each(|v| *v *= 1e-30);
    x[3 * k..4 * k].fill(-0.5);
    let mut out = backend.rows(5, 40);
    backend.linear(&operand(backend, &x, k), &matrix, None, &mut out);
    let found = backend.read(&out);
    compare("quantize", &found, &product(&x, &decoded(&weights), k, true))?;
    x[4 * k + 50] = f32::NAN;
    backend.linear(&operand(backend, &x, k), &matrix, None, &mut out);
    let found = backend.read(&out);
    if found[..4 * 40].iter().any(|v| !v.is_finite()) {
        return Err("a NaN spreads to other rows".to_owned());
    }
    if !found[4 * 40..].iter().all(|v| v.is_nan()) {
        return Err("a NaN gets lost".to_owned());
    }
    Ok(())
}
