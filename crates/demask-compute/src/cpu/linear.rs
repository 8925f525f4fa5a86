//! The projections: panels of a packed matrix times tiles of activations, handed out to the pool.

use super::Cpu;
use super::buffer::Buffer;
use super::kernels::{K_GROUP, PANEL_ROWS, Panel, WideKernel, WideTile};
use super::operand::Operand;
use super::packed::{Matrix, Store};
use super::shared::SharedMut;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

/// Values along K of wide weights that all tiles are multiplied by at a time: 16 KB, which stay in the first-level
/// cache.
const WIDE_DEPTH: usize = 128;
/// Most panels that share one walk over the activations, which may be too many for the second-level cache.
pub(super) const MAX_PANELS: usize = 4;
/// Chunks per thread below which panels aren't put together: the last ones would leave threads without work.
const LEAST_CHUNKS: usize = 8;
/// Tiles that a chunk has at least when a panel's rows are split among chunks: unpacking stays a small part.
const LEAST_TILES: usize = 4;

/// One thread's buffers, kept between steps so that a step allocates nothing.
pub(super) struct Scratch {
    panel: Panel,
    wide: Buffer<f32>,
    /// `[MAX_PANELS, rows, 32]`.
    products: Buffer<f32>,
    pub(super) attention: super::attention::Scratch,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch {
            panel: Panel::new(),
            wide: Buffer::zeroed(WIDE_DEPTH * PANEL_ROWS),
            products: Buffer::zeroed(0),
            attention: super::attention::Scratch::new(),
        }
    }
}

impl Cpu {
    /// Makes room for the products of `rows` rows on every thread.
    pub(super) fn reserve(&self, rows: usize) {
        if self.reserved.load(Ordering::Acquire) >= rows {
            return;
        }
        for thread in 0..self.threads() {
            let products = &mut self.scratch(thread).products;
            let len = MAX_PANELS * rows * PANEL_ROWS;
            if products.len() < len {
                *products = Buffer::zeroed(len);
            }
        }
        self.reserved.fetch_max(rows, Ordering::Release);
    }

    /// What the integer sums of `x` times `w` start from, see [`super::OperandTile::starts`].
    pub(super) fn starts(&self, x: &Operand, w: &Matrix) -> MutexGuard<'_, Vec<i32>> {
        let mut starts = self.starts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match w.form() {
            Some(form) if !form.has_mins => x.starts(self.kernels.code_offset(form), form.halves, &mut starts),
            _ => starts.clear(),
        }
        starts
    }
}

/// Panels shared out in chunks: groups of several, then single ones, so that no thread waits long for the last chunk of
/// another, which may be slower.
struct Shares {
    panels: usize,
    group: usize,
    groups: usize,
}

impl Shares {
    /// Shares of up to `most` panels.
    fn new(panels: usize, threads: usize, most: usize) -> Shares {
        let group = (panels / (LEAST_CHUNKS * threads)).clamp(1, most);
        Shares { panels, group, groups: panels.saturating_sub(group * threads) / group }
    }

    fn chunks(&self) -> usize {
        self.groups + self.panels - self.groups * self.group
    }

    /// The panels of a chunk.
    fn panels(&self, chunk: usize) -> Range<usize> {
        if chunk < self.groups {
            return chunk * self.group..(chunk + 1) * self.group;
        }
        let panel = self.groups * self.group + chunk - self.groups;
        panel..panel + 1
    }
}

/// What happens to the product.
pub(super) enum Into<'a> {
    /// It replaces the output, plus a bias if there is one.
    Overwrite(Option<&'a Vec<f32>>),
    /// It is added to the output.
    Add,
}

/// `out (+)= x * w^T`, out `[rows, N]`.
pub(super) fn linear(cpu: &Cpu, x: &Operand, w: &Matrix, into: Into<'_>, out: &mut [f32]) {
    let features = w.rows();
    let out = SharedMut::new(out);
    each_chunk(cpu, x, [w], &|panels, rows, products| {
        // A row's features of all panels lie side by side.
        let (from, end) = (w.panel_rows(panels.start).start, w.panel_rows(panels.end - 1).end);
        for (at, row) in rows.clone().enumerate() {
            let row = out.slice(row * features + from, end - from);
            for (panel, out) in row.chunks_mut(PANEL_ROWS).enumerate() {
                let product = &products[(panel * rows.len() + at) * PANEL_ROWS..][..PANEL_ROWS];
                match into {
                    Into::Overwrite(None) => out.copy_from_slice(&product[..out.len()]),
                    Into::Overwrite(Some(bias)) => {
                        let bias = &bias[from + panel * PANEL_ROWS..];
                        for ((out, product), bias) in out.iter_mut().zip(product).zip(bias) {
                            *out = product + bias;
                        }
                    }
                    Into::Add => out.iter_mut().zip(product).for_each(|(out, product)| *out += product),
                }
            }
        }
    });
}

