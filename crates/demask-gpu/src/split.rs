//! Two backends as one: the first layers of a model on one, the rest and the head on the other.
//!
//! Weights are placed by their tensor's name; activations move when an operation's weights are on the other side.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use demask_compute::{Backend, ComputeError, RopeSpec, RowStatistics, Sample, Sampling, Visibility, Weights};

/// Where a model's parts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Layers on the first backend.
    pub layers: usize,
}

impl Placement {
    /// Whether a tensor belongs on the first backend: the embedding table and the first layers do.
    pub fn is_first(&self, tensor: &str) -> bool {
        match tensor.strip_prefix("blk.").and_then(|rest| rest.split('.').next()) {
            Some(number) => number.parse::<usize>().is_ok_and(|layer| layer < self.layers),
            None => tensor.starts_with("token_embd"),
        }
    }
}

/// Two backends as one.
pub struct Split<A, B> {
    first: Arc<A>,
    second: Arc<B>,
    placement: Placement,
    /// Where the next upload goes.
    to_first: AtomicBool,
}

/// Something on one of the two sides.
pub enum Side<A, B> {
    /// On the first.
    First(A),
    /// On the second.
    Second(B),
}

impl<A, B> Side<A, B> {
    fn first(&self) -> &A {
        match self {
            Side::First(first) => first,
            Side::Second(_) => unreachable!("weights of one layer are on one side"),
        }
    }

    fn second(&self) -> &B {
        match self {
            Side::Second(second) => second,
            Side::First(_) => unreachable!("weights of one layer are on one side"),
        }
    }
}

/// Activations with room on both sides, valid on one. They move when they are needed, also where they are only read.
pub struct Both<A, B> {
    sides: RefCell<(A, B)>,
    on_first: Cell<bool>,
}

/// Operands on both sides, valid on one. They don't move: the weights that they are multiplied by lie where they were
/// made.
pub struct Operands<A, B> {
    first: A,
    second: B,
    on_first: bool,
}

impl<A, B> Operands<A, B> {
    fn first(&self) -> &A {
        assert!(self.on_first, "the operand lies with the weights");
        &self.first
    }

    fn second(&self) -> &B {
        assert!(!self.on_first, "the operand lies with the weights");
        &self.second
    }
}

impl<A: Backend, B: Backend> Split<A, B> {
    /// Splits a model between two backends.
    pub fn new(first: Arc<A>, second: Arc<B>, placement: Placement) -> Split<A, B> {
        Split { first, second, placement, to_first: AtomicBool::new(true) }
    }

    fn goes_first(&self) -> bool {
        self.to_first.load(Ordering::Relaxed)
    }

    /// Activations, brought to the first side.
    fn on_first<'a>(&self, x: &'a Both<A::Rows, B::Rows>) -> RefMut<'a, A::Rows> {
        let mut sides = x.sides.borrow_mut();
        if !x.on_first.replace(true) {
            let values = self.second.read(&sides.1);
            self.first.write(&values, &mut sides.0);
        }
        RefMut::map(sides, |sides| &mut sides.0)
    }

    /// Activations, brought to the second side.
    fn on_second<'a>(&self, x: &'a Both<A::Rows, B::Rows>) -> RefMut<'a, B::Rows> {
        let mut sides = x.sides.borrow_mut();
        if x.on_first.replace(false) {
            let values = self.first.read(&sides.0);
            self.second.write(&values, &mut sides.1);
        }
        RefMut::map(sides, |sides| &mut sides.1)
    }
}

impl<A: Backend, B: Backend> Backend for Split<A, B> {
    type Matrix = Side<A::Matrix, B::Matrix>;
    type Vector = Side<A::Vector, B::Vector>;
    type Table = Side<A::Table, B::Table>;
    type RopeTable = (A::RopeTable, B::RopeTable);
    type Rows = Both<A::Rows, B::Rows>;
    type Operand = Operands<A::Operand, B::Operand>;
    type Kv = (A::Kv, B::Kv);

