//! Attention over the K/V store, one head and a few rows at a time, with an online softmax (Dao et al. 2022): keys
//! are read in short blocks, so no row of scores over the whole canvas is stored.

use super::Rows;
use super::operand::Operand;
use super::pool::Pool;
use crate::backend::Visibility;

/// Keys per block.
const KEYS: usize = 64;
/// The longest head the stack buffer holds.
const MAX_HEAD_DIM: usize = 512;

/// Keys and values of every layer, `[kv_heads, positions, head_dim]` each, so that a head's keys are contiguous.
pub struct Kv {
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    positions: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl Kv {
    pub(super) fn new(layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> Kv {
        assert!(
            head_dim <= MAX_HEAD_DIM,
            "head dim {head_dim} is over {MAX_HEAD_DIM}"
        );
        let len = positions * kv_heads * head_dim;
        Kv {
            layers: (0..layers)
                .map(|_| (vec![0.0; len], vec![0.0; len]))
                .collect(),
            positions,
            kv_heads,
            head_dim,
        }
    }

    pub(super) fn write(&mut self, k: &[f32], v: &[f32], layer: usize, positions: &[u32]) {
        let (dim, width) = (self.head_dim, self.head_dim * self.kv_heads);
        let (keys, values) = &mut self.layers[layer];
        for (r, &position) in positions.iter().enumerate() {
            for head in 0..self.kv_heads {
                let from = r * width + head * dim;
                let to = (head * self.positions + position as usize) * dim;
                keys[to..to + dim].copy_from_slice(&k[from..from + dim]);
                values[to..to + dim].copy_from_slice(&v[from..from + dim]);
            }
        }
    }
}

pub(super) fn attention(
    pool: &Pool,
    q: &Rows,
    kv: &Kv,
    layer: usize,
    visible: Visibility,
    out: &mut Operand,
) {
    let Visibility::Bidirectional { len } = visible;
    assert!(
        len <= kv.positions,
        "{len} visible positions of {}",
        kv.positions
    );
    let dim = kv.head_dim;
    let heads_per_kv = q.width / dim / kv.kv_heads;
    let (keys, values) = &kv.layers[layer];
    let writer = out.begin(q.rows);
    pool.run(q.rows, &|r, _| {
        writer.row(r, |out| {
            for (head, (q, out)) in q
                .row(r)
                .chunks_exact(dim)
                .zip(out.chunks_exact_mut(dim))
                .enumerate()
            {
                let first = head / heads_per_kv * kv.positions * dim;
                let part = first..first + len * dim;
                attend(q, &keys[part.clone()], &values[part], out);
            }
        });
    });
}

/// One query over `keys` and `values`, `[len, dim]` each.
fn attend(q: &[f32], keys: &[f32], values: &[f32], out: &mut [f32]) {
    let dim = q.len();
    let scale = 1.0 / (dim as f32).sqrt();
    let mut greatest = f32::NEG_INFINITY;
    let mut total = 0.0f32;
    out.fill(0.0);
    let mut scores = [0.0f32; KEYS];
    for (keys, values) in keys.chunks(KEYS * dim).zip(values.chunks(KEYS * dim)) {
        let scores = &mut scores[..keys.len() / dim];
        let mut block = f32::NEG_INFINITY;
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(dim)) {
            *score = dot(q, key) * scale;
            block = block.max(*score);
        }
        if block > greatest {
            let factor = (greatest - block).exp();
            total *= factor;
            out.iter_mut().for_each(|o| *o *= factor);
            greatest = block;
        }
        for (score, value) in scores.iter().zip(values.chunks_exact(dim)) {
            let weight = (score - greatest).exp();
            total += weight;
            for (out, &value) in out.iter_mut().zip(value) {
                *out += weight * value;
            }
        }
    }
    let inverse = 1.0 / total;
    out.iter_mut().for_each(|o| *o *= inverse);
}

/// Dot product in eight running sums, which vectorises without reordering by the compiler.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8
        .remainder()
        .iter()
        .zip(b8.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}
