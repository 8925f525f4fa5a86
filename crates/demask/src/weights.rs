//! From GGUF tensors to a backend's weights: the only place that sees both.

use demask_compute::{Backend, QuantType, SharedBytes, Weights, quant::QUANT_TYPES};
use demask_gguf::{Gguf, TensorInfo};

use crate::error::Error;

/// Hands the tensors of a file to a backend.
pub(crate) struct WeightSource<'a, B: Backend> {
    gguf: &'a Gguf,
    backend: &'a B,
    /// Called with the bytes done and the bytes in all.
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

/// A projection with its optional bias.
pub(crate) struct Projection<B: Backend> {
    weight: B::Matrix,
    bias: Option<B::Vector>,
}

impl<B: Backend> Projection<B> {
    /// `out = x * weight^T + bias`.
    pub(crate) fn apply(&self, backend: &B, x: &B::Operand, out: &mut B::Rows) {
        backend.linear(x, &self.weight, self.bias.as_ref(), out);
    }
}

impl<'a, B: Backend> WeightSource<'a, B> {
    pub(crate) fn new(gguf: &'a Gguf, backend: &'a B, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        let total = gguf.tensors().iter().map(TensorInfo::byte_len).sum();
        WeightSource { gguf, backend, progress, done: 0, total }
    }

    /// A vector of `len` values, whatever its type.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<B::Vector, Error> {
        let weights = self.weights(name, &[len])?;
        let mut values = vec![0.0; len];
        weights.ty.decode(&weights.bytes, &mut values);
        self.advance(name);
        Ok(self.backend.vector(&values))
    }

    /// A matrix `[rows, cols]`.
    pub(crate) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Matrix, Error> {
        let matrix = self.backend.matrix(&self.weights(name, &[cols, rows])?)?;
        self.advance(name);
        Ok(matrix)
    }

    /// The matrix `name`, or, when the file has none, the one it is tied to.
    pub(crate) fn matrix_or_tied(
        &mut self,
        name: &str,
        tied: &str,
        rows: usize,
        cols: usize,
    ) -> Result<B::Matrix, Error> {
        match self.gguf.tensor(name) {
            Some(_) => self.matrix(name, rows, cols),
            None => {
                let weights = self.weights(tied, &[cols, rows])?;
                self.backend.place(name);
                Ok(self.backend.matrix(&weights)?)
            }
        }
    }

    /// The projection `name.weight`, with `name.bias` if there is one.
    pub(crate) fn projection(&mut self, name: &str, rows: usize, cols: usize) -> Result<Projection<B>, Error> {
        let weight = self.matrix(&format!("{name}.weight"), rows, cols)?;
        let bias = format!("{name}.bias");
        let bias = self.gguf.tensor(&bias).map(|_| self.vector(&bias, rows)).transpose()?;
        Ok(Projection { weight, bias })
    }

    /// The projection `name.weight`, whose `name.bias` must be there.
    pub(crate) fn biased_projection(&mut self, name: &str, rows: usize, cols: usize) -> Result<Projection<B>, Error> {
        tensor(self.gguf, &format!("{name}.bias"))?;
        self.projection(name, rows, cols)
    }

    /// The embedding table `[rows, cols]`.
    pub(crate) fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Table, Error> {
        let table = self.backend.table(&self.weights(name, &[cols, rows])?)?;
        self.advance(name);
        Ok(table)
    }

    /// The bytes of a tensor, its shape checked against `dims` (ggml's order: row length first).
    fn weights(&self, name: &str, dims: &[usize]) -> Result<Weights, Error> {
        self.backend.place(name);
        let info = tensor(self.gguf, name)?;
        let found: Vec<usize> = info.dims.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
        // Trailing dimensions of 1 say nothing.
        let significant = found.len() - found.iter().skip(1).rev().take_while(|&&d| d == 1).count();
        let wanted = dims.len() - dims.iter().skip(1).rev().take_while(|&&d| d == 1).count();
        if found[..significant] != dims[..wanted] {
            return Err(Error::Shape {
                file: self.gguf.name().to_owned(),
                tensor: name.to_owned(),
                expected: dims.to_vec(),
                found,
            });
        }
        let ty = QuantType::from_name(info.ty.name()).ok_or_else(|| Error::WeightType {
            file: self.gguf.name().to_owned(),
            tensor: name.to_owned(),
            ty: format!("{} ({})", info.ty.name(), info.ty.id()),
            supported: QUANT_TYPES.iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
        })?;
        let bytes = self.gguf.bytes(info);
        let map = bytes.clone();
        Ok(Weights {
            name: name.to_owned(),
            ty,
            rows: dims.iter().skip(1).product(),
            cols: dims[0],
            // What was packed leaves memory at once: the model is resident once.
            bytes: SharedBytes::new(bytes).on_release(move |range| map.release(range)),
        })
    }

    fn advance(&mut self, name: &str) {
        self.done += self.gguf.tensor(name).map_or(0, TensorInfo::byte_len);
        (self.progress)(self.done, self.total);
    }
}

/// The directory entry of a tensor that must be there.
pub(crate) fn tensor<'a>(gguf: &'a Gguf, name: &str) -> Result<&'a TensorInfo, Error> {
    gguf.tensor(name).ok_or_else(|| Error::NoTensor {
        file: gguf.name().to_owned(),
        tensor: name.to_owned(),
        first: gguf.tensors().first().map(|info| demask_gguf::escape(&info.name)),
    })
}
