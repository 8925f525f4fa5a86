//! Which type each tensor gets. The names of the mixtures are llama.cpp's, and so is what they stand for: the fixtures hold
//! the types that it chooses.

use std::collections::BTreeMap;

use anyhow::Result;
use demask_gguf::{Gguf, TensorInfo, TensorType};

/// A mixture that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Q4KM,
    Q5KM,
    Q6K,
    Q8_0,
}

/// Name, value of `general.file_type`, type of most tensors.
const TARGETS: [(Target, &str, u32, TensorType); 4] = [
    (Target::Q4KM, "Q4_K_M", 15, TensorType::Q4_K),
    (Target::Q5KM, "Q5_K_M", 17, TensorType::Q5_K),
    (Target::Q6K, "Q6_K", 18, TensorType::Q6_K),
    (Target::Q8_0, "Q8_0", 7, TensorType::Q8_0),
];

impl Target {
    /// Reads a name, in any case of letters.
    pub(crate) fn read(name: &str) -> Result<Target, String> {
        let found = TARGETS.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0);
        let names = TARGETS.map(|row| row.1).join(", ");
        found.ok_or_else(|| format!("it must be one of {names}"))
    }

    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    pub(super) fn file_type(self) -> u32 {
        self.row().2
    }

    fn base(self) -> TensorType {
        self.row().3
    }

    fn row(self) -> &'static (Target, &'static str, u32, TensorType) {
        TARGETS.iter().find(|row| row.0 == self).expect("every target has a row")
    }
}

/// A mixture for one model.
pub(super) struct Mix {
    target: Target,
    layers: u64,
    /// Whether the embedding table is the output matrix, too.
    tied: bool,
}

impl Mix {
    pub(super) fn of(gguf: &Gguf, target: Target) -> Result<Mix> {
        let architecture = gguf.metadata().require_string("general.architecture")?;
        let layers = gguf.metadata().u64(&format!("{architecture}.block_count"))?;
        let counted =
            || gguf.tensors().iter().filter_map(|tensor| layer_of(&tensor.name)).max().map_or(0, |last| last + 1);
        Ok(Mix { target, layers: layers.unwrap_or_else(counted), tied: gguf.tensor("output.weight").is_none() })
    }

    /// The type that a tensor is to have; none if it stays as it is.
    pub(super) fn wanted(&self, tensor: &TensorInfo) -> Option<TensorType> {
        let name = tensor.name.as_str();
        let is_matrix =
            tensor.dims.iter().filter(|&&dim| dim > 1).count() >= 2 || tensor.dims.len() >= 2 && tensor.dims[1] > 1;
        // Norms are vectors, and the router of experts is small and decides much.
        if !is_matrix
            || !name.ends_with("weight")
            || name.contains("_norm.weight")
            || name.contains("ffn_gate_inp.weight")
        {
            return None;
        }
        let base = self.target.base();
        if name == "output.weight" || (self.tied && name == "token_embd.weight") {
            let fits = tensor.row_len().is_multiple_of(base.block_len());
            return Some(if !fits || base == TensorType::Q8_0 { TensorType::Q8_0 } else { TensorType::Q6_K });
        }
        let mixed = matches!(self.target, Target::Q4KM | Target::Q5KM);
        let sensitive = name.contains("attn_v.weight") || name.contains("ffn_down");
        if mixed && sensitive && layer_of(name).is_some_and(|layer| self.has_more_bits(layer)) {
            return Some(TensorType::Q6_K);
        }
        if mixed && name.contains("attn_qkv.weight") {
            return Some(if self.target == Target::Q4KM { TensorType::Q5_K } else { TensorType::Q6_K });
        }
        Some(base)
    }

    /// The first and the last eighth of the layers, and every third between.
    fn has_more_bits(&self, layer: u64) -> bool {
        let eighth = self.layers / 8;
        layer < eighth || layer >= 7 * self.layers / 8 || (layer - eighth) % 3 == 2
    }
}

/// The type itself if rows are a whole number of its quant blocks, or the one that takes its place.
pub(super) fn fitting(ty: TensorType, row_len: u64) -> TensorType {
    let fits = |ty: TensorType| row_len.is_multiple_of(ty.block_len());
    let shorter = match ty {
        TensorType::Q4_K => TensorType::Q5_0,
        TensorType::Q5_K => TensorType::Q5_1,
        _ => TensorType::Q8_0,
    };
    [ty, shorter].into_iter().find(|&ty| fits(ty)).unwrap_or(TensorType::F16)
}

/// The layer in `blk.7.attn_v.weight`.
fn layer_of(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// `Q4_K 12, F32 9`, most first.
pub(super) fn counts(types: impl Iterator<Item = TensorType>) -> String {
    let mut counts: BTreeMap<TensorType, usize> = BTreeMap::new();
    types.for_each(|ty| *counts.entry(ty).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(ty, count)| (std::cmp::Reverse(count), ty));
    counts.iter().map(|(ty, count)| format!("{ty} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_sensitive_tensors_of_a_large_model_get_more_bits() {
        let mix = Mix { target: Target::Q4KM, layers: 32, tied: false };
        assert_eq!((0..32).filter(|&layer| mix.has_more_bits(layer)).count(), 16);
        let mix = Mix { target: Target::Q4KM, layers: 28, tied: false };
        assert_eq!((0..28).filter(|&layer| mix.has_more_bits(layer)).count(), 14);
    }

    #[test]
    fn rows_decide_what_fits() {
        assert_eq!(fitting(TensorType::Q4_K, 512), TensorType::Q4_K);
        assert_eq!(fitting(TensorType::Q4_K, 64), TensorType::Q5_0);
        assert_eq!(fitting(TensorType::Q5_K, 64), TensorType::Q5_1);
        assert_eq!(fitting(TensorType::Q6_K, 64), TensorType::Q8_0);
        assert_eq!(fitting(TensorType::Q6_K, 48), TensorType::F16);
    }
}
