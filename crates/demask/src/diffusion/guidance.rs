//! Classifier-free guidance: a predictor around two predictors.

use crate::error::Error;
use crate::model::{FaultWatch, MaskPredictor, ModelSpec, Output, Plan, Prediction};

/// Pushes the prediction away from what the model says without a prompt: `u + (scale + 1) (c - u)`, where u comes
/// from a canvas whose given positions are all masked (LLaDA, `generate.py`; Nie et al. 2024, section 4).
pub struct Guided {
    conditional: Box<dyn MaskPredictor>,
    unconditional: Box<dyn MaskPredictor>,
    scale: f32,
    /// Which positions were given, not asked for.
    given: Vec<bool>,
    masked: Vec<u32>,
    prediction: Prediction,
}

impl Guided {
    /// Guidance at `scale` over two predictors of the same model; `given` tells the prompt's positions.
    pub fn new(
        conditional: Box<dyn MaskPredictor>,
        unconditional: Box<dyn MaskPredictor>,
        scale: f64,
        given: Vec<bool>,
    ) -> Guided {
        let (masked, prediction) = (Vec::new(), Prediction::default());
        Guided { conditional, unconditional, scale: scale as f32, given, masked, prediction }
    }
}

impl MaskPredictor for Guided {
    fn spec(&self) -> &ModelSpec {
        self.conditional.spec()
    }

    fn forwards(&self) -> usize {
        self.conditional.forwards() + self.unconditional.forwards()
    }

    fn predict(&mut self, tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        let mask_token = self.spec().mask_token;
        self.masked.clear();
        self.masked.extend(tokens.iter().zip(&self.given).map(|(&t, &given)| if given { mask_token } else { t }));
        let plan = Plan { output: Output::Logits, ..*plan };
        self.conditional.predict(tokens, &plan, out)?;
        self.unconditional.predict(&self.masked, &plan, &mut self.prediction)?;
        for (logit, &without) in out.logits.iter_mut().zip(&self.prediction.logits) {
            *logit = without + (self.scale + 1.0) * (*logit - without);
        }
        Ok(())
    }

    fn row_values(&self, out: &mut Vec<f32>) -> Result<(), Error> {
        self.conditional.row_values(out)
    }

    fn fault_watch(&mut self) -> Option<&mut FaultWatch> {
        self.conditional.fault_watch()
    }
}
