//! The head with row statistics: the vocabulary is walked in chunks, and only a running summary of each row of
//! logits is kept, so that `[rows, V]` never exists.

use super::Cpu;
use super::kernels::PANEL_ROWS;
use super::linear::{MAX_PANELS, products};
use super::operand::Operand;
use super::packed::Matrix;
use super::rowwise::{LANES, exp, greatest, sum};
use super::shared::SharedMut;
use crate::backend::RowStatistics;

/// Panels per chunk: 256 tokens. Partial results are per chunk, not per thread, and are merged in order, so
/// that statistics don't depend on the number of threads.
const CHUNK: usize = 8;

/// Statistics of a part of a row of logits, as an online softmax.
#[derive(Clone, Copy)]
pub(super) struct Partial {
    /// Greatest logit of all, excluded tokens included: the reference point of the sums.
    greatest: f32,
    /// Sum of `e^(l - greatest)`.
    total: f64,
    /// Sum of `(l - greatest) * e^(l - greatest)`.
    weighted: f64,
    /// The best allowed token and its logit.
    best: (u32, f32),
    /// The second-best allowed logit.
    second: f32,
    finite: bool,
}

impl Partial {
    const EMPTY: Partial = Partial {
        greatest: f32::NEG_INFINITY,
        total: 0.0,
        weighted: 0.0,
        best: (u32::MAX, f32::NEG_INFINITY),
        second: f32::NEG_INFINITY,
        finite: true,
    };

    /// Takes up to 32 logits of consecutive tokens from `first` on. The sums within are f32, in fixed lanes.
    #[inline(always)]
    fn add(&mut self, first: u32, logits: &[f32], excluded: &[u32]) {
        let block = greatest(logits);
        if block > self.greatest {
            self.rebase(block);
        }
        let (mut total, mut weighted, mut poison) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let reference = self.greatest;
        let mut take = |i: usize, logit: f32| {
            let distance = logit - reference;
            let weight = exp(distance);
            total[i] += weight;
            weighted[i] = distance.mul_add(weight, weighted[i]);
            poison[i] += logit * 0.0; // NaN unless finite
        };
        let (chunks, tail) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            chunk.iter().enumerate().for_each(|(i, &l)| take(i, l));
        }
        tail.iter().enumerate().for_each(|(i, &l)| take(i, l));
        self.finite &= sum(&poison) == 0.0;
        self.total += f64::from(sum(&total));
        self.weighted += f64::from(sum(&weighted));
        if block <= self.second {
            return; // nothing here that could be chosen
        }
        for (token, &logit) in (first..).zip(logits) {
            if !excluded.contains(&token) {
                self.offer(token, logit);
            }
        }
    }

    fn offer(&mut self, token: u32, logit: f32) {
        if logit > self.best.1 || (self.best.0 == u32::MAX && !logit.is_nan()) {
            self.second = self.best.1;
            self.best = (token, logit);
        } else if logit > self.second {
            self.second = logit;
        }
    }

    /// Moves the sums to a new, greater reference point.
    fn rebase(&mut self, greatest: f32) {
        if self.total > 0.0 {
            let shift = f64::from(self.greatest - greatest);
            let factor = shift.exp();
            self.weighted = (self.weighted + shift * self.total) * factor;
            self.total *= factor;
        }
        self.greatest = greatest;
    }

    /// Takes the statistics of later tokens.
    fn merge(&mut self, mut later: Partial) {
        self.finite &= later.finite;
        let greatest = self.greatest.max(later.greatest);
        self.rebase(greatest);
        later.rebase(greatest);
        self.total += later.total;
        self.weighted += later.weighted;
        if later.best.0 != u32::MAX {
            self.offer(later.best.0, later.best.1);
            self.second = self.second.max(later.second);
        }
    }

    fn finish(&self) -> RowStatistics {
        let probability = |logit: f32| f64::from(logit - self.greatest).exp() / self.total;
        RowStatistics {
            token: self.best.0,
            probability: probability(self.best.1),
            runner_up: probability(self.second),
            entropy: self.total.ln() - self.weighted / self.total,
            finite: self.finite && self.best.0 != u32::MAX,
        }
    }
}

