//! The weights of one LLaMA-shaped layer, by their names in the file: what LLaDA and Dream have in common.

use demask_compute::Backend;

use super::ModelSpec;
use crate::error::Error;
use crate::weights::{Projection, WeightSource};

/// Shapes as in the forward passes: D width, H heads, G kv heads, K head dim, F ffn width.
pub(super) struct Layer<B: Backend> {
    /// `[D]`.
    pub(super) attn_norm: B::Vector,
    /// `[H*K, D]`.
    pub(super) attn_q: Projection<B>,
    /// `[G*K, D]`.
    pub(super) attn_k: Projection<B>,
    /// `[G*K, D]`.
    pub(super) attn_v: Projection<B>,
    /// `[D, H*K]`.
    pub(super) attn_output: B::Matrix,
    /// `[D]`.
    pub(super) ffn_norm: B::Vector,
    /// `[F, D]`.
    pub(super) ffn_gate: B::Matrix,
    /// `[F, D]`.
    pub(super) ffn_up: B::Matrix,
    /// `[D, F]`.
    pub(super) ffn_down: B::Matrix,
}

/// Whether queries, keys and values have biases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Biases {
    /// As the file has it.
    Optional,
    /// A file without them is refused.
    Required,
}

impl<B: Backend> Layer<B> {
    /// Every layer, from the first to the last.
    pub(super) fn load_all(
        from: &mut WeightSource<'_, B>,
        spec: &ModelSpec,
        biases: Biases,
    ) -> Result<Vec<Self>, Error> {
        (0..spec.layers).map(|n| Layer::load(from, spec, biases, n)).collect()
    }

    fn load(from: &mut WeightSource<'_, B>, spec: &ModelSpec, biases: Biases, n: usize) -> Result<Self, Error> {
        let (d, q, kv, f) = (spec.width, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.ffn);
        let name = |tensor: &str| format!("blk.{n}.{tensor}");
        let projection = match biases {
            Biases::Optional => WeightSource::projection,
            Biases::Required => WeightSource::biased_projection,
        };
        Ok(Layer {
            attn_norm: from.vector(&name("attn_norm.weight"), d)?,
            attn_q: projection(from, &name("attn_q"), q, d)?,
            attn_k: projection(from, &name("attn_k"), kv, d)?,
            attn_v: projection(from, &name("attn_v"), kv, d)?,
            attn_output: from.matrix(&name("attn_output.weight"), d, q)?,
            ffn_norm: from.vector(&name("ffn_norm.weight"), d)?,
            ffn_gate: from.matrix(&name("ffn_gate.weight"), f, d)?,
            ffn_up: from.matrix(&name("ffn_up.weight"), f, d)?,
            ffn_down: from.matrix(&name("ffn_down.weight"), d, f)?,
        })
    }
}
