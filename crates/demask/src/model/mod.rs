//! Models: what the diffusion side asks of one, and the architectures that run.

mod activations;
mod dream;
mod fault;
mod layer;
mod llada;
mod spec;

use std::sync::Arc;

use demask_compute::{Backend, RopeStyle, RowStatistics, Sample, Sampling};
use demask_gguf::Gguf;

use crate::error::Error;
use crate::weights::WeightSource;

pub use fault::{Fault, FaultPlace, FaultWatch};
pub use spec::{Family, ModelSpec};

/// Which rows of the canvas a prediction runs, and what of them is wanted.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// Positions pushed through the layers, ascending. Their keys and values are overwritten; the others' are those of
    /// the last time they ran.
    pub rows: &'a [u32],
    /// Positions whose row of logits is scored, ascending, a subset of `rows`.
    pub wanted: &'a [u32],
    /// In which form.
    pub output: Output<'a>,
}

/// The form of a prediction.
#[derive(Clone, Copy)]
pub enum Output<'a> {
    /// Row statistics only: enough for greedy decoding.
    Statistics {
        /// Tokens that are never guessed.
        excluded: &'a [u32],
    },
    /// Tokens drawn with a temperature, from the wanted rows by their index. A device that doesn't draw gives logits.
    Samples(Sampling<'a>),
    /// Whole rows of logits.
    Logits,
}

/// What a model predicts, one entry per wanted row.
#[derive(Default)]
pub struct Prediction {
    /// The wanted rows.
    pub rows: Vec<u32>,
    /// Their statistics; empty unless they were asked for.
    pub statistics: Vec<RowStatistics>,
    /// The tokens drawn, one per place; empty unless they were asked for and the device draws.
    pub samples: Vec<Sample>,
    /// Their logits, `[rows, vocab]`; empty if there is something else.
    pub logits: Vec<f32>,
}

impl Prediction {
    /// Where row `row` stands.
    ///
    /// # Panics
    /// If the row wasn't wanted.
    pub fn index_of(&self, row: u32) -> usize {
        self.rows.binary_search(&row).expect("the row was asked for")
    }
}

/// A model over one canvas: keys and values of its positions are kept between predictions.
pub trait MaskPredictor: Send {
    /// Facts about the model.
    fn spec(&self) -> &ModelSpec;

    /// Forward passes per prediction.
    fn forwards(&self) -> usize {
        1
    }

    /// Predicts on a canvas holding `tokens`, one per position (L).
    ///
    /// # Errors
    /// A fault of the device.
    fn predict(&mut self, tokens: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error>;

    /// Logits of a masked shadow of `rows`, right after a prediction on the same canvas: mask tokens at those positions,
    /// which see each other and the canvas, each without the row whose shadow it is. The canvas doesn't see them (WINO,
    /// Hong et al. 2025).
    ///
    /// # Errors
    /// [`Error::NoShadow`] if the model can't; a fault of the device.
    fn predict_shadow(&mut self, _tokens: &[u32], _rows: &[u32], _out: &mut Prediction) -> Result<(), Error> {
        Err(Error::NoShadow { architecture: self.spec().architecture })
    }

    /// What the rows of the last prediction are known by to a cache policy that measures drift: the last layer's values of
    /// each, one row after the other.
    ///
    /// # Errors
    /// [`Error::NoRowValues`] if the model has none; a fault of the device.
    fn row_values(&self, _out: &mut Vec<f32>) -> Result<(), Error> {
        Err(Error::NoRowValues { architecture: self.spec().architecture })
    }

    /// A watch over the next prediction, for finding out where its numbers go wrong; none if the model has none.
    fn fault_watch(&mut self) -> Option<&mut FaultWatch> {
        None
    }
}

/// Makes a predictor for a canvas of at most so many positions; the weights are shared.
pub(crate) type NewPredictor = Arc<dyn Fn(usize) -> Box<dyn MaskPredictor> + Send + Sync>;

/// What is known of an architecture apart from its forward pass.
pub struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// Decoding family.
    pub family: Family,
    /// How the GGUF's query and key rows pair up.
    pub rope: RopeStyle,
    /// Whether row p - 1 scores position p, unless `diffusion.shift_logits` says otherwise.
    pub shift_logits: bool,
    /// The mask token, if the file doesn't name it.
    pub mask_token: Option<u32>,
}

/// The architectures that run: one row each.
pub static ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llada",
        family: Family::Llada,
        rope: RopeStyle::Interleaved,
        shift_logits: false,
        mask_token: Some(126_336),
    },
    Architecture {
        name: "dream",
        family: Family::Dream,
        rope: RopeStyle::HalfSplit,
        shift_logits: true,
        mask_token: None,
    },
];

/// Loads the weights of a model.
pub(crate) fn load<B: Backend + 'static>(
    gguf: &Gguf,
    spec: ModelSpec,
    backend: Arc<B>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<NewPredictor, Error> {
    let mut source = WeightSource::new(gguf, &*backend, progress);
    Ok(match spec.family {
        Family::Llada => {
            let model = Arc::new(llada::Llada::load(&mut source, spec, Arc::clone(&backend))?);
            Arc::new(move |positions| Box::new(llada::Forward::new(Arc::clone(&model), positions)))
        }
        Family::Dream => {
            let model = Arc::new(dream::Dream::load(&mut source, spec, Arc::clone(&backend))?);
            Arc::new(move |positions| Box::new(dream::Forward::new(Arc::clone(&model), positions)))
        }
    })
}
