//! LLaDA (Nie et al. 2025): a LLaMA-shaped transformer without a causal mask.
//!
//! Shapes: R rows run, W rows wanted, D width, H heads, G kv heads, K head dim, F ffn width, V vocabulary.

use std::sync::Arc;

use demask_compute::{Backend, Visibility};

use super::{MaskPredictor, ModelSpec, Output, Plan, Prediction};
use crate::error::Error;
use crate::weights::{Projection, WeightSource};

/// The weights, by their names in the file.
pub(super) struct Llada<B: Backend> {
    spec: ModelSpec,
    backend: Arc<B>,
    rope: B::RopeTable,
    token_embd: B::Table,
    layers: Vec<Layer<B>>,
    output_norm: B::Vector,
    output: B::Matrix,
}

struct Layer<B: Backend> {
    attn_norm: B::Vector,
    attn_q: Projection<B>,
    attn_k: Projection<B>,
    attn_v: Projection<B>,
    attn_output: B::Matrix,
    ffn_norm: B::Vector,
    ffn_gate: B::Matrix,
    ffn_up: B::Matrix,
    ffn_down: B::Matrix,
}

impl<B: Backend> Llada<B> {
    pub(super) fn load(from: &mut WeightSource<'_, B>, spec: ModelSpec, backend: Arc<B>) -> Result<Self, Error> {
        let (d, q, kv, f) = (spec.width, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.ffn);
        let layer = |from: &mut WeightSource<'_, B>, n: usize| -> Result<Layer<B>, Error> {
            let name = |tensor: &str| format!("blk.{n}.{tensor}");
            Ok(Layer {
                attn_norm: from.vector(&name("attn_norm.weight"), d)?,
                attn_q: from.projection(&name("attn_q"), q, d)?,
                attn_k: from.projection(&name("attn_k"), kv, d)?,
                attn_v: from.projection(&name("attn_v"), kv, d)?,
                attn_output: from.matrix(&name("attn_output.weight"), d, q)?,
                ffn_norm: from.vector(&name("ffn_norm.weight"), d)?,
                ffn_gate: from.matrix(&name("ffn_gate.weight"), f, d)?,
                ffn_up: from.matrix(&name("ffn_up.weight"), f, d)?,
                ffn_down: from.matrix(&name("ffn_down.weight"), d, f)?,
            })
        };
        Ok(Llada {
            rope: backend.rope_table(&spec.rope),
            token_embd: from.table("token_embd.weight", spec.vocab, d)?,
            layers: (0..spec.layers).map(|n| layer(from, n)).collect::<Result<_, _>>()?,
            output_norm: from.vector("output_norm.weight", d)?,
            output: from.matrix_or_tied("output.weight", "token_embd.weight", spec.vocab, d)?,
            backend,
            spec,
        })
    }
}

/// A canvas's activations, keys and values.
pub(super) struct Forward<B: Backend> {
    model: Arc<Llada<B>>,
    kv: B::Kv,
    x: B::Rows,
    normed: B::Operand,
    q: B::Rows,
    k: B::Rows,
    v: B::Rows,
    attended: B::Operand,
    gate: B::Rows,
    up: B::Rows,
    gated: B::Operand,
    tokens: Vec<u32>,
    positions: Vec<u32>,
}

impl<B: Backend> Forward<B> {
    pub(super) fn new(model: Arc<Llada<B>>, l: usize) -> Self {
        let (b, s) = (&*model.backend, &model.spec);
        let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
        Forward {
            kv: b.kv(s.layers, l, s.kv_heads, s.head_dim),
            x: b.rows(l, s.width),
            normed: b.operand(l, s.width),
            q: b.rows(l, q),
            k: b.rows(l, kv),
            v: b.rows(l, kv),
            attended: b.operand(l, q),
            gate: b.rows(l, s.ffn),
            up: b.rows(l, s.ffn),
            gated: b.operand(l, s.ffn),
            tokens: Vec::with_capacity(l),
            positions: Vec::with_capacity(l),
            model,
        }
    }
}

impl<B: Backend> MaskPredictor for Forward<B> {
    fn spec(&self) -> &ModelSpec {
        &self.model.spec
    }

    fn predict(&mut self, tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        let Llada { spec, backend: b, rope, token_embd, layers, output_norm, output } = &*self.model;
        let eps = spec.norm_eps;
        let visible = Visibility::Bidirectional { len: tokens.len() };
        self.positions.clear();
        self.positions.extend_from_slice(plan.rows);
        self.tokens.clear();
        self.tokens.extend(plan.rows.iter().map(|&p| tokens[p as usize]));

        b.embed(token_embd, &self.tokens, &mut self.x); // x [R, D]
        for (n, layer) in layers.iter().enumerate() {
            b.rms_norm(&self.x, &layer.attn_norm, eps, &mut self.normed); // [R, D]
            layer.attn_k.apply(&**b, &self.normed, &mut self.k); // [R, G*K]
            layer.attn_v.apply(&**b, &self.normed, &mut self.v); // [R, G*K]
            b.rope(&mut self.k, &self.positions, rope);
            b.kv_write(&self.k, &self.v, n, &self.positions, &mut self.kv);
            if n + 1 == layers.len() {
                // Past the last keys and values only the wanted rows matter: R becomes W.
                keep_wanted(&**b, plan, &mut self.x, &mut self.positions);
                b.rms_norm(&self.x, &layer.attn_norm, eps, &mut self.normed); // [W, D]
            }
            layer.attn_q.apply(&**b, &self.normed, &mut self.q); // [R, H*K]
            b.rope(&mut self.q, &self.positions, rope);
            b.attention(&self.q, &self.kv, n, visible, &mut self.attended); // [R, H*K]
            b.linear_add(&self.attended, &layer.attn_output, &mut self.x); // x [R, D]

            b.rms_norm(&self.x, &layer.ffn_norm, eps, &mut self.normed); // [R, D]
            b.linear(&self.normed, &layer.ffn_gate, None, &mut self.gate); // [R, F]
            b.linear(&self.normed, &layer.ffn_up, None, &mut self.up); // [R, F]
            b.silu_mul(&self.gate, &self.up, &mut self.gated); // [R, F]
            b.linear_add(&self.gated, &layer.ffn_down, &mut self.x); // x [R, D]
        }
        b.rms_norm(&self.x, output_norm, eps, &mut self.normed); // [W, D]
        out.head(&**b, &self.normed, output, plan); // [W, V], as statistics or logits
        Ok(())
    }
}

/// Keeps the wanted rows of `x` and their positions.
fn keep_wanted<B: Backend>(b: &B, plan: &Plan<'_>, x: &mut B::Rows, positions: &mut Vec<u32>) {
    let indices: Vec<u32> = plan.wanted.iter().map(|w| plan.rows.partition_point(|r| r < w) as u32).collect();
    b.select(x, &indices);
    positions.clear();
    positions.extend_from_slice(plan.wanted);
}

impl Prediction {
    /// Scores the wanted rows: x `[W, D]`, head `[V, D]`.
    fn head<B: Backend>(&mut self, b: &B, x: &B::Operand, head: &B::Matrix, plan: &Plan<'_>) {
        self.rows.clear();
        self.rows.extend_from_slice(plan.wanted);
        self.statistics.clear();
        self.logits.clear();
        match plan.output {
            Output::Statistics { excluded } => b.row_statistics(x, head, excluded, &mut self.statistics),
            Output::Logits => b.logits(x, head, &mut self.logits),
        }
    }
}
