//! Weights as a file gives them: a type, a shape and shared bytes.

use std::ops::Range;
use std::sync::Arc;

use crate::quant::QuantType;

/// Bytes that somebody else owns (a memory map, a static array), kept alive by a counted reference.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    release: Option<Arc<dyn Fn(Range<usize>) + Send + Sync>>,
}

impl SharedBytes {
    /// All the bytes of `owner`.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> SharedBytes {
        let range = 0..owner.as_ref().len();
        SharedBytes { owner: Arc::new(owner), range, release: None }
    }

    /// The same bytes with a way to say which of them won't be read again soon: [`SharedBytes::release`] will call
    /// `release` with ranges of these bytes. A memory map tells the system to drop the pages that lie wholly inside,
    /// so that a model isn't resident twice while it is packed; the bytes must stay readable.
    pub fn on_release(self, release: impl Fn(Range<usize>) + Send + Sync + 'static) -> SharedBytes {
        SharedBytes { release: Some(Arc::new(release)), ..self }
    }

    /// Says that `range` of these bytes won't be read again soon.
    pub fn release(&self, range: Range<usize>) {
        if let Some(release) = &self.release {
            release(range);
        }
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

/// A weight matrix `[rows, cols]` in quant blocks along its rows, as the file stores it.
#[derive(Clone)]
pub struct Weights {
    /// The tensor's name, for messages.
    pub name: String,
    /// Weight type.
    pub ty: QuantType,
    /// Output features (N).
    pub rows: usize,
    /// Input features (K).
    pub cols: usize,
    /// `rows * ty.row_bytes(cols)` bytes.
    pub bytes: SharedBytes,
}

impl Weights {
    /// Checks that the byte count belongs to the shape.
    pub fn check(&self) -> Result<(), ComputeError> {
        let Some(row_bytes) = self.ty.row_bytes(self.cols) else {
            return Err(ComputeError::RowLength {
                tensor: self.name.clone(),
                cols: self.cols,
                ty: self.ty.name(),
                block_len: self.ty.row().block_len,
            });
        };
        if row_bytes.checked_mul(self.rows) != Some(self.bytes.len()) {
            return Err(ComputeError::ByteCount {
                tensor: self.name.clone(),
                expected: row_bytes.saturating_mul(self.rows),
                found: self.bytes.len(),
            });
        }
        Ok(())
    }

    /// The bytes of row `row`.
    pub fn row(&self, row: usize) -> &[u8] {
        let len = self.bytes.len() / self.rows;
        &self.bytes[row * len..(row + 1) * len]
    }
}

/// What can go wrong when weights are handed to a backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum ComputeError {
    #[error("tensor `{tensor}`: a row of {cols} weights isn't a whole number of {ty} quant blocks of {block_len}")]
    RowLength { tensor: String, cols: usize, ty: &'static str, block_len: usize },
    #[error("tensor `{tensor}`: {found} bytes where its shape and type need {expected}")]
    ByteCount { tensor: String, expected: usize, found: usize },
    #[error("unknown instruction set `{name}` in DEMASK_ISA; this processor can run: {available}")]
    UnknownIsa { name: String, available: String },
    #[error("cannot start {threads} worker threads: {source}")]
    Threads { threads: usize, source: std::io::Error },
    #[error("{what}")]
    Device { what: String, hint: String },
}