/// `out = silu(x * gate^T) * (x * up^T)`, of matrices of one type: what a panel of both gives is a k-group of the output,
/// which is quantised at once. Neither product is written to memory.
pub(super) fn gated(cpu: &Cpu, x: &Operand, [gate, up]: [&Matrix; 2], out: &mut Operand) {
    const { assert!(PANEL_ROWS == K_GROUP, "a panel gives a k-group") };
    assert_eq!((gate.rows(), gate.cols()), (up.rows(), up.cols()), "gate and up have one shape");
    assert_eq!(out.width(), gate.rows(), "output width is the matrices' row count");
    let writer = out.begin(x.rows());
    let kernels = &cpu.kernels.rows;
    each_chunk(cpu, x, [gate, up], &|panels, rows, products| {
        let (gates, ups) = products.split_at(products.len() / 2);
        for (index, panel) in panels.enumerate() {
            let columns = gate.panel_rows(panel);
            for (at, row) in rows.clone().enumerate() {
                let place = (index * rows.len() + at) * PANEL_ROWS..;
                let (gate, up) = (&gates[place.clone()][..columns.len()], &ups[place][..columns.len()]);
                (kernels.silu_mul)(gate, up, writer.columns(row, columns.clone()));
                (kernels.quantize)(&writer, row, panel..panel + 1);
            }
        }
    });
}

/// What is done with a chunk of products: its panels and rows, and the products `[matrices, panels, rows, 32]`.
type Use<'a> = dyn Fn(Range<usize>, Range<usize>, &[f32]) + Sync + 'a;

/// Hands out the products of `x` and all of some matrices of one type and shape.
fn each_chunk<const MATRICES: usize>(cpu: &Cpu, x: &Operand, w: [&Matrix; MATRICES], then: &Use<'_>) {
    let first = w[0];
    assert_eq!(x.width(), first.cols(), "operand and matrix agree on K");
    if x.rows() == 0 {
        return;
    }
    cpu.reserve(x.rows());
    // Few panels on many threads: split the rows too. Many: take several at a time.
    let (panels, tiles) = (first.panels(), x.tiles());
    let parts = (4 * cpu.threads()).div_ceil(panels.max(1)).min(tiles / LEAST_TILES).max(1);
    let shares = Shares::new(panels, cpu.threads(), MAX_PANELS / MATRICES);
    let work = MATRICES * shares.group * PANEL_ROWS * first.cols() * x.rows() / parts / 32;
    let starts = cpu.starts(x, first);
    cpu.run(shares.chunks() * parts, work, &|chunk, thread| {
        let (panels, part) = (shares.panels(chunk / parts), chunk % parts);
        let tiles = part * tiles / parts..(part + 1) * tiles / parts;
        let rows = x.tile_rows(tiles.start).start..x.tile_rows(tiles.end - 1).end;
        let mut scratch = cpu.scratch(thread);
        then(panels.clone(), rows, products(cpu, &mut scratch, x, &starts, &w, panels, tiles));
    });
}

