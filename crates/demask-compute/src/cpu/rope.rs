//! Rotary position embedding.

use crate::backend::{RopeSpec, RopeStyle};

/// Cosines and sines per position and pair, computed in f64.
pub struct RopeTable {
    spec: RopeSpec,
    /// `[positions, head_dim / 2]` of (cos, sin).
    turns: Vec<(f32, f32)>,
}

impl RopeTable {
    pub(super) fn new(spec: &RopeSpec) -> RopeTable {
        let pairs = spec.head_dim / 2;
        let turn = |position: usize, pair: usize| {
            let angle = position as f64 * spec.theta.powf(-2.0 * pair as f64 / spec.head_dim as f64);
            (angle.cos() as f32, angle.sin() as f32)
        };
        let turns = (0..spec.positions).flat_map(|p| (0..pairs).map(move |i| turn(p, i))).collect();
        RopeTable { spec: *spec, turns }
    }

    /// Rotates all heads of one row for `position`.
    pub(super) fn rotate(&self, row: &mut [f32], position: usize) {
        let pairs = self.spec.head_dim / 2;
        let turns = &self.turns[position * pairs..(position + 1) * pairs];
        for head in row.chunks_exact_mut(self.spec.head_dim) {
            for (i, &(cos, sin)) in turns.iter().enumerate() {
                let (a, b) = match self.spec.style {
                    RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                    RopeStyle::HalfSplit => (i, i + pairs),
                };
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
            }
        }
    }
}
