//! What the server needs of a model: a stand-in with given logits serves as well as a real one.

use std::time::Instant;

use demask::diffusion::{Curve, Denoising};
use demask::{Canvas, Error, MaskPredictor, Model, ModelFile, Request};

/// A model that runs are started on. Its runs take turns on one thread.
pub trait Runner: Send + Sync + 'static {
    /// The model's file: tokenizer, template, facts.
    fn file(&self) -> &ModelFile;

    /// A run over a canvas and the predictor that goes with it.
    fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error>;

    /// What forward passes cost here, for canvases of up to `positions`. Called at most once unless it fails: when a request
    /// first names the recipe `auto`, and while nothing else runs.
    fn curve(&self, positions: usize) -> Result<Curve, Error>;
}

/// Its curve is measured.
impl Runner for Model {
    fn file(&self) -> &ModelFile {
        self
    }

    fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error> {
        Model::start(self, canvas, request)
    }

    fn curve(&self, positions: usize) -> Result<Curve, Error> {
        let start = Instant::now();
        Model::curve(self, positions, &mut || start.elapsed().as_secs_f64())
    }
}
