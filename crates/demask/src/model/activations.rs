//! What a forward pass works in: the activations of one canvas, its keys and its values.

use demask_compute::{Backend, RopeSpec};

use super::{FaultWatch, ModelSpec, Output, Plan, Prediction};
use crate::error::Error;

/// Buffers for a canvas, allocated once. Row counts follow the plan.
pub(super) struct Activations<B: Backend> {
    /// Rotations of the canvas's positions.
    pub(super) rope: B::RopeTable,
    /// Keys and values by canvas position.
    pub(super) kv: B::Kv,
    /// The residual stream, `[R, D]`.
    pub(super) x: B::Rows,
    /// `x` after a norm, `[R, D]`.
    pub(super) normed: B::Operand,
    /// Queries, `[R, H*K]`.
    pub(super) q: B::Rows,
    /// Keys of the rows run, `[R, G*K]`.
    pub(super) k: B::Rows,
    /// Values of the rows run, `[R, G*K]`.
    pub(super) v: B::Rows,
    /// What attention gathered, `[R, H*K]`.
    pub(super) attended: B::Operand,
    /// `[R, F]`.
    pub(super) gate: B::Rows,
    /// `[R, F]`.
    pub(super) up: B::Rows,
    /// `silu(gate) * up`, `[R, F]`.
    pub(super) gated: B::Operand,
    /// Tokens of the rows run.
    pub(super) tokens: Vec<u32>,
    /// Positions of the rows run.
    pub(super) positions: Vec<u32>,
    /// Where their keys and values go.
    pub(super) slots: Vec<u32>,
    /// Where the wanted rows stand among the rows run.
    wanted: Vec<u32>,
    /// Looks for numbers that aren't finite, if asked to.
    pub(super) faults: FaultWatch,
}

impl<B: Backend> Activations<B> {
    pub(super) fn new(b: &B, s: &ModelSpec, positions: usize) -> Self {
        let (l, q, kv) = (positions, s.heads * s.head_dim, s.kv_heads * s.head_dim);
        Activations {
            // As long as the canvas, not as the context that a file claims.
            rope: b.rope_table(&RopeSpec { positions: l, ..s.rope }),
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
            slots: Vec::with_capacity(l),
            wanted: Vec::with_capacity(l),
            faults: FaultWatch::default(),
        }
    }

    /// Takes the plan's rows.
    pub(super) fn begin(&mut self, tokens: &[u32], plan: &Plan<'_>) {
        self.positions.clear();
        self.positions.extend_from_slice(plan.rows);
        self.slots.clone_from(&self.positions);
        self.tokens.clear();
        self.tokens.extend(plan.rows.iter().map(|&p| tokens[p as usize]));
        self.wanted.clear();
        self.wanted.extend(plan.wanted.iter().map(|w| plan.rows.partition_point(|r| r < w) as u32));
    }

    /// Takes the plan's rows as a masked shadow: their keys and values go behind the canvas of `len` positions.
    pub(super) fn begin_shadow(&mut self, mask_token: u32, len: usize, plan: &Plan<'_>) {
        self.begin(&vec![mask_token; len], plan);
        self.slots.clear();
        self.slots.extend((len as u32..).take(plan.rows.len()));
    }

    /// Looks at `x` after so many layers, if asked to.
    pub(super) fn watch(&mut self, b: &B, layers: usize) {
        if self.faults.is_looking() {
            self.faults.look(&b.read(&self.x), &self.positions, layers);
        }
    }

    /// Keeps only the wanted rows of `x` and their positions.
    pub(super) fn keep_wanted(&mut self, b: &B, plan: &Plan<'_>) {
        b.select(&mut self.x, &self.wanted);
        self.positions.clear();
        self.positions.extend_from_slice(plan.wanted);
    }
}

impl Prediction {
    /// Scores the wanted rows: x `[W, D]`, head `[V, D]`. Here a fault of the device comes to light.
    pub(super) fn score<B: Backend>(
        &mut self,
        b: &B,
        x: &B::Operand,
        head: &B::Matrix,
        plan: &Plan<'_>,
    ) -> Result<(), Error> {
        self.rows.clear();
        self.rows.extend_from_slice(plan.wanted);
        self.statistics.clear();
        self.samples.clear();
        self.logits.clear();
        match plan.output {
            Output::Statistics { excluded } => b.row_statistics(x, head, excluded, &mut self.statistics),
            Output::Samples(sampling) if b.sample(x, head, &sampling, &mut self.samples) => {}
            Output::Samples(_) | Output::Logits => b.logits(x, head, &mut self.logits),
        }
        Ok(b.status()?)
    }
}
