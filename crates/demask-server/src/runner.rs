//! What the server needs of a model: a stand-in with given logits serves as well as a real one.

use demask::diffusion::Denoising;
use demask::{Canvas, Error, MaskPredictor, Model, ModelFile, Request};

/// A model that runs are started on. Its runs take turns on one thread.
pub trait Runner: Send + Sync + 'static {
    /// The model's file: tokenizer, template, facts.
    fn file(&self) -> &ModelFile;

    /// A run over a canvas and the predictor that goes with it.
    fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error>;
}

impl Runner for Model {
    fn file(&self) -> &ModelFile {
        self
    }

    fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error> {
        Model::start(self, canvas, request)
    }
}
