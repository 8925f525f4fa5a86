//! An entry of the tensor directory.

use crate::types::TensorType;

/// What the directory says about a tensor. Sizes in bytes and counts were checked when the file was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name; it may hold control characters, so [escape](crate::escape) it before it meets a terminal.
    pub name: String,
    /// The dimensions in the order of the file: the first is the length of a row. None for a scalar; at most four.
    pub dims: Vec<u64>,
    /// The type of the elements; always a known one.
    pub ty: TensorType,
    /// Offset into the data section at first, then the position in the file.
    pub(crate) start: u64,
    /// Which file of a split model holds it, from 0.
    pub(crate) part: usize,
    bytes: u64,
}

impl TensorInfo {
    /// Checks a shape and computes its size; an error is what was expected and what was found.
    pub(crate) fn new(
        name: String,
        dims: Vec<u64>,
        ty: TensorType,
        start: u64,
    ) -> Result<TensorInfo, (String, String)> {
        let found = || format!("{} {}", ty.name(), show_dims(&dims));
        let row_len = dims.first().copied().unwrap_or(1);
        let rows = dims.iter().skip(1).try_fold(1u64, |rows, dim| rows.checked_mul(*dim));
        let elements = rows.and_then(|rows| rows.checked_mul(row_len));
        let too_big = || ("a size that fits in 63 bits".to_owned(), found());
        if dims.iter().any(|dim| *dim > i64::MAX as u64) || elements.is_none_or(|count| count > i64::MAX as u64) {
            return Err(too_big());
        }
        let block = ty.block_len();
        if block == 0 || !row_len.is_multiple_of(block) {
            return Err((
                format!("a row length that is a multiple of the {block} weights of a {} block", ty.name()),
                format!("{row_len} in {}", show_dims(&dims)),
            ));
        }
        let bytes = ty.row_bytes(row_len).zip(rows).and_then(|(row, rows)| row.checked_mul(rows));
        match bytes {
            Some(bytes) if bytes <= i64::MAX as u64 => Ok(TensorInfo { name, dims, ty, start, part: 0, bytes }),
            _ => Err(too_big()),
        }
    }

    /// Weights per row: the first dimension.
    pub fn row_len(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// How many rows there are: the product of the other dimensions.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).fold(1, |rows, dim| rows.saturating_mul(*dim))
    }

    /// How many weights there are.
    pub fn elements(&self) -> u64 {
        self.rows().saturating_mul(self.row_len())
    }

    /// Bytes of the data.
    pub fn byte_len(&self) -> u64 {
        self.bytes
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.ty.row_bytes(self.row_len()).unwrap_or(0)
    }

    /// Where the data starts, in bytes from the start of the file that holds it.
    pub fn offset(&self) -> u64 {
        self.start
    }

    /// Which file of a split model holds it, from 0.
    pub fn part(&self) -> usize {
        self.part
    }

    /// The dimensions as text, as in `[64, 256]`.
    pub fn shape(&self) -> String {
        show_dims(&self.dims)
    }
}

fn show_dims(dims: &[u64]) -> String {
    format!("{dims:?}")
}
