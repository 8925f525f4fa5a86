//! The operations that a forward pass is written in.
//!
//! A backend owns the weights it was given and the buffers it handed out. Buffers are allocated once, for a greatest
//! number of rows; every operation sets the row count of what it writes. Shapes in the comments are
//! `[rows, features]`, row-major.

use crate::weights::{ComputeError, Weights};

/// How rotary position embedding pairs the features of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Features 2i and 2i + 1 rotate together (GGUF's convention for `llada`).
    Interleaved,
    /// Features i and i + K/2 rotate together (`dream`, the Qwen family).
    HalfSplit,
}

/// Rotary position embedding: pair i of position p turns by `p * theta^(-2i / dims)` (RoFormer, section 3.2.2).
#[derive(Clone, Copy, Debug)]
pub struct RopeSpec {
    /// Pairing.
    pub style: RopeStyle,
    /// Features per head (K); all of them rotate.
    pub head_dim: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// Positions the table must cover.
    pub positions: usize,
}

/// Which canvas positions the rows of an attention may attend to.
#[derive(Clone, Copy, Debug)]
pub enum Visibility {
    /// Every row sees positions `0..len`, before and after itself.
    Bidirectional {
        /// Positions on the canvas.
        len: usize,
    },
    /// Row r sees positions `0..len` without position `first + r`: rows that shadow a block don't see what they stand for.
    Shadow {
        /// Positions on the canvas, and the shadow's behind them.
        len: usize,
        /// The position that the first row shadows.
        first: usize,
    },
}

impl Visibility {
    /// How many positions are looked at.
    pub fn len(self) -> usize {
        match self {
            Visibility::Bidirectional { len } | Visibility::Shadow { len, .. } => len,
        }
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The position that `row` doesn't see.
    pub fn hidden(self, row: usize) -> Option<usize> {
        match self {
            Visibility::Bidirectional { .. } => None,
            Visibility::Shadow { first, .. } => Some(first + row),
        }
    }
}

/// What greedy decoding needs to know of one row of logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowStatistics {
    /// The token with the greatest logit (the lowest id among equals), excluded tokens aside.
    pub token: u32,
    /// Softmax probability of `token` over the whole vocabulary.
    pub probability: f64,
    /// Softmax probability of the second-best token, excluded tokens aside; 0 if there is none.
    pub runner_up: f64,
    /// Entropy of the softmax in nats.
    pub entropy: f64,
    /// Whether all logits of the row were finite. The other fields mean nothing if not.
    pub finite: bool,
}

/// By which rule a token is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingRule {
    /// The greatest `l - T ln(-ln U)`, with a U of its own for every token; probabilities are those of the plain softmax.
    Gumbel,
    /// Where the running sum of `e^(l / T)` passes U times its total; probabilities are those at the temperature.
    Categorical,
}

/// What a token is drawn from and for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingPlace {
    /// Row of the operand.
    pub row: u32,
    /// Position on the canvas.
    pub position: u32,
}

/// How tokens are drawn from rows of logits. The random numbers have addresses, so that it doesn't matter who draws:
/// Philox4x32-10 (Salmon et al. 2011) under the halves of the seed, at counter (index / 2, step, position, 0), gives two
/// draws of 64 bits, of which `index % 2` chooses one; U is `((draw >> 11) + 0.5) / 2^53`. The index is the token for
/// the Gumbel rule and 0 for the other.
#[derive(Clone, Copy, Debug)]
pub struct Sampling<'a> {
    /// The rule.
    pub rule: SamplingRule,
    /// T, above 0.
    pub temperature: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Denoising step.
    pub step: u32,
    /// A token that is never drawn, though it keeps its share of the probabilities.
    pub mask_token: u32,
    /// What is drawn, rows ascending. A row may be drawn from for several positions.
    pub places: &'a [SamplingPlace],
}

/// A token that was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The token.
    pub token: u32,
    /// Its probability.
    pub probability: f64,
    /// Lead of the best token's probability over the second's, the mask token aside.
    pub margin: f64,
    /// Entropy in nats of the distribution that the rule counts probabilities in.
    pub entropy: f64,
    /// Entropy in nats of the plain softmax.
    pub plain_entropy: f64,
    /// Whether all logits of the row were finite. The other fields mean nothing if not.
    pub finite: bool,
}

/// A device that runs a transformer.
pub trait Backend: Send + Sync {
    /// A weight matrix in the backend's own packed form.
    type Matrix: Send + Sync;
    /// An f32 vector: norm weights, biases.
    type Vector: Send + Sync;
    /// The embedding table, read a row at a time.
    type Table: Send + Sync;
    /// Cosines and sines of a [`RopeSpec`].
    type RopeTable: Send + Sync;
    /// Activations in f32.
    type Rows: Send;
    /// Activations in the form that [`Backend::linear`] multiplies.
    type Operand: Send;
    /// Keys and values of all layers, by canvas position.
    type Kv: Send;

