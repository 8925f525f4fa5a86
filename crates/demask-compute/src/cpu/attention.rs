//! Attention over the K/V store: a few rows of one head at a time, with an online softmax (Dao et al. 2022). Keys
//! are read in short blocks, so no row of scores over the whole canvas is stored.

use super::buffer::Buffer;
use super::kernels::{PANEL_ROWS, WideTile};
use super::operand::Operand;
use super::shared::SharedMut;
use super::{Cpu, Rows};
use crate::backend::Visibility;

/// Keys per block.
const KEYS: usize = 64;
/// Query rows that share a pass over the keys.
const QUERIES: usize = 24;
/// A score that counts for nothing, yet stays finite whatever the scale.
const HIDDEN: f32 = -1e30;
/// The longest head that the buffers hold.
const MAX_HEAD_DIM: usize = 512;

/// Keys and values of every layer. Both are stored as the f32 kernel reads its weights: keys with 32 positions side
/// by side, `[kv_heads, positions / 32, head_dim, 32]`; values by position, `[kv_heads, positions, head_dim]`, with
/// `head_dim` rounded up to a multiple of 32.
pub struct Kv {
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    /// Rounded up to a multiple of 32.
    positions: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl Kv {
    pub(super) fn new(layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> Kv {
        assert!(head_dim <= MAX_HEAD_DIM, "head dim {head_dim} is over {MAX_HEAD_DIM}");
        let positions = positions.next_multiple_of(PANEL_ROWS);
        let len = |dim: usize| positions * kv_heads * dim;
        let padded = head_dim.next_multiple_of(PANEL_ROWS);
        Kv {
            layers: (0..layers).map(|_| (vec![0.0; len(head_dim)], vec![0.0; len(padded)])).collect(),
            positions,
            kv_heads,
            head_dim,
        }
    }

    fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(PANEL_ROWS)
    }

    pub(super) fn write(&mut self, cpu: &Cpu, k: &Rows, v: &Rows, layer: usize, positions: &[u32]) {
        assert!(k.rows == positions.len() && v.rows == positions.len(), "one position per row");
        assert!(positions.iter().all(|&p| (p as usize) < self.positions), "positions exist");
        let (dim, padded) = (self.head_dim, self.padded_dim());
        let (key_len, value_len) = (self.positions * dim, self.positions * padded);
        let (keys, values) = &mut self.layers[layer];
        let (keys, values) = (SharedMut::new(keys), SharedMut::new(values));
        cpu.run(self.kv_heads, 2 * dim * positions.len(), &|head, _| {
            let keys = keys.slice(head * key_len, key_len);
            let values = values.slice(head * value_len, value_len);
            for (r, &position) in positions.iter().enumerate() {
                let position = position as usize;
                let part = head * dim..(head + 1) * dim;
                let first = position / PANEL_ROWS * PANEL_ROWS * dim + position % PANEL_ROWS;
                let lane = keys[first..].iter_mut().step_by(PANEL_ROWS);
                lane.zip(&k.row(r)[part.clone()]).for_each(|(to, from)| *to = *from);
                values[position * padded..][..dim].copy_from_slice(&v.row(r)[part]);
            }
        });
    }
}

/// One thread's buffers.
pub(super) struct Scratch {
    /// `[QUERIES, MAX_HEAD_DIM]`.
    sums: Buffer<f32>,
    /// `[QUERIES, KEYS]`.
    scores: Buffer<f32>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { sums: Buffer::zeroed(QUERIES * MAX_HEAD_DIM), scores: Buffer::zeroed(QUERIES * KEYS) }
    }
}