    fn place(&self, tensor: &str) {
        self.to_first.store(self.placement.is_first(tensor), Ordering::Relaxed);
        self.first.place(tensor);
        self.second.place(tensor);
    }

    fn status(&self) -> Result<(), ComputeError> {
        // Both are asked, so that neither keeps a fault for later.
        let (first, second) = (self.first.status(), self.second.status());
        first.and(second)
    }

    fn matrix(&self, weights: &Weights) -> Result<Self::Matrix, ComputeError> {
        Ok(if self.goes_first() {
            Side::First(self.first.matrix(weights)?)
        } else {
            Side::Second(self.second.matrix(weights)?)
        })
    }

    fn vector(&self, values: &[f32]) -> Self::Vector {
        if self.goes_first() {
            Side::First(self.first.vector(values))
        } else {
            Side::Second(self.second.vector(values))
        }
    }

    fn table(&self, weights: &Weights) -> Result<Self::Table, ComputeError> {
        Ok(if self.goes_first() {
            Side::First(self.first.table(weights)?)
        } else {
            Side::Second(self.second.table(weights)?)
        })
    }

    fn rope_table(&self, spec: &RopeSpec) -> Self::RopeTable {
        (self.first.rope_table(spec), self.second.rope_table(spec))
    }

    fn rows(&self, max_rows: usize, width: usize) -> Self::Rows {
        Both {
            sides: RefCell::new((self.first.rows(max_rows, width), self.second.rows(max_rows, width))),
            on_first: Cell::new(true),
        }
    }

    fn operand(&self, max_rows: usize, width: usize) -> Self::Operand {
        let (first, second) = (self.first.operand(max_rows, width), self.second.operand(max_rows, width));
        Operands { first, second, on_first: true }
    }

