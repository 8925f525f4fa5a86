//! How far rows have drifted since the keys and values that the others keep were fresh.
//!
//! dLLM-Cache (Liu et al. 2025) measures how much a row has changed by the cosine of its values, now and as they are
//! kept, and recomputes the rows that changed most. Here a step runs whole rows, so the measure serves as a bound on all of
//! them, as Elastic-Cache's (Nguyen-Tri et al. 2025) does: the rows that run anyway are the probe. In a step with stale
//! keys and values, the drift is one minus the mean cosine between the last layer's values of each row that ran and those
//! that it had at the last refresh, over the rows that still hold the token that they held then. If that is more than the
//! bound, the next step is refreshed.

use super::cache::RowPlan;
use super::canvas::Canvas;
use crate::error::Error;
use crate::model::MaskPredictor;

/// The probe of one run.
pub(super) struct Drift {
    /// The most that rows may have drifted; none if nobody asks.
    bound: Option<f64>,
    /// By position: the token and the values of the last refresh, or of the first time that the row ran since.
    kept: Vec<Option<(u32, Vec<f32>)>>,
    /// Whether the last step was beyond the bound.
    pub(super) exceeded: bool,
    values: Vec<f32>,
}

impl Drift {
    pub(super) fn new(bound: Option<f64>, positions: usize) -> Drift {
        let kept = if bound.is_some() { vec![None; positions] } else { Vec::new() };
        Drift { bound, kept, exceeded: false, values: Vec::new() }
    }

    /// Looks at the rows that `model` ran last.
    pub(super) fn observe(&mut self, model: &dyn MaskPredictor, canvas: &Canvas, plan: &RowPlan) -> Result<(), Error> {
        let Some(bound) = self.bound else { return Ok(()) };
        model.row_values(&mut self.values)?;
        let width = (self.values.len() / plan.rows.len().max(1)).max(1);
        let mut cosines = Vec::new();
        for (row, values) in plan.rows.iter().map(|&row| row as usize).zip(self.values.chunks_exact(width)) {
            let token = canvas.tokens()[row];
            match &self.kept[row] {
                Some((held, kept)) if !plan.refreshed => {
                    if *held == token {
                        cosines.push(cosine(values, kept));
                    }
                }
                _ => self.kept[row] = Some((token, values.to_vec())),
            }
        }
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        self.exceeded = !cosines.is_empty() && 1.0 - mean > bound;
        Ok(())
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let length = (dot(a, a) * dot(b, b)).sqrt();
    // A row of zeros has not drifted from another one.
    if length > 0.0 { dot(a, b) / length } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_of_rows() {
        assert_eq!(cosine(&[1.0, 2.0], &[2.0, 4.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert_eq!(cosine(&[1.0, 1.0], &[-1.0, -1.0]), -1.0);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 0.0]), 1.0);
    }
}
