//! Weight matrices as the kernels read them: 32 rows interleaved, in as many bits as the file spends.

use super::buffer::Buffer;
use super::form::{CodesForm, PackBuffer};
use super::kernels::{PANEL_GROUPS, PANEL_ROWS, PackKernel};
use super::pool::Pool;
use super::shared::SharedMut;
use crate::quant::{CodesRow, QuantType};
use crate::weights::{ComputeError, Weights};
use bytemuck::Pod;
use std::ops::Range;

/// File bytes that a thread packs before it gives them back.
const STREAM: usize = 1 << 20;

/// A weight matrix `[rows, cols]`, rows padded to a multiple of 32 with zeros.
pub struct Matrix {
    rows: usize,
    cols: usize,
    ty: QuantType,
    store: Store,
}

/// What a matrix is made of; all in panels of 32 rows.
pub(super) enum Store {
    /// `[panels, cols, 32]`.
    F32(Buffer<f32>),
    /// The same in half precision.
    F16(Buffer<u16>),
    /// The same in the upper halves of f32.
    BF16(Buffer<u16>),
    /// `[panels, cols / block_len]` units.
    Codes { form: CodesForm, units: Buffer<u8> },
}

impl Matrix {
    pub(super) fn pack(weights: &Weights, pool: &Pool, pack: PackKernel) -> Result<Matrix, ComputeError> {
        weights.check()?;
        let store = match (weights.ty.row().codes, weights.ty) {
            (Some(codes), _) => pack_codes(weights, &codes, pool, pack),
            (None, QuantType::F16) => Store::F16(pack_wide(weights, pool, u16::from_le_bytes)),
            (None, QuantType::BF16) => Store::BF16(pack_wide(weights, pool, u16::from_le_bytes)),
            (None, _) => Store::F32(pack_wide(weights, pool, f32::from_le_bytes)),
        };
        Ok(Matrix { rows: weights.rows, cols: weights.cols, ty: weights.ty, store })
    }

    /// Output features (N).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features (K).
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The weight type that was packed.
    pub fn ty(&self) -> QuantType {
        self.ty
    }

    /// How quantised weights are laid out; `None` for wide ones.
    pub(crate) fn form(&self) -> Option<&CodesForm> {
        match &self.store {
            Store::Codes { form, .. } => Some(form),
            _ => None,
        }
    }

    /// Bytes that the packed form takes.
    pub fn bytes(&self) -> usize {
        match &self.store {
            Store::F32(values) => size_of_val(&values[..]),
            Store::F16(values) | Store::BF16(values) => size_of_val(&values[..]),
            Store::Codes { units, .. } => units.len(),
        }
    }

    /// Panels of 32 rows.
    pub(super) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    /// Row range of panel `panel`.
    pub(super) fn panel_rows(&self, panel: usize) -> Range<usize> {
        panel * PANEL_ROWS..self.rows.min((panel + 1) * PANEL_ROWS)
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Units of all panels; none of a wide store.
    pub(super) fn units(&self) -> &[u8] {
        match &self.store {
            Store::Codes { units, .. } => units,
            _ => &[],
        }
    }

    /// Range of panel `panel` in a wide store.
    pub(super) fn wide_panel(&self, panel: usize) -> Range<usize> {
        let len = self.cols * PANEL_ROWS;
        panel * len..(panel + 1) * len
    }
}

impl CodesForm {
    /// Bytes of the units that fill a [`super::kernels::Panel`].
    pub(super) fn panel_bytes(&self) -> usize {
        PANEL_GROUPS / self.groups * self.unit_bytes
    }
}

/// Packs a panel, given a buffer, the panel's index and the bytes of up to 32 rows.
type PackPanel<'a> = dyn Fn(&mut PackBuffer, usize, &[&[u8]]) + Sync + 'a;

/// Calls `pack` with the bytes of up to 32 rows, in parallel for every panel, and gives the file's
/// bytes back as it goes.
fn each_panel(weights: &Weights, pool: &Pool, pack: &PackPanel<'_>) {
    let panels = weights.rows.div_ceil(PANEL_ROWS);
    let row_bytes = weights.bytes.len() / weights.rows.max(1);
    let step = STREAM.div_ceil(row_bytes.max(1) * PANEL_ROWS);
    let bytes: &[u8] = &weights.bytes;
    pool.run(panels.div_ceil(step), &|chunk, _| {
        let mut buffer = PackBuffer::new();
        let panels = chunk * step..panels.min((chunk + 1) * step);
        for panel in panels.clone() {
            let first = panel * PANEL_ROWS;
            let count = PANEL_ROWS.min(weights.rows - first);
            let mut rows: [&[u8]; PANEL_ROWS] = [&[]; PANEL_ROWS];
            for (row, bytes) in rows.iter_mut().zip(bytes[first * row_bytes..].chunks_exact(row_bytes)) {
                *row = bytes;
            }
            pack(&mut buffer, panel, &rows[..count]);
        }
        let rows = panels.start * PANEL_ROWS..weights.rows.min(panels.end * PANEL_ROWS);
        weights.bytes.release(rows.start * row_bytes..rows.end * row_bytes);
    });
}

fn pack_wide<const BYTES: usize, T: Pod + Send>(
    weights: &Weights,
    pool: &Pool,
    value: impl Fn([u8; BYTES]) -> T + Sync,
) -> Buffer<T> {
    /// Columns that are interleaved at a time, so that they stay in the first-level cache.
    const COLUMNS: usize = 64;
    let panel_len = weights.cols * PANEL_ROWS;
    let mut values = Buffer::zeroed(weights.rows.div_ceil(PANEL_ROWS) * panel_len);
    let shared = SharedMut::new(&mut values);
    each_panel(weights, pool, &|_, panel, rows| {
        let out = shared.slice(panel * panel_len, panel_len);
        for (c, out) in out.chunks_mut(COLUMNS * PANEL_ROWS).enumerate() {
            for (n, row) in rows.iter().enumerate() {
                let bytes = row.as_chunks::<BYTES>().0[c * COLUMNS..].iter();
                for (out, &bytes) in out[n..].iter_mut().step_by(PANEL_ROWS).zip(bytes) {
                    *out = value(bytes);
                }
            }
        }
    });
    values
}

fn pack_codes(weights: &Weights, codes: &CodesRow, pool: &Pool, pack: PackKernel) -> Store {
    let quant = weights.ty.row();
    let form = CodesForm::new(quant, codes);
    let panel_bytes = weights.cols / quant.block_len * form.unit_bytes;
    let mut units = Buffer::zeroed(weights.rows.div_ceil(PANEL_ROWS) * panel_bytes);
    let shared = SharedMut::new(&mut units);
    each_panel(weights, pool, &|buffer, panel, rows| {
        let units = shared.slice(panel * panel_bytes, panel_bytes);
        pack(&form, codes, rows, buffer, units);
    });
    Store::Codes { form, units }
}
