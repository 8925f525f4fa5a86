//! What a forward pass costs on a machine, by the number of rows that it runs.

use crate::error::Error;
use crate::model::{MaskPredictor, Output, Plan, Prediction};

/// Row counts that are measured, as far as a canvas needs them.
const ROWS: [usize; 5] = [32, 64, 128, 256, 512];
/// Rows of a pass that are scored: a block.
const SCORED: usize = 32;
/// Seconds after which larger passes are left to extrapolation.
const ENOUGH: f64 = 5.0;
/// Short passes are repeated for so many seconds.
const REPEAT: f64 = 0.1;

/// Seconds of a forward pass by its rows, t(rows).
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<(usize, f64)>,
}

impl Curve {
    /// Positions of an ordinary canvas: whatever the first one is, the next may be longer.
    pub(crate) const ORDINARY: usize = 256;

    /// A curve through measured points. More rows never take less time: a point below its left neighbour is raised to it.
    /// `None` without points, or if rows don't rise from 1 or times aren't numbers over 0.
    pub fn new(points: impl IntoIterator<Item = (usize, f64)>) -> Option<Curve> {
        let mut points: Vec<(usize, f64)> = points.into_iter().collect();
        let fine = |(rows, seconds): &(usize, f64)| *rows > 0 && seconds.is_finite() && *seconds > 0.0;
        if points.is_empty() || !points.iter().all(fine) || !points.is_sorted_by(|a, b| a.0 < b.0) {
            return None;
        }
        for index in 1..points.len() {
            points[index].1 = points[index].1.max(points[index - 1].1);
        }
        Some(Curve { points })
    }

    /// The measured points, by rising rows.
    pub fn points(&self) -> &[(usize, f64)] {
        &self.points
    }

    /// Seconds of a pass of `rows` rows: on straight lines between the points and on from the last two; fewer rows than the
    /// first point's take as long as those.
    pub fn at(&self, rows: usize) -> f64 {
        let last = self.points.len() - 1;
        let (first_rows, first) = self.points[0];
        if rows <= first_rows {
            return first;
        }
        if last == 0 {
            return first * rows as f64 / first_rows as f64;
        }
        let right = self.points.iter().position(|point| rows <= point.0).unwrap_or(last);
        let ((r0, t0), (r1, t1)) = (self.points[right - 1], self.points[right]);
        t0 + (t1 - t0) * (rows as f64 - r0 as f64) / (r1 as f64 - r0 as f64)
    }

    /// The row counts that are measured for a canvas of `positions`: up to the first that covers it, and no more than the
    /// model's context.
    pub fn rows_for(positions: usize, context: usize) -> Vec<usize> {
        let covering = ROWS.iter().position(|&rows| rows >= positions).unwrap_or(ROWS.len() - 1);
        let mut rows: Vec<usize> = ROWS[..=covering].iter().map(|&rows| rows.clamp(1, context.max(1))).collect();
        rows.dedup();
        rows
    }

    /// Measures passes with so many rows each, on predictors that have room for them. `now` reads a clock in seconds: the
    /// library has none. Slow models are measured at the first few row counts only.
    ///
    /// # Errors
    /// Those of the predictor.
    pub fn measure(
        rows: &[usize],
        predictor: &mut dyn FnMut(usize) -> Box<dyn MaskPredictor>,
        now: &mut dyn FnMut() -> f64,
    ) -> Result<Curve, Error> {
        let mut prediction = Prediction::default();
        let mut points = Vec::new();
        let begun = now();
        for &rows in rows {
            if points.len() >= 2 && now() - begun > ENOUGH {
                break;
            }
            let mut model = predictor(rows);
            let mask_token = model.spec().mask_token;
            let tokens = vec![mask_token; rows];
            let all: Vec<u32> = (0..rows as u32).collect();
            let output = Output::Statistics { excluded: &[mask_token] };
            let plan = Plan { rows: &all, wanted: &all[rows - SCORED.min(rows)..], output };
            let (first, mut best) = (now(), f64::INFINITY);
            // The first pass of all warms up.
            for pass in 0..10 {
                let start = now();
                model.predict(&tokens, &plan, &mut prediction)?;
                let end = now();
                best = best.min(end - start);
                let warm = pass > 0 || !points.is_empty();
                if warm && end - first > REPEAT {
                    break;
                }
            }
            points.push((rows, best.max(1e-9)));
        }
        Ok(Curve::new(points).unwrap_or(Curve { points: vec![(1, 1.0)] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_and_beyond_the_points() {
        let curve = Curve::new([(32, 1.0), (64, 2.0), (128, 1.5), (256, 6.0)]).expect("fine");
        assert_eq!(curve.points()[2], (128, 2.0), "more rows never take less time");
        for (rows, seconds) in [(1, 1.0), (32, 1.0), (48, 1.5), (64, 2.0), (100, 2.0), (192, 4.0), (384, 10.0)] {
            assert!((curve.at(rows) - seconds).abs() < 1e-12, "{rows}: {}", curve.at(rows));
        }
        let single = Curve::new([(10, 1.0)]).expect("fine");
        assert_eq!((single.at(5), single.at(30)), (1.0, 3.0));
        for bad in [&[][..], &[(0, 1.0)], &[(2, 1.0), (2, 2.0)], &[(1, f64::NAN)], &[(1, 0.0)]] {
            assert_eq!(Curve::new(bad.iter().copied()), None, "{bad:?}");
        }
        assert_eq!(Curve::rows_for(150, 4096), [32, 64, 128, 256]);
        assert_eq!(Curve::rows_for(150, 200), [32, 64, 128, 200]);
        assert_eq!((Curve::rows_for(9999, 1 << 20).len(), Curve::rows_for(5, 20)), (5, vec![20]));
    }
}
