//! A run as JSON lines: one header, one line per step, one footer. `demask inspect` replays such a file.

use serde::{Deserialize, Serialize};

use super::report::{Finish, Statistics, StepReport};

/// A line of a trace.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceLine<'a> {
    /// The start: the canvas before the first step.
    Start {
        /// Model name.
        model: &'a str,
        /// Tokens of the whole canvas.
        canvas: &'a [u32],
        /// Open positions.
        open: Vec<usize>,
        /// The request that was run.
        request: &'a super::Request,
    },
    /// A denoising step.
    Step {
        /// Its number.
        step: usize,
        /// Block number.
        block: usize,
        /// Forward passes.
        nfe: usize,
        /// Rows run.
        rows: usize,
        /// The edits.
        edits: &'a [super::Edit],
    },
    /// The end.
    End {
        /// Why.
        finish: Finish,
        /// Sums.
        #[serde(flatten)]
        statistics: Statistics,
    },
}

impl<'a> From<&'a StepReport> for TraceLine<'a> {
    fn from(report: &'a StepReport) -> TraceLine<'a> {
        TraceLine::Step {
            step: report.step,
            block: report.block.index,
            nfe: report.nfe,
            rows: report.rows,
            edits: &report.transfer.edits,
        }
    }
}

/// A line of a trace as it is read back.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum RecordedLine {
    /// The start.
    Start {
        /// Model name.
        model: String,
        /// Tokens of the whole canvas.
        canvas: Vec<u32>,
        /// Open positions.
        open: Vec<usize>,
        /// The request that was run.
        #[serde(default)]
        request: Box<super::Request>,
    },
    /// A denoising step.
    Step {
        /// Its number.
        step: usize,
        /// Block number.
        block: usize,
        /// The edits.
        edits: Vec<super::Edit>,
    },
    /// The end.
    End {
        /// Why.
        finish: String,
    },
}
