//! LLaDA (Nie et al. 2025): a LLaMA-shaped transformer without a causal mask.
//!
//! Shapes: R rows run, W rows wanted, D width, H heads, G kv heads, K head dim, F ffn width, V vocabulary.

use std::sync::Arc;

use demask_compute::{Backend, Visibility};

use super::activations::Activations;
use super::layer::{Biases, Layer};
use super::{FaultWatch, MaskPredictor, ModelSpec, Output, Plan, Prediction};
use crate::error::Error;
use crate::weights::WeightSource;

/// The weights, by their names in the file.
pub(super) struct Llada<B: Backend> {
    spec: ModelSpec,
    backend: Arc<B>,
    token_embd: B::Table,
    layers: Vec<Layer<B>>,
    output_norm: B::Vector,
    output: B::Matrix,
}

impl<B: Backend> Llada<B> {
    pub(super) fn load(from: &mut WeightSource<'_, B>, spec: ModelSpec, backend: Arc<B>) -> Result<Self, Error> {
        Ok(Llada {
            token_embd: from.table("token_embd.weight", spec.vocab, spec.width)?,
            layers: Layer::load_all(from, &spec, Biases::Optional)?,
            output_norm: from.vector("output_norm.weight", spec.width)?,
            output: from.matrix_or_tied("output.weight", "token_embd.weight", spec.vocab, spec.width)?,
            backend,
            spec,
        })
    }
}

/// The model over one canvas.
pub(super) struct Forward<B: Backend> {
    model: Arc<Llada<B>>,
    activations: Activations<B>,
}

impl<B: Backend> Forward<B> {
    pub(super) fn new(model: Arc<Llada<B>>, positions: usize) -> Self {
        let activations = Activations::new(&*model.backend, &model.spec, positions);
        Forward { model, activations }
    }
}

impl<B: Backend> MaskPredictor for Forward<B> {
    fn spec(&self) -> &ModelSpec {
        &self.model.spec
    }

    fn predict(&mut self, tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        self.activations.begin(tokens, plan);
        self.run(Visibility::Bidirectional { len: tokens.len() }, plan, out)
    }

    fn predict_shadow(&mut self, tokens: &[u32], rows: &[u32], out: &mut Prediction) -> Result<(), Error> {
        let (len, first) = (tokens.len(), rows.first().map_or(0, |&row| row as usize));
        let plan = Plan { rows, wanted: rows, output: Output::Logits };
        self.activations.begin_shadow(self.model.spec.mask_token, len, &plan);
        self.run(Visibility::Shadow { len: len + rows.len(), first }, &plan, out)
    }

    fn row_values(&self, out: &mut Vec<f32>) -> Result<(), Error> {
        *out = self.model.backend.read(&self.activations.v); // [R, G*K] of the last layer
        Ok(self.model.backend.status()?)
    }

    fn fault_watch(&mut self) -> Option<&mut FaultWatch> {
        Some(&mut self.activations.faults)
    }
}

impl<B: Backend> Forward<B> {
    fn run(&mut self, visible: Visibility, plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        let Llada { spec, backend, token_embd, layers, output_norm, output } = &*self.model;
        let (b, a, eps) = (&**backend, &mut self.activations, spec.norm_eps);

        b.embed(token_embd, &a.tokens, &mut a.x); // x [R, D]
        for (n, layer) in layers.iter().enumerate() {
            a.watch(b, n);
            b.rms_norm(&a.x, &layer.attn_norm, eps, &mut a.normed); // [R, D]
            layer.attn_k.apply(b, &a.normed, &mut a.k); // [R, G*K]
            layer.attn_v.apply(b, &a.normed, &mut a.v); // [R, G*K]
            b.rope(&mut a.k, &a.positions, &a.rope);
            b.kv_write(&a.k, &a.v, n, &a.slots, &mut a.kv);
            if n + 1 == layers.len() {
                // Past the last keys and values only the wanted rows matter: R becomes W.
                a.keep_wanted(b, plan);
                b.rms_norm(&a.x, &layer.attn_norm, eps, &mut a.normed); // [W, D]
            }
            layer.attn_q.apply(b, &a.normed, &mut a.q); // [R, H*K]
            b.rope(&mut a.q, &a.positions, &a.rope);
            b.attention(&a.q, &a.kv, n, visible, &mut a.attended); // [R, H*K]
            b.linear_add(&a.attended, &layer.attn_output, &mut a.x); // x [R, D]

            b.rms_norm(&a.x, &layer.ffn_norm, eps, &mut a.normed); // [R, D]
            let (weights, room) = ([&layer.ffn_gate, &layer.ffn_up], [&mut a.gate, &mut a.up]);
            b.gated_linear(&a.normed, weights, room, &mut a.gated); // [R, F]
            b.linear_add(&a.gated, &layer.ffn_down, &mut a.x); // x [R, D]
        }
        a.watch(b, layers.len());
        b.rms_norm(&a.x, output_norm, eps, &mut a.normed); // [W, D]
        out.score(b, &a.normed, output, plan) // [W, V], as statistics or logits
    }
}