/// Products `[matrices, panels, rows, 32]` of the rows of tiles `tiles` of `x` (at least one) and the weight rows of
/// panels of matrices of one type and shape, at most [`MAX_PANELS`] in all, with `starts` from [`Cpu::starts`].
pub(super) fn products<'s>(
    cpu: &Cpu,
    scratch: &'s mut Scratch,
    x: &Operand,
    starts: &[i32],
    matrices: &[&Matrix],
    panels: Range<usize>,
    tiles: Range<usize>,
) -> &'s [f32] {
    let (first, end) = (x.tile_rows(tiles.start).start, x.tile_rows(tiles.end - 1).end);
    let len = (end - first) * PANEL_ROWS;
    let count = matrices.len() * panels.len();
    let Scratch { panel: unpacked, wide: widened, products, .. } = scratch;
    let products = &mut products[..count * len];
    products.fill(0.0);
    if let Some(form) = matrices[0].form() {
        let (halves, part) = (if starts.is_empty() { 0 } else { form.halves }, form.panel_bytes());
        let panel_len = matrices[0].bytes() / matrices[0].panels();
        // Of the panel at `index` of all that are multiplied here, or of one that comes later.
        let units = |index: usize, later: usize, from: usize| {
            let (matrix, panel) = (matrices[index / panels.len()], panels.start + index % panels.len() + later);
            let end = panel_len.min(from + part);
            matrix.units().get(panel * panel_len + from..panel * panel_len + end).unwrap_or_default()
        };
        let mut group = 0;
        for from in (0..panel_len).step_by(part) {
            for (index, out) in products.chunks_exact_mut(len).enumerate() {
                (cpu.kernels.unpack)(form, units(index, 0, from), unpacked);
                // What comes next, or (at the end) will probably come next on this thread, is fetched meanwhile.
                let next = match (index + 1 < count, from + part < panel_len) {
                    (true, _) => units(index + 1, 0, from),
                    (false, true) => units(0, 0, from + part),
                    (false, false) => units(0, cpu.threads() * panels.len(), 0),
                };
                let ahead = next.len().div_ceil(tiles.len()).max(1);
                let groups = group..group + unpacked.groups;
                for index in tiles.clone() {
                    let start = next.len().min((index - tiles.start) * ahead);
                    (cpu.kernels.prefetch)(&next[start..next.len().min(start + ahead)]);
                    let tile = x.tile(index, starts, halves).groups(groups.clone());
                    let out = &mut out[(tile.start - first) * PANEL_ROWS..];
                    (cpu.kernels.tile)(form, unpacked, &tile, out);
                }
            }
            group += unpacked.groups;
        }
        return products;
    }
    let wide = cpu.kernels.wide;
    let places = matrices.iter().flat_map(|matrix| panels.clone().map(move |panel| (matrix, panel)));
    for ((matrix, panel), out) in places.zip(products.chunks_exact_mut(len)) {
        match matrix.store() {
            Store::F32(values) => {
                let weights = &values[matrix.wide_panel(panel)];
                for (i, weights) in weights.chunks(WIDE_DEPTH * PANEL_ROWS).enumerate() {
                    wide_tiles(wide, weights, x, i * WIDE_DEPTH, first, tiles.clone(), out);
                }
            }
            Store::F16(values) | Store::BF16(values) => {
                let widen = match matrix.store() {
                    Store::F16(_) => cpu.kernels.rows.widen_f16,
                    _ => cpu.kernels.rows.widen_bf16,
                };
                let halves = &values[matrix.wide_panel(panel)];
                for (i, halves) in halves.chunks(WIDE_DEPTH * PANEL_ROWS).enumerate() {
                    let weights = &mut widened[..halves.len()];
                    widen(halves, weights);
                    wide_tiles(wide, weights, x, i * WIDE_DEPTH, first, tiles.clone(), out);
                }
            }
            Store::Codes { .. } => unreachable!("matrices of one type"),
        }
    }
    products
}

/// Adds the products of wide weights `[depth, 32]` and columns from `column` on.
fn wide_tiles(
    wide: WideKernel,
    weights: &[f32],
    x: &Operand,
    column: usize,
    first: usize,
    tiles: Range<usize>,
    out: &mut [f32],
) {
    for rows in tiles.map(|index| x.tile_rows(index)) {
        wide(WideTile {
            w: weights,
            w_stride: PANEL_ROWS,
            a: &x.wide()[rows.start * x.width() + column..],
            a_stride: x.width(),
            rows: rows.len(),
            depth: weights.len() / PANEL_ROWS,
            out: &mut out[(rows.start - first) * PANEL_ROWS..],
            out_stride: PANEL_ROWS,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_belongs_to_one_chunk() {
        for (panels, threads) in (0..300).flat_map(|panels| [1, 2, 3, 8, 64].map(|threads| (panels, threads))) {
            let shares = Shares::new(panels, threads, MAX_PANELS);
            let all: Vec<usize> = (0..shares.chunks()).flat_map(|chunk| shares.panels(chunk)).collect();
            assert_eq!(all, (0..panels).collect::<Vec<_>>(), "{panels} panels, {threads} threads");
        }
        let shares = Shares::new(112, 2, MAX_PANELS);
        let lens: Vec<usize> = (0..shares.chunks()).map(|chunk| shares.panels(chunk).len()).collect();
        assert_eq!(lens, [[4; 26].as_slice(), &[1; 8]].concat());
    }
}