/// Takes the logits `[rows, 32]` of tokens `first..first + count`.
#[inline(always)]
pub(super) fn statistics(partials: &mut [Partial], first: u32, logits: &[f32], count: usize, excluded: &[u32]) {
    for (partial, logits) in partials.iter_mut().zip(logits.chunks_exact(PANEL_ROWS)) {
        partial.add(first, &logits[..count], excluded);
    }
}

/// Statistics of each row of `x * head^T`.
pub(super) fn row_statistics(cpu: &Cpu, x: &Operand, head: &Matrix, excluded: &[u32], out: &mut Vec<RowStatistics>) {
    assert_eq!(x.width(), head.cols(), "operand and head agree on K");
    out.clear();
    if x.rows() == 0 {
        return;
    }
    cpu.reserve(x.rows());
    let (rows, chunks) = (x.rows(), head.panels().div_ceil(CHUNK));
    let mut partials = cpu.partials.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    partials.clear();
    partials.resize(chunks * rows, Partial::EMPTY);
    let shared = SharedMut::new(&mut partials);
    let work = CHUNK * PANEL_ROWS * head.cols() * rows / 32;
    let starts = cpu.starts(x, head);
    cpu.run(chunks, work, &|chunk, thread| {
        let partials = shared.slice(chunk * rows, rows);
        let mut scratch = cpu.scratch(thread);
        let panels = chunk * CHUNK..((chunk + 1) * CHUNK).min(head.panels());
        for first in panels.clone().step_by(MAX_PANELS) {
            let panels = first..panels.end.min(first + MAX_PANELS);
            let logits = products(cpu, &mut scratch, x, &starts, &[head], panels.clone(), 0..x.tiles());
            for (panel, logits) in panels.zip(logits.chunks_exact(rows * PANEL_ROWS)) {
                let tokens = head.panel_rows(panel);
                (cpu.kernels.rows.statistics)(partials, tokens.start as u32, logits, tokens.len(), excluded);
            }
        }
    });
    out.extend((0..rows).map(|row| {
        let mut whole = Partial::EMPTY;
        (0..chunks).for_each(|chunk| whole.merge(partials[chunk * rows + row]));
        whole.finish()
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(logits: &[f32], excluded: &[u32], part: usize) -> RowStatistics {
        let mut whole = Partial::EMPTY;
        for (i, chunk) in logits.chunks(part).enumerate() {
            let mut partial = Partial::EMPTY;
            partial.add((i * part) as u32, chunk, excluded);
            whole.merge(partial);
        }
        whole.finish()
    }

    #[test]
    fn statistics_of_a_small_row() {
        // softmax([1, 3, 2, 3]) and its entropy by hand, in f64.
        let logits = [1.0f32, 3.0, 2.0, 3.0];
        let z: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        let p: Vec<f64> = logits.iter().map(|&l| f64::from(l).exp() / z).collect();
        let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
        for part in [1, 2, 3, 4] {
            let found = of(&logits, &[], part);
            assert_eq!(found.token, 1, "the lower of two equal maxima");
            assert!((found.probability - p[1]).abs() < 1e-6);
            assert!((found.runner_up - p[3]).abs() < 1e-6);
            assert!((found.entropy - entropy).abs() < 1e-6);
            let found = of(&logits, &[1, 3], part);
            assert_eq!(found.token, 2, "excluded tokens are not chosen");
            assert!((found.probability - p[2]).abs() < 1e-6, "but count in the denominator");
            assert!((found.runner_up - p[0]).abs() < 1e-6);
        }
    }

    #[test]
    fn what_is_not_finite_is_reported() {
        assert!(of(&[0.0, 1.0], &[], 2).finite);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!of(&[0.0, bad, 1.0], &[], 2).finite, "{bad}");
        }
        assert!(!of(&[0.0], &[0], 1).finite, "nothing left to choose");
    }
}