    /// Says which tensor the next upload is, for backends that put different layers in different places.
    fn place(&self, _tensor: &str) {}
    /// What went wrong in this thread's operations since it last asked. Operations themselves don't fail: after a fault
    /// they do nothing, and what they should have written means nothing.
    fn status(&self) -> Result<(), ComputeError> {
        Ok(())
    }

    /// Packs a weight matrix.
    fn matrix(&self, weights: &Weights) -> Result<Self::Matrix, ComputeError>;
    /// Uploads a vector.
    fn vector(&self, values: &[f32]) -> Self::Vector;
    /// Takes an embedding table `[V, D]`.
    fn table(&self, weights: &Weights) -> Result<Self::Table, ComputeError>;
    /// Computes rotation tables.
    fn rope_table(&self, spec: &RopeSpec) -> Self::RopeTable;
    /// Allocates activations `[max_rows, width]`.
    fn rows(&self, max_rows: usize, width: usize) -> Self::Rows;
    /// Allocates an operand `[max_rows, width]`.
    fn operand(&self, max_rows: usize, width: usize) -> Self::Operand;
    /// Allocates keys and values: `layers` times `[positions, kv_heads * head_dim]`.
    fn kv(&self, layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> Self::Kv;

    /// `out[r] = table[tokens[r]]`.
    fn embed(&self, table: &Self::Table, tokens: &[u32], out: &mut Self::Rows);
    /// `out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight` (Zhang and Sennrich 2019).
    fn rms_norm(&self, x: &Self::Rows, weight: &Self::Vector, eps: f32, out: &mut Self::Operand);
    /// `out = x * w^T (+ bias)`: x `[R, K]`, w `[N, K]`, out `[R, N]`.
    fn linear(&self, x: &Self::Operand, w: &Self::Matrix, bias: Option<&Self::Vector>, out: &mut Self::Rows);
    /// `out += x * w^T`: the projection back into the residual stream.
    fn linear_add(&self, x: &Self::Operand, w: &Self::Matrix, out: &mut Self::Rows);
    /// Rotates every head of row r for position `positions[r]`.
    fn rope(&self, x: &mut Self::Rows, positions: &[u32], table: &Self::RopeTable);
    /// Overwrites keys and values of `layer` at `positions`.
    fn kv_write(&self, k: &Self::Rows, v: &Self::Rows, layer: usize, positions: &[u32], kv: &mut Self::Kv);
    /// `out[r] = softmax(q[r] * K^T / sqrt(head_dim)) * V` per head; head h reads kv head `h * G / H`.
    fn attention(&self, q: &Self::Rows, kv: &Self::Kv, layer: usize, visible: Visibility, out: &mut Self::Operand);
    /// `out = silu(gate) * up` (Shazeer 2020, SwiGLU).
    fn silu_mul(&self, gate: &Self::Rows, up: &Self::Rows, out: &mut Self::Operand);
    /// `out = silu(x * gate^T) * (x * up^T)`, in one what [`Backend::linear`], again [`Backend::linear`] and
    /// [`Backend::silu_mul`] give. What the room for both products holds afterwards means nothing.
    fn gated_linear(
        &self,
        x: &Self::Operand,
        [gate, up]: [&Self::Matrix; 2],
        room: [&mut Self::Rows; 2],
        out: &mut Self::Operand,
    ) {
        gated_in_steps(self, x, [gate, up], room, out);
    }
    /// Keeps only the rows at `indices` (ascending), in place.
    fn select(&self, x: &mut Self::Rows, indices: &[u32]);
    /// Statistics of each row of `x * head^T`; tokens in `excluded` are never chosen. `[R, V]` is never stored.
    fn row_statistics(&self, x: &Self::Operand, head: &Self::Matrix, excluded: &[u32], out: &mut Vec<RowStatistics>);
    /// Draws tokens from rows of `x * head^T`, one per place, all in f64. False if the backend doesn't draw: then the caller
    /// does, from [`Backend::logits`].
    fn sample(
        &self,
        _x: &Self::Operand,
        _head: &Self::Matrix,
        _sampling: &Sampling<'_>,
        _out: &mut Vec<Sample>,
    ) -> bool {
        false
    }
    /// `out = x * head^T` on the host: `[R, V]`.
    fn logits(&self, x: &Self::Operand, head: &Self::Matrix, out: &mut Vec<f32>);

    /// Reads activations back, for tests and tools.
    fn read(&self, x: &Self::Rows) -> Vec<f32>;
    /// Writes activations from the host, for tests: `values` is `[R, width]`.
    fn write(&self, values: &[f32], out: &mut Self::Rows);
    /// Quantises f32 rows into an operand without any norm, for tests.
    fn quantize(&self, x: &Self::Rows, out: &mut Self::Operand);
}

/// [`Backend::gated_linear`] as the operations that it stands for.
pub(crate) fn gated_in_steps<B: Backend + ?Sized>(
    backend: &B,
    x: &B::Operand,
    [gate, up]: [&B::Matrix; 2],
    [gated, upped]: [&mut B::Rows; 2],
    out: &mut B::Operand,
) {
    backend.linear(x, gate, None, gated);
    backend.linear(x, up, None, upped);
    backend.silu_mul(gated, upped, out);
}
