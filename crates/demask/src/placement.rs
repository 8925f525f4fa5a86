//! How many layers of a model a GPU has room for.

use demask_compute::QuantType;
use demask_gguf::Gguf;
use demask_gpu::{Placement, matrix_bytes};

use crate::error::Error;
use crate::model::ModelSpec;

/// How many layers go on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLayers {
    /// As many as it has room for.
    Auto,
    /// So many.
    Count(usize),
}

/// Bytes that are left to the driver: its context, the compiled kernels, what other programs take meanwhile.
const SPARE: u64 = 320 << 20;
/// Positions of a canvas that room is kept for.
const POSITIONS: usize = 2048;

/// What the parts of a model take on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The embedding table, activations, and what is left to the driver.
    fixed: u64,
    /// Each layer's weights, keys and values.
    layers: Vec<u64>,
    /// The last norm and the head.
    head: u64,
}

/// What goes where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Layers on the GPU.
    pub(crate) layers: usize,
    /// Whether the head is there too: then nothing is left for the CPU.
    pub(crate) whole: bool,
    /// Bytes on the GPU.
    pub(crate) bytes: u64,
}

impl Sizes {
    /// The sizes of a model.
    pub(crate) fn new(gguf: &Gguf, spec: &ModelSpec) -> Sizes {
        let positions = spec.context.min(POSITIONS) as u64;
        let all = Placement { layers: usize::MAX };
        // Keys and values in f16, heads rounded up.
        let kv = 4 * positions * (spec.kv_heads * spec.head_dim.next_multiple_of(32)) as u64;
        let (q, kv_width) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        // f32 rows, and operands with their codes and scales.
        let row = 4 * (spec.width + q + 2 * kv_width + 2 * spec.ffn) + 6 * (spec.width + q + spec.ffn);
        let mut sizes = Sizes { fixed: SPARE + positions * row as u64, layers: vec![kv; spec.layers], head: 128 << 20 };
        for tensor in gguf.tensors() {
            let cols = usize::try_from(tensor.dims.first().copied().unwrap_or(1)).unwrap_or(usize::MAX);
            let rows = tensor.dims.iter().skip(1).product::<u64>() as usize;
            let packed = QuantType::from_name(tensor.ty.name()).map(|ty| matrix_bytes(ty, rows, cols) as u64);
            let bytes = packed.unwrap_or(tensor.byte_len()).max(4 * cols as u64 * u64::from(rows == 1));
            let layer = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            match layer.and_then(|layer| sizes.layers.get_mut(layer)) {
                Some(layer) => *layer += bytes,
                None if all.is_first(&tensor.name) => {
                    sizes.fixed += bytes;
                    if gguf.tensor("output.weight").is_none() {
                        sizes.head += bytes; // tied: packed twice
                    }
                }
                None => sizes.head += bytes,
            }
        }
        sizes
    }

    fn of(&self, layers: usize, whole: bool) -> u64 {
        self.fixed + self.layers[..layers].iter().sum::<u64>() + if whole { self.head } else { 0 }
    }

    /// As many layers as fit into `free` bytes; none if not even one does.
    pub(crate) fn fit(&self, free: u64) -> Option<Plan> {
        let all = self.layers.len();
        if self.of(all, true) <= free {
            return Some(Plan { layers: all, whole: true, bytes: self.of(all, true) });
        }
        let layers = (1..=all).rev().find(|&layers| self.of(layers, false) <= free)?;
        Some(Plan { layers, whole: false, bytes: self.of(layers, false) })
    }

    /// The plan for a choice of layers and `free` bytes.
    pub(crate) fn plan(&self, file: &str, device: &str, choice: GpuLayers, free: u64) -> Result<Plan, Error> {
        let all = self.layers.len();
        let fitting = self.fit(free);
        let count = match choice {
            GpuLayers::Auto => None,
            GpuLayers::Count(count) => Some(count.min(all)),
        };
        let plan = match count {
            None => fitting,
            Some(count) => {
                let whole = count == all;
                Some(Plan { layers: count, whole, bytes: self.of(count, whole) }).filter(|plan| plan.bytes <= free)
            }
        };
        plan.ok_or_else(|| Error::GpuMemory {
            file: file.to_owned(),
            device: device.to_owned(),
            layers: count.unwrap_or(1),
            needed: self.of(count.unwrap_or(1), count == Some(all)),
            free,
            fitting: fitting.map_or(0, |plan| plan.layers),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Sizes {
        Sizes { fixed: 10, layers: vec![5; 4], head: 7 }
    }

    #[test]
    fn as_many_layers_as_fit() {
        let plan = |layers, whole, bytes| Some(Plan { layers, whole, bytes });
        for (free, wanted) in [
            (14, None),
            (15, plan(1, false, 15)),
            (24, plan(2, false, 20)),
            (36, plan(4, false, 30)),
            (37, plan(4, true, 37)),
        ] {
            assert_eq!(sizes().fit(free), wanted, "{free}");
        }
    }

    #[test]
    fn a_count_that_does_not_fit_is_refused_with_one_that_does() {
        let plan = sizes().plan("m.gguf", "card", GpuLayers::Count(3), 25).ok();
        assert_eq!(plan, Some(Plan { layers: 3, whole: false, bytes: 25 }));
        for (choice, free, layers, needed, fitting) in
            [(GpuLayers::Count(3), 24, 3, 25, 2), (GpuLayers::Count(9), 30, 4, 37, 4), (GpuLayers::Auto, 14, 1, 15, 0)]
        {
            match sizes().plan("m.gguf", "card", choice, free) {
                Err(Error::GpuMemory { layers: l, needed: n, fitting: f, .. }) => {
                    assert_eq!((l, n, f), (layers, needed, fitting));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
