//! What a run tells about itself.

use super::canvas::{Block, Canvas, Transfer};

/// What one denoising step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the step; steps that could do nothing are left out but keep their number.
    pub step: usize,
    /// Block it worked on; rules that work on several at once report the whole answer.
    pub block: Block,
    /// The edits.
    pub transfer: Transfer,
    /// Forward passes it took.
    pub nfe: usize,
    /// Rows pushed through the layers.
    pub rows: usize,
    /// Whether no stale keys and values were involved. Only such steps commit end tokens.
    pub refreshed: bool,
    /// Positions before this one can't change any more, whatever the unmasker.
    pub settled: usize,
}

/// Sums over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Statistics {
    /// Denoising steps that ran.
    pub steps: usize,
    /// Forward passes (guidance takes two per step).
    pub nfe: usize,
    /// Rows pushed through the layers.
    pub rows: usize,
    /// Positions decided, over all steps; a position that was opened again counts twice.
    pub commits: usize,
    /// Positions opened again.
    pub remasks: usize,
    /// Tokens of the answer before its first end token or open position.
    pub visible_tokens: usize,
}

impl Statistics {
    /// Positions decided per step that ran.
    pub fn commits_per_step(&self) -> Option<f64> {
        ratio(self.commits, self.steps)
    }

    /// Rows per visible token (R), the cost of a token that the user gets to see.
    pub fn rows_per_visible_token(&self) -> Option<f64> {
        ratio(self.rows, self.visible_tokens)
    }

    pub(super) fn add(&mut self, report: &StepReport) {
        self.steps += 1;
        self.nfe += report.nfe;
        self.rows += report.rows;
        self.commits += report.transfer.decided();
        self.remasks += report.transfer.edits.len() - report.transfer.decided();
    }
}

fn ratio(sum: usize, count: usize) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// No open position is left.
    Complete,
    /// What is still open lies behind the answer's end token.
    EndToken,
    /// The observer asked to stop.
    Interrupted,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The canvas as it was left.
    pub canvas: Canvas,
    /// Sums.
    pub statistics: Statistics,
    /// Why it ended.
    pub finish: Finish,
}
