//! `--recipe auto`: window and refresh as this machine affords them.

use anyhow::Result;
use demask::diffusion::{Curve, Tuning};
use demask::{Canvas, Device, Model, Request};
use serde::Serialize;

use crate::curves;
use crate::output;
use crate::report::rounded;

/// What was measured and chosen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AutoReport {
    /// Forward passes of this model on this machine.
    curve: Vec<Point>,
    /// Open positions behind the block that the model sees.
    window: usize,
    /// Steps between refreshes; null: when a block begins.
    refresh: Option<usize>,
    /// The expected time of the run over that of `--recipe fast`.
    over_fast: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Point {
    rows: usize,
    ms: f64,
}

impl AutoReport {
    pub(super) fn new(curve: &Curve, tuning: &Tuning) -> AutoReport {
        let point = |&(rows, seconds): &(usize, f64)| Point { rows, ms: rounded(seconds * 1e3, 3) };
        AutoReport {
            curve: curve.points().iter().map(point).collect(),
            window: tuning.window,
            refresh: tuning.refresh,
            over_fast: rounded(tuning.seconds / tuning.fast_seconds, 3),
        }
    }

    /// What was chosen, and by what, on one line.
    pub(crate) fn line(&self) -> String {
        let refresh = match self.refresh {
            None => "a refresh when a block begins".to_owned(),
            Some(1) => "a refresh in every step".to_owned(),
            Some(every) => format!("a refresh every {every} steps"),
        };
        let points: Vec<String> =
            self.curve.iter().map(|point| format!("{} ms for {} rows", rounded(point.ms, 2), point.rows)).collect();
        format!("{refresh}, window {}; {:.2} of fast's time by {}", self.window, self.over_fast, points.join(", "))
    }
}

/// The request as the machine affords it, and what was chosen; other recipes stay as they are.
pub(super) fn tune(
    model: &Model,
    device: &Device,
    canvas: &Canvas,
    request: Request,
) -> Result<(Request, Option<AutoReport>)> {
    if !request.is_untuned() {
        return Ok((request, None));
    }
    let curve = curves::of(model, device, canvas.len())?;
    let (request, tuning) = model.tuned(canvas, &request, &curve);
    let report = AutoReport::new(&curve, &tuning);
    output::line("note", &format!("auto: {}", report.line()));
    Ok((request, Some(report)))
}
