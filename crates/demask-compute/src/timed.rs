//! A backend that tells where its time goes.
//!
//! It wraps another backend that finishes each operation before it returns, as the CPU does. The clock is the caller's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::{Backend, RopeSpec, RowStatistics, Sample, Sampling, Visibility};
use crate::weights::{ComputeError, Weights};

/// Reads a clock that never goes back: the time since some fixed moment.
pub type Clock = fn() -> Duration;

/// Time by kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Products with the layers' weights.
    pub linear: Duration,
    /// Attention, with rotations and the store of keys and values.
    pub attention: Duration,
    /// The head: logits or row statistics.
    pub head: Duration,
    /// Embeddings, norms, activations.
    pub other: Duration,
}

impl Split {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.linear + self.attention + self.head + self.other
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Split) -> Split {
        Split {
            linear: self.linear.saturating_sub(earlier.linear),
            attention: self.attention.saturating_sub(earlier.attention),
            head: self.head.saturating_sub(earlier.head),
            other: self.other.saturating_sub(earlier.other),
        }
    }
}

/// Sums that grow while a [`Timed`] backend works.
#[derive(Debug, Default)]
pub struct Stopwatch {
    nanoseconds: [AtomicU64; 4],
}

/// Where a sum stands.
#[derive(Clone, Copy)]
enum Kind {
    Linear,
    Attention,
    Head,
    Other,
}

impl Stopwatch {
    /// The sums so far.
    pub fn split(&self) -> Split {
        let sum = |kind: Kind| Duration::from_nanos(self.nanoseconds[kind as usize].load(Ordering::Relaxed));
        Split {
            linear: sum(Kind::Linear),
            attention: sum(Kind::Attention),
            head: sum(Kind::Head),
            other: sum(Kind::Other),
        }
    }
}

/// A backend and a stopwatch.
pub struct Timed<B> {
    inner: Arc<B>,
    clock: Clock,
    stopwatch: Arc<Stopwatch>,
}

impl<B> Timed<B> {
    /// Times the operations of `inner` by `clock`.
    pub fn new(inner: Arc<B>, clock: Clock) -> Timed<B> {
        Timed { inner, clock, stopwatch: Arc::default() }
    }

    /// The sums, which grow as the backend works.
    pub fn stopwatch(&self) -> Arc<Stopwatch> {
        Arc::clone(&self.stopwatch)
    }

    fn time<T>(&self, kind: Kind, operation: impl FnOnce(&B) -> T) -> T {
        let start = (self.clock)();
        let result = operation(&self.inner);
        let took = (self.clock)().saturating_sub(start);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.stopwatch.nanoseconds[kind as usize].fetch_add(nanoseconds, Ordering::Relaxed);
        result
    }
}

impl<B: Backend> Backend for Timed<B> {
    type Matrix = B::Matrix;
    type Vector = B::Vector;
    type Table = B::Table;
    type RopeTable = B::RopeTable;
    type Rows = B::Rows;
    type Operand = B::Operand;
    type Kv = B::Kv;

    fn place(&self, tensor: &str) {
        self.inner.place(tensor);
    }

    fn status(&self) -> Result<(), ComputeError> {
        self.inner.status()
    }

    fn matrix(&self, weights: &Weights) -> Result<B::Matrix, ComputeError> {
        self.inner.matrix(weights)
    }

    fn vector(&self, values: &[f32]) -> B::Vector {
        self.inner.vector(values)
    }

    fn table(&self, weights: &Weights) -> Result<B::Table, ComputeError> {
        self.inner.table(weights)
    }

    fn rope_table(&self, spec: &RopeSpec) -> B::RopeTable {
        self.inner.rope_table(spec)
    }

    fn rows(&self, max_rows: usize, width: usize) -> B::Rows {
        self.inner.rows(max_rows, width)
    }

    fn operand(&self, max_rows: usize, width: usize) -> B::Operand {
        self.inner.operand(max_rows, width)
    }

    fn kv(&self, layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> B::Kv {
        self.inner.kv(layers, positions, kv_heads, head_dim)
    }

    fn embed(&self, table: &B::Table, tokens: &[u32], out: &mut B::Rows) {
        self.time(Kind::Other, |b| b.embed(table, tokens, out));
    }

    fn rms_norm(&self, x: &B::Rows, weight: &B::Vector, eps: f32, out: &mut B::Operand) {
        self.time(Kind::Other, |b| b.rms_norm(x, weight, eps, out));
    }

    fn linear(&self, x: &B::Operand, w: &B::Matrix, bias: Option<&B::Vector>, out: &mut B::Rows) {
        self.time(Kind::Linear, |b| b.linear(x, w, bias, out));
    }

    fn linear_add(&self, x: &B::Operand, w: &B::Matrix, out: &mut B::Rows) {
        self.time(Kind::Linear, |b| b.linear_add(x, w, out));
    }

    fn rope(&self, x: &mut B::Rows, positions: &[u32], table: &B::RopeTable) {
        self.time(Kind::Attention, |b| b.rope(x, positions, table));
    }

    fn kv_write(&self, k: &B::Rows, v: &B::Rows, layer: usize, positions: &[u32], kv: &mut B::Kv) {
        self.time(Kind::Attention, |b| b.kv_write(k, v, layer, positions, kv));
    }

    fn attention(&self, q: &B::Rows, kv: &B::Kv, layer: usize, visible: Visibility, out: &mut B::Operand) {
        self.time(Kind::Attention, |b| b.attention(q, kv, layer, visible, out));
    }

    fn silu_mul(&self, gate: &B::Rows, up: &B::Rows, out: &mut B::Operand) {
        self.time(Kind::Other, |b| b.silu_mul(gate, up, out));
    }

    fn gated_linear(&self, x: &B::Operand, w: [&B::Matrix; 2], room: [&mut B::Rows; 2], out: &mut B::Operand) {
        self.time(Kind::Linear, |b| b.gated_linear(x, w, room, out));
    }

    fn select(&self, x: &mut B::Rows, indices: &[u32]) {
        self.time(Kind::Other, |b| b.select(x, indices));
    }

    fn row_statistics(&self, x: &B::Operand, head: &B::Matrix, excluded: &[u32], out: &mut Vec<RowStatistics>) {
        self.time(Kind::Head, |b| b.row_statistics(x, head, excluded, out));
    }

    fn sample(&self, x: &B::Operand, head: &B::Matrix, sampling: &Sampling<'_>, out: &mut Vec<Sample>) -> bool {
        self.time(Kind::Head, |b| b.sample(x, head, sampling, out))
    }

    fn logits(&self, x: &B::Operand, head: &B::Matrix, out: &mut Vec<f32>) {
        self.time(Kind::Head, |b| b.logits(x, head, out));
    }

    fn read(&self, x: &B::Rows) -> Vec<f32> {
        self.inner.read(x)
    }

    fn write(&self, values: &[f32], out: &mut B::Rows) {
        self.inner.write(values, out);
    }

    fn quantize(&self, x: &B::Rows, out: &mut B::Operand) {
        self.inner.quantize(x, out);
    }
}
