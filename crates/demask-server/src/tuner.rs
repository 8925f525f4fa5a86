//! The recipe `auto`: what it leaves to the machine, filled in when a run's turn comes.
//!
//! What passes cost is asked once, by the first run that needs it, on the engine's thread: nothing else runs on the model
//! meanwhile, so what is measured is the model's own time.

use demask::diffusion::{Curve, Tuning};
use demask::{Canvas, Error, Request};

use crate::runner::Runner;

/// Settles requests, all by one curve.
pub(crate) struct Tuner<'a> {
    runner: &'a dyn Runner,
    curve: Option<Curve>,
}

impl<'a> Tuner<'a> {
    pub(crate) fn new(runner: &'a dyn Runner) -> Tuner<'a> {
        Tuner { runner, curve: None }
    }

    /// The request as the machine affords it, and what was chosen; other recipes stay as they are.
    pub(crate) fn tune(&mut self, canvas: &Canvas, request: Request) -> Result<(Request, Option<Tuning>), Error> {
        if !request.is_untuned() {
            return Ok((request, None));
        }
        let curve = match self.curve.take() {
            Some(curve) => curve,
            None => self.runner.curve(canvas.len())?,
        };
        let (request, tuning) = self.runner.file().tuned(canvas, &request, self.curve.insert(curve));
        Ok((request, Some(tuning)))
    }
}
