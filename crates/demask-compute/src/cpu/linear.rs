//! The projections: panels of a packed matrix times tiles of activations, handed out to the pool.

use super::Cpu;
use super::kernels::{PANEL_ROWS, Panel, WideKernel};
use super::operand::Operand;
use super::packed::{Matrix, Store};
use super::shared::SharedMut;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Values along K of wide weights that all tiles are multiplied by at a time: 16 KB, which stay in the first-level
/// cache.
const WIDE_DEPTH: usize = 128;
/// Tiles that a chunk has at least when a panel's rows are split among chunks: unpacking stays a small part.
const LEAST_TILES: usize = 4;

/// One thread's buffers, kept between steps so that a step allocates nothing.
pub(super) struct Scratch {
    panel: Panel,
    wide: Vec<f32>,
    /// `[rows, 32]`.
    products: Vec<f32>,
    pub(super) attention: super::attention::Scratch,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch {
            panel: Panel::new(),
            wide: vec![0.0; WIDE_DEPTH * PANEL_ROWS],
            products: Vec::new(),
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
            products.resize(products.len().max(rows * PANEL_ROWS), 0.0);
        }
        self.reserved.fetch_max(rows, Ordering::Release);
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
    assert_eq!(x.width(), w.cols(), "operand and matrix agree on K");
    if x.rows() == 0 {
        return;
    }
    cpu.reserve(x.rows());
    let features = w.rows();
    let out = SharedMut::new(out);
    // Few panels on many threads: split the rows too.
    let (panels, tiles) = (w.panels(), x.tiles());
    let parts = (4 * cpu.threads()).div_ceil(panels.max(1)).min(tiles / LEAST_TILES).max(1);
    let work = PANEL_ROWS * w.cols() * x.rows() / parts / 32;
    cpu.run(panels * parts, work, &|chunk, thread| {
        let (panel, part) = (chunk / parts, chunk % parts);
        let tiles = part * tiles / parts..(part + 1) * tiles / parts;
        let (from, to) = (w.panel_rows(panel).start, w.panel_rows(panel).end);
        let mut scratch = cpu.scratch(thread);
        let rows = x.tile_rows(tiles.start).start..;
        let products = products(cpu, &mut scratch, x, w, panel, tiles);
        for (row, product) in rows.zip(products.chunks_exact(PANEL_ROWS)) {
            let out = out.slice(row * features + from, to - from);
            match into {
                Into::Overwrite(None) => out.copy_from_slice(&product[..to - from]),
                Into::Overwrite(Some(bias)) => {
                    for ((out, product), bias) in out.iter_mut().zip(product).zip(&bias[from..]) {
                        *out = product + bias;
                    }
                }
                Into::Add => out.iter_mut().zip(product).for_each(|(out, product)| *out += product),
            }
        }
    });
}

/// Products `[rows, 32]` of the rows of tiles `tiles` of `x` (at least one) and the weight rows of panel `panel`.
pub(super) fn products<'s>(
    cpu: &Cpu,
    scratch: &'s mut Scratch,
    x: &Operand,
    w: &Matrix,
    panel: usize,
    tiles: Range<usize>,
) -> &'s [f32] {
    let (first, end) = (x.tile_rows(tiles.start).start, x.tile_rows(tiles.end - 1).end);
    let len = (end - first) * PANEL_ROWS;
    let out = &mut scratch.products[..len];
    out.fill(0.0);
    let wide = cpu.kernels.wide;
    match w.store() {
        Store::Codes { form, units } => {
            let units = w.units(form, units, panel);
            let mut group = 0;
            for units in units.chunks(form.panel_bytes()) {
                (cpu.kernels.unpack)(form, units, &mut scratch.panel);
                let groups = group..group + scratch.panel.groups;
                group = groups.end;
                for index in tiles.clone() {
                    let tile = x.tile(index).groups(groups.clone());
                    let out = &mut out[(tile.start - first) * PANEL_ROWS..];
                    (cpu.kernels.tile)(form, &scratch.panel, &tile, out);
                }
            }
        }
        Store::F32(values) => {
            let weights = &values[w.wide_panel(panel)];
            for (i, weights) in weights.chunks(WIDE_DEPTH * PANEL_ROWS).enumerate() {
                wide_tiles(wide, weights, x, i * WIDE_DEPTH, first, tiles.clone(), out);
            }
        }
        Store::F16(values) | Store::BF16(values) => {
            let widen = match w.store() {
                Store::F16(_) => cpu.kernels.rows.widen_f16,
                _ => cpu.kernels.rows.widen_bf16,
            };
            let halves = &values[w.wide_panel(panel)];
            for (i, halves) in halves.chunks(WIDE_DEPTH * PANEL_ROWS).enumerate() {
                let weights = &mut scratch.wide[..halves.len()];
                widen(halves, weights);
                wide_tiles(wide, weights, x, i * WIDE_DEPTH, first, tiles.clone(), out);
            }
        }
    }
    &scratch.products[..len]
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
        wide(
            weights,
            PANEL_ROWS,
            &x.wide()[rows.start * x.width() + column..],
            x.width(),
            rows.len(),
            weights.len() / PANEL_ROWS,
            &mut out[(rows.start - first) * PANEL_ROWS..],
            PANEL_ROWS,
        );
    }
}