    fn kv(&self, layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> Self::Kv {
        let first = self.placement.layers.min(layers);
        (
            self.first.kv(first, positions, kv_heads, head_dim),
            self.second.kv(layers - first, positions, kv_heads, head_dim),
        )
    }

    fn embed(&self, table: &Self::Table, tokens: &[u32], out: &mut Self::Rows) {
        let (first, second) = out.sides.get_mut();
        match table {
            Side::First(table) => self.first.embed(table, tokens, first),
            Side::Second(table) => self.second.embed(table, tokens, second),
        }
        out.on_first.set(matches!(table, Side::First(_)));
    }

    fn rms_norm(&self, x: &Self::Rows, weight: &Self::Vector, eps: f32, out: &mut Self::Operand) {
        match weight {
            Side::First(weight) => self.first.rms_norm(&self.on_first(x), weight, eps, &mut out.first),
            Side::Second(weight) => self.second.rms_norm(&self.on_second(x), weight, eps, &mut out.second),
        }
        out.on_first = matches!(weight, Side::First(_));
    }

    fn linear(&self, x: &Self::Operand, w: &Self::Matrix, bias: Option<&Self::Vector>, out: &mut Self::Rows) {
        let (first, second) = out.sides.get_mut();
        match w {
            Side::First(w) => self.first.linear(x.first(), w, bias.map(Side::first), first),
            Side::Second(w) => self.second.linear(x.second(), w, bias.map(Side::second), second),
        }
        out.on_first.set(matches!(w, Side::First(_)));
    }

    fn linear_add(&self, x: &Self::Operand, w: &Self::Matrix, out: &mut Self::Rows) {
        match w {
            Side::First(w) => self.first.linear_add(x.first(), w, &mut self.on_first(out)),
            Side::Second(w) => self.second.linear_add(x.second(), w, &mut self.on_second(out)),
        }
    }

    fn rope(&self, x: &mut Self::Rows, positions: &[u32], table: &Self::RopeTable) {
        let (first, second) = x.sides.get_mut();
        if x.on_first.get() {
            self.first.rope(first, positions, &table.0);
        } else {
            self.second.rope(second, positions, &table.1);
        }
    }

    fn kv_write(&self, k: &Self::Rows, v: &Self::Rows, layer: usize, positions: &[u32], kv: &mut Self::Kv) {
        match layer.checked_sub(self.placement.layers) {
            None => self.first.kv_write(&self.on_first(k), &self.on_first(v), layer, positions, &mut kv.0),
            Some(layer) => self.second.kv_write(&self.on_second(k), &self.on_second(v), layer, positions, &mut kv.1),
        }
    }

    fn attention(&self, q: &Self::Rows, kv: &Self::Kv, layer: usize, visible: Visibility, out: &mut Self::Operand) {
        match layer.checked_sub(self.placement.layers) {
            None => self.first.attention(&self.on_first(q), &kv.0, layer, visible, &mut out.first),
            Some(layer) => self.second.attention(&self.on_second(q), &kv.1, layer, visible, &mut out.second),
        }
        out.on_first = layer < self.placement.layers;
    }

    fn silu_mul(&self, gate: &Self::Rows, up: &Self::Rows, out: &mut Self::Operand) {
        out.on_first = gate.on_first.get();
        if out.on_first {
            self.first.silu_mul(&self.on_first(gate), &self.on_first(up), &mut out.first);
        } else {
            self.second.silu_mul(&self.on_second(gate), &self.on_second(up), &mut out.second);
        }
    }

    fn gated_linear(
        &self,
        x: &Self::Operand,
        w: [&Self::Matrix; 2],
        [a, b]: [&mut Self::Rows; 2],
        out: &mut Self::Operand,
    ) {
        let ((first_a, second_a), (first_b, second_b)) = (a.sides.get_mut(), b.sides.get_mut());
        out.on_first = matches!(w[0], Side::First(_));
        match w {
            [Side::First(gate), Side::First(up)] => {
                self.first.gated_linear(x.first(), [gate, up], [first_a, first_b], &mut out.first);
            }
            [Side::Second(gate), Side::Second(up)] => {
                self.second.gated_linear(x.second(), [gate, up], [second_a, second_b], &mut out.second);
            }
            _ => unreachable!("a layer lies on one side"),
        }
    }

    fn select(&self, x: &mut Self::Rows, indices: &[u32]) {
        let (first, second) = x.sides.get_mut();
        if x.on_first.get() { self.first.select(first, indices) } else { self.second.select(second, indices) }
    }

    fn row_statistics(&self, x: &Self::Operand, head: &Self::Matrix, excluded: &[u32], out: &mut Vec<RowStatistics>) {
        match head {
            Side::First(head) => self.first.row_statistics(x.first(), head, excluded, out),
            Side::Second(head) => self.second.row_statistics(x.second(), head, excluded, out),
        }
    }

    fn sample(&self, x: &Self::Operand, head: &Self::Matrix, sampling: &Sampling<'_>, out: &mut Vec<Sample>) -> bool {
        match head {
            Side::First(head) => self.first.sample(x.first(), head, sampling, out),
            Side::Second(head) => self.second.sample(x.second(), head, sampling, out),
        }
    }

    fn logits(&self, x: &Self::Operand, head: &Self::Matrix, out: &mut Vec<f32>) {
        match head {
            Side::First(head) => self.first.logits(x.first(), head, out),
            Side::Second(head) => self.second.logits(x.second(), head, out),
        }
    }

    fn read(&self, x: &Self::Rows) -> Vec<f32> {
        let sides = x.sides.borrow();
        if x.on_first.get() { self.first.read(&sides.0) } else { self.second.read(&sides.1) }
    }

    fn write(&self, values: &[f32], out: &mut Self::Rows) {
        self.first.write(values, &mut out.sides.get_mut().0);
        out.on_first.set(true);
    }

    fn quantize(&self, x: &Self::Rows, out: &mut Self::Operand) {
        out.on_first = x.on_first.get();
        if out.on_first {
            self.first.quantize(&self.on_first(x), &mut out.first);
        } else {
            self.second.quantize(&self.on_second(x), &mut out.second);
        }
    }
}
