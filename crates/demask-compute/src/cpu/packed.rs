//! Weight matrices as the kernels read them: 16 rows interleaved, integer codes apart from their scales.

use super::kernels::{K_GROUP, Panel, ROW_GROUP};
use super::pool::Pool;
use super::shared::SharedMut;
use crate::quant::{BlockCodes, CodesRow, GROUP, QuantType};
use crate::weights::{ComputeError, Weights};

/// A weight matrix `[rows, cols]`, rows padded to a multiple of 16 with zeros.
pub struct Matrix {
    rows: usize,
    cols: usize,
    ty: QuantType,
    form: Form,
}

enum Form {
    /// `[row_groups, cols, 16]` f32.
    Wide(Vec<f32>),
    /// Unsigned codes with f32 scales, see [`Panel`].
    Codes {
        codes: Vec<u8>,
        scales: Vec<f32>,
        mins: Vec<f32>,
        offset: i32,
        halves: usize,
    },
}

/// Sixteen rows of a matrix.
pub(super) enum RowGroup<'a> {
    Wide(&'a [f32]),
    Codes(Panel<'a>),
}

impl Matrix {
    pub(super) fn pack(weights: &Weights, pool: &Pool) -> Result<Matrix, ComputeError> {
        weights.check()?;
        let form = match weights.ty.row().codes {
            None => pack_wide(weights, pool),
            Some(row) => pack_codes(weights, &row, pool),
        };
        Ok(Matrix {
            rows: weights.rows,
            cols: weights.cols,
            ty: weights.ty,
            form,
        })
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

    pub(super) fn row_groups(&self) -> usize {
        self.rows.div_ceil(ROW_GROUP)
    }

    pub(super) fn row_group(&self, index: usize) -> RowGroup<'_> {
        let part = |len: usize| index * len..(index + 1) * len;
        match &self.form {
            Form::Wide(values) => RowGroup::Wide(&values[part(self.cols * ROW_GROUP)]),
            Form::Codes {
                codes,
                scales,
                mins,
                offset,
                halves,
            } => {
                let groups = self.cols.div_ceil(K_GROUP);
                let scale_len = groups * halves * ROW_GROUP;
                RowGroup::Codes(Panel {
                    codes: &codes[part(groups * K_GROUP * ROW_GROUP)],
                    scales: &scales[part(scale_len)],
                    mins: if mins.is_empty() {
                        &[]
                    } else {
                        &mins[part(scale_len)]
                    },
                    offset: *offset,
                    halves: *halves,
                })
            }
        }
    }
}

fn pack_wide(weights: &Weights, pool: &Pool) -> Form {
    let (cols, row_groups) = (weights.cols, weights.rows.div_ceil(ROW_GROUP));
    let mut values = vec![0.0; row_groups * cols * ROW_GROUP];
    let shared = SharedMut::new(&mut values);
    pool.run(row_groups, &|group, _| {
        let panel = shared.slice(group * cols * ROW_GROUP, cols * ROW_GROUP);
        let mut row = vec![0.0; cols];
        for n in 0..ROW_GROUP.min(weights.rows - group * ROW_GROUP) {
            weights
                .ty
                .decode(weights.row(group * ROW_GROUP + n), &mut row);
            for (k, &value) in row.iter().enumerate() {
                panel[k * ROW_GROUP + n] = value;
            }
        }
    });
    Form::Wide(values)
}

fn pack_codes(weights: &Weights, row: &CodesRow, pool: &Pool) -> Form {
    let quant = weights.ty.row();
    let groups = weights.cols.div_ceil(K_GROUP);
    let row_groups = weights.rows.div_ceil(ROW_GROUP);
    let halves = K_GROUP / row.group;
    let (code_len, scale_len) = (groups * K_GROUP * ROW_GROUP, groups * halves * ROW_GROUP);
    let mut codes = vec![row.offset as u8; row_groups * code_len];
    let mut scales = vec![0.0; row_groups * scale_len];
    let mut mins = vec![
        0.0;
        if row.has_mins {
            row_groups * scale_len
        } else {
            0
        }
    ];
    let (shared_codes, shared_scales, shared_mins) = (
        SharedMut::new(&mut codes),
        SharedMut::new(&mut scales),
        SharedMut::new(&mut mins),
    );
    pool.run(row_groups, &|group, _| {
        let codes = shared_codes.slice(group * code_len, code_len);
        let scales = shared_scales.slice(group * scale_len, scale_len);
        let mins = if row.has_mins {
            shared_mins.slice(group * scale_len, scale_len)
        } else {
            &mut []
        };
        let mut view = BlockCodes::ZERO;
        for n in 0..ROW_GROUP.min(weights.rows - group * ROW_GROUP) {
            for (b, block) in weights
                .row(group * ROW_GROUP + n)
                .chunks_exact(quant.block_bytes)
                .enumerate()
            {
                (row.read)(block, &mut view);
                let first = b * quant.block_len;
                for i in 0..quant.block_len {
                    let k = first + i;
                    codes[(k / 4 * ROW_GROUP + n) * 4 + k % 4] = view.codes[i];
                }
                for i in (0..quant.block_len).step_by(row.group) {
                    let at = (first + i) / row.group * ROW_GROUP + n;
                    scales[at] = view.d * f32::from(view.scales[i / GROUP]);
                    if row.has_mins {
                        mins[at] = view.dmin * f32::from(view.mins[i / GROUP]);
                    }
                }
            }
        }
    });
    Form::Codes {
        codes,
        scales,
        mins,
        offset: row.offset,
        halves,
    }
}