pub(super) fn attention(cpu: &Cpu, q: &Rows, kv: &Kv, layer: usize, visible: Visibility, out: &mut Operand) {
    let len = visible.len();
    assert!(len <= kv.positions, "{len} visible positions of {}", kv.positions);
    let dim = kv.head_dim;
    let heads = q.width / dim;
    let heads_per_kv = heads / kv.kv_heads;
    let (keys, values) = &kv.layers[layer];
    let writer = out.begin(q.rows);
    let blocks = q.rows.div_ceil(QUERIES);
    // Blocks of equal height.
    let height = q.rows.div_ceil(blocks.max(1));
    let work = height * len * dim / 4;
    cpu.run(heads * blocks, work, &|chunk, thread| {
        let (head, block) = (chunk / blocks, chunk % blocks);
        let rows = block * height..q.rows.min((block + 1) * height);
        let key = head / heads_per_kv * kv.positions * dim;
        let value = head / heads_per_kv * kv.positions * kv.padded_dim();
        let scratch = &mut cpu.scratch(thread).attention;
        attend(
            cpu,
            &q.values[rows.start * q.width + head * dim..],
            q.width,
            rows.len(),
            dim,
            &keys[key..key + kv.positions * dim],
            &values[value..value + kv.positions * kv.padded_dim()],
            len,
            visible.hidden(rows.start),
            scratch,
        );
        for (row, sums) in rows.zip(scratch.sums.chunks_exact(kv.padded_dim())) {
            writer.columns(row, head * dim..(head + 1) * dim).copy_from_slice(&sums[..dim]);
        }
    });
    cpu.each_row(q.rows, q.width, &|r| (cpu.kernels.rows.quantize)(&writer, r, 0..writer.k_groups()));
}

/// One head for up to [`QUERIES`] rows of `q`, into `scratch.sums` (`[rows, padded dim]`). Row r doesn't see position
/// `hidden + r`.
fn attend(
    cpu: &Cpu,
    q: &[f32],
    q_stride: usize,
    rows: usize,
    dim: usize,
    keys: &[f32],
    values: &[f32],
    len: usize,
    hidden: Option<usize>,
    scratch: &mut Scratch,
) {
    let (wide, kernels) = (cpu.kernels.wide, &cpu.kernels.rows);
    let padded = dim.next_multiple_of(PANEL_ROWS);
    let tile = cpu.kernels.max_tile;
    let scale = 1.0 / (dim as f32).sqrt();
    let (mut greatest, mut total) = ([f32::NEG_INFINITY; QUERIES], [0.0f32; QUERIES]);
    let sums = &mut scratch.sums[..rows * padded];
    sums.fill(0.0);
    for start in (0..len).step_by(KEYS) {
        let count = KEYS.min(len - start);
        let scores = &mut scratch.scores[..rows * KEYS];
        scores.fill(0.0);
        for first in (0..rows).step_by(tile) {
            let height = tile.min(rows - first);
            let scores = &mut scores[first * KEYS..];
            for panel in 0..count.div_ceil(PANEL_ROWS) {
                wide(WideTile {
                    w: &keys[(start + panel * PANEL_ROWS) * dim..],
                    w_stride: PANEL_ROWS,
                    a: &q[first * q_stride..],
                    a_stride: q_stride,
                    rows: height,
                    depth: dim,
                    out: &mut scores[panel * PANEL_ROWS..],
                    out_stride: KEYS,
                });
            }
        }
        for (r, scores) in scores.chunks_exact_mut(KEYS).enumerate() {
            let scores = &mut scores[..count];
            if let Some(hidden) = hidden.and_then(|first| scores.get_mut((first + r).wrapping_sub(start))) {
                *hidden = HIDDEN;
            }
            let block = (kernels.greatest)(scores) * scale;
            if block > greatest[r] {
                let factor = super::rowwise::exp(greatest[r] - block);
                total[r] *= factor;
                (kernels.scale)(&mut sums[r * padded..][..padded], factor);
                greatest[r] = block;
            }
            total[r] += (kernels.softmax)(scores, scale, greatest[r]);
        }
        for first in (0..rows).step_by(tile) {
            let height = tile.min(rows - first);
            for column in (0..padded).step_by(PANEL_ROWS) {
                wide(WideTile {
                    w: &values[start * padded + column..],
                    w_stride: padded,
                    a: &scores[first * KEYS..],
                    a_stride: KEYS,
                    rows: height,
                    depth: count,
                    out: &mut sums[first * padded + column..],
                    out_stride: padded,
                });
            }
        }
    }
    for (sums, total) in sums.chunks_exact_mut(padded).zip(total) {
        (kernels.scale)(sums, 1.0 / total);
    }
}
