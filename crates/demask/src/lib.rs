//! Run diffusion language models: text, models and the denoising loop.
//!
//! A diffusion language model doesn't write left to right. It starts from a canvas of open positions and, step by step,
//! decides those it is surest of.
//!
//! ```
//! use std::ops::ControlFlow;
//! use demask::{Device, Message, Model, Request, Role};
//!
//! # fn main() -> Result<(), demask::Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tiny-llada-f32.gguf");
//! let model = Model::load(path, &Device::cpu(None)?)?;
//! let prompt = model.chat_prompt(&[Message::new(Role::User, "hi")])?;
//! let request = Request { max_tokens: 16, ..Request::default() };
//! let answer = model.generate(&prompt, &request, &mut |step, canvas| {
//!     let open = canvas.open_in(canvas.asked_range()).count();
//!     eprintln!("step {}: {} edits, {open} positions are open", step.step, step.transfer.edits.len());
//!     ControlFlow::Continue(())
//! })?;
//! println!("{}", model.answer_text(&answer.canvas));
//! # assert!(answer.statistics.steps > 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! | | |
//! |---|---|
//! | [`Model`], [`ModelFile`] | a model that runs; a file whose metadata was read (tokenizing and checking need no more) |
//! | [`Request`], [`Recipe`] | what a generation is asked for, as on the command line |
//! | [`StepReport`], [`Edit`], [`Canvas`] | what an observer sees |
//! | [`Generation`] | what comes out: the canvas, sums over the run, why it ended |
//! | [`text`] | tokenizer, chat templates, text from a stream of tokens |
//! | [`diffusion`] | the parts of decoding, for programs that advance a run step by step ([`Model::start`]) |
//! | [`model`] | [`MaskPredictor`], and the architectures that run |
//!
//! # Conventions
//!
//! Positions count from 0 over the whole canvas, prompt included. Token ids are `u32`. Entropies are in nats, probabilities
//! in `0..=1`, memory in bytes. Matrices are row-major; shapes in comments name their dimensions as `GLOSSARY.md` does.
//! The same model, request and seed give the same tokens, on any number of threads and whatever instructions the processor
//! has.
//!
//! Everything that can fail gives an [`Error`], whose message is one line and names the file, tensor or option;
//! [`Error::hint`] says what helps. Bad files and requests never panic.
//!
//! # Inside
//!
//! The two halves know little of each other: [`model`] implements [`MaskPredictor`] over a
//! [`Backend`](demask_compute::Backend) and never names a decoding rule; [`diffusion`] drives it and never names a
//! tensor. The crate has no unsafe code, no clock, no terminal and reads no environment.

#![forbid(unsafe_code)]

pub mod blanks;
mod device;
pub mod diffusion;
mod error;
pub mod model;
mod placement;
pub mod text;
mod weights;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use demask_compute::{Clock, Stopwatch};
use demask_gguf::Gguf;

pub use device::Device;
pub use diffusion::{
    CachePolicy, Canvas, Edit, EndPolicy, Finish, Generation, Recipe, Request, StepReport, UnmaskRule,
};
pub use error::Error;
pub use model::{MaskPredictor, ModelSpec};
pub use placement::GpuLayers;
pub use text::{ChatTemplate, Message, Role, Tokenizer};

use diffusion::{Curve, Denoising, Guided, Settings, Tuning};
use text::TokenizerConfig;

/// A model file whose metadata was read and checked; its weights are still on disk.
pub struct ModelFile {
    gguf: Arc<Gguf>,
    spec: ModelSpec,
    tokenizer: Tokenizer,
}

impl ModelFile {
    /// Opens a model file (any part of a split one). The weights stay on disk.
    ///
    /// # Errors
    /// [`Error::Gguf`] for what can't be read or is no GGUF file, [`Error::Architecture`] for models that demask doesn't run,
    /// [`Error::Text`] for a tokenizer that it doesn't have.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile, Error> {
        ModelFile::from_gguf(Gguf::open(path)?)
    }

    /// Takes an open GGUF.
    ///
    /// # Errors
    /// As [`ModelFile::open`].
    pub fn from_gguf(gguf: Gguf) -> Result<ModelFile, Error> {
        let spec = ModelSpec::from_gguf(&gguf)?;
        let tokenizer = Tokenizer::new(&TokenizerConfig::from_gguf(&gguf)?)?;
        let (tokens, vocab) = (tokenizer.vocab_size(), spec.vocab);
        if tokens > vocab {
            return Err(Error::Vocabulary { file: gguf.name().to_owned(), tokens, vocab });
        }
        Ok(ModelFile { gguf: Arc::new(gguf), spec, tokenizer })
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Facts about the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The file's chat template, or the architecture's built-in one.
    ///
    /// # Errors
    /// [`Error::Text`] for a template that isn't valid Jinja: no other one takes its place.
    pub fn chat_template(&self) -> Result<ChatTemplate, Error> {
        let template = self.gguf.metadata().string("tokenizer.chat_template")?;
        Ok(ChatTemplate::for_model(template, self.spec.architecture)?)
    }

    /// Tokens of a conversation that the model is to answer. Names of control tokens inside messages are text.
    ///
    /// # Errors
    /// [`Error::Text`] for a template that isn't valid, or that refuses this conversation.
    pub fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        Ok(self.chat_template()?.encode(&self.tokenizer, messages, true)?)
    }

    /// Bytes that the loaded weights take, about: every matrix packed (a few per cent over its size in the file), the
    /// embedding table left in the file, and room for a canvas.
    pub fn memory_needed(&self) -> u64 {
        let tied = self.gguf.tensor("output.weight").is_none();
        let packed = self.gguf.tensors().iter().filter(|tensor| tied || tensor.name != "token_embd.weight");
        let bytes: u64 = packed.map(demask_gguf::TensorInfo::byte_len).sum();
        bytes + bytes / 20 + (16 << 20)
    }

    /// Loads the weights; `progress` is told the bytes done and the bytes in all.
    ///
    /// # Errors
    /// A missing, misshapen or unsupported tensor; [`Error::Memory`] or [`Error::GpuMemory`] if the device can't hold the
    /// weights; a fault of the device.
    pub fn load(self, device: &Device, progress: &mut dyn FnMut(u64, u64)) -> Result<Model, Error> {
        Ok(self.load_on(device, None, progress)?.0)
    }

    /// The same, and a stopwatch that tells where the time of its forward passes goes, by `clock`: the library has none.
    /// There is no stopwatch where operations go on after they return.
    ///
    /// # Errors
    /// As [`ModelFile::load`].
    pub fn load_timed(
        self,
        device: &Device,
        clock: Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Model, Option<Arc<Stopwatch>>), Error> {
        self.load_on(device, Some(clock), progress)
    }

    fn load_on(
        self,
        device: &Device,
        clock: Option<Clock>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Model, Option<Arc<Stopwatch>>), Error> {
        let mut placed = device.load(&self.gguf, self.spec.clone(), self.memory_needed(), clock, progress)?;
        let stopwatch = placed.stopwatch.take();
        Ok((Model { file: self, placed }, stopwatch))
    }
}

/// A model that is ready to run. Runs on several threads share its weights.
pub struct Model {
    file: ModelFile,
    placed: device::Placed,
}

impl std::ops::Deref for Model {
    type Target = ModelFile;

    fn deref(&self) -> &ModelFile {
        &self.file
    }
}

impl Model {
    /// Opens a model file (any part of a split one) and loads its weights.
    ///
    /// # Errors
    /// As [`ModelFile::open`] and [`ModelFile::load`].
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Model, Error> {
        ModelFile::open(path)?.load(device, &mut |_, _| {})
    }

    /// Where it runs, in words.
    pub fn place(&self) -> &str {
        &self.placed.place
    }

    /// What was chosen for a user who didn't choose, or how much of the model a GPU has room for; nothing when all is as
    /// asked.
    pub fn placement_note(&self) -> Option<&str> {
        self.placed.note.as_deref()
    }

    /// Bytes of GPU memory held at most so far; nothing without a GPU.
    pub fn peak_gpu_bytes(&self) -> Option<u64> {
        self.placed.gpu.as_ref().map(|gpu| gpu.usage().1)
    }

    /// Answers a prompt: `request.max_tokens` open positions behind it are decided. `observer` sees every step and the
    /// canvas after it, and may stop the run.
    ///
    /// # Errors
    /// [`Error::Context`] if prompt and open positions are more than the model's context, [`Error::Settings`] for a request that
    /// the model can't take, [`Error::Token`] for an id outside the vocabulary, [`Error::NotFinite`] for a broken model.
    pub fn generate(
        &self,
        prompt: &[u32],
        request: &Request,
        observer: &mut dyn FnMut(&StepReport, &Canvas) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        let canvas = self.canvas(prompt, request.max_tokens)?;
        let (run, mut predictor) = self.start(canvas, request)?;
        diffusion::generate(&mut *predictor, run, observer)
    }

    /// A run over a canvas, to be advanced step by step, and the predictor that goes with it.
    ///
    /// # Errors
    /// [`Error::Settings`] for a request that the model can't take.
    pub fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error> {
        let settings = self.settings(&canvas, request)?;
        let predictor = self.predictor_with(&canvas, settings.cfg_scale, settings.shadow_rows(&canvas));
        Ok((Denoising::new(canvas, settings), predictor))
    }

    /// Measures what forward passes cost here, for canvases of up to `positions` and ordinary ones; `now` reads a clock in
    /// seconds. For [`Request::tuned`].
    ///
    /// # Errors
    /// A fault of the device.
    pub fn curve(&self, positions: usize, now: &mut dyn FnMut() -> f64) -> Result<Curve, Error> {
        let rows = Curve::rows_for(positions.max(Curve::ORDINARY), self.spec.context);
        Curve::measure(&rows, &mut |positions| (self.placed.new_predictor)(positions), now)
    }

    /// The predictor for a canvas, with guidance if `cfg_scale` is above 0 (Nie et al. 2025, unsupervised classifier-free
    /// guidance): logits `[rows, V]`, or statistics of them.
    pub fn predictor(&self, canvas: &Canvas, cfg_scale: f64) -> Box<dyn MaskPredictor> {
        self.predictor_with(canvas, cfg_scale, 0)
    }

    /// The same, with room for a shadow of so many positions.
    fn predictor_with(&self, canvas: &Canvas, cfg_scale: f64, shadow: usize) -> Box<dyn MaskPredictor> {
        let predictor = || (self.placed.new_predictor)(canvas.len() + shadow);
        if cfg_scale == 0.0 {
            return predictor();
        }
        let given = (0..canvas.len()).map(|p| !canvas.is_asked(p)).collect();
        Box::new(Guided::new(predictor(), predictor(), cfg_scale, given))
    }
}

impl ModelFile {
    /// A prompt followed by open positions, checked against vocabulary and context.
    ///
    /// # Errors
    /// [`Error::Context`], [`Error::Token`].
    pub fn canvas(&self, prompt: &[u32], max_tokens: usize) -> Result<Canvas, Error> {
        let limit = self.spec.context;
        if prompt.len().saturating_add(max_tokens) > limit {
            return Err(Error::Context { prompt: prompt.len(), max_tokens, limit });
        }
        self.check_tokens(prompt)?;
        Ok(Canvas::continuing(prompt, max_tokens, self.spec.mask_token))
    }

    /// A canvas with open positions (`None`) anywhere, checked against vocabulary and context.
    ///
    /// # Errors
    /// [`Error::Context`], [`Error::Token`].
    pub fn canvas_with_blanks(&self, tokens: &[Option<u32>]) -> Result<Canvas, Error> {
        let open = tokens.iter().filter(|t| t.is_none()).count();
        if tokens.len() > self.spec.context {
            let prompt = tokens.len() - open;
            return Err(Error::Context { prompt, max_tokens: open, limit: self.spec.context });
        }
        let given: Vec<u32> = tokens.iter().flatten().copied().collect();
        self.check_tokens(&given)?;
        Ok(Canvas::with_blanks(tokens, self.spec.mask_token))
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<(), Error> {
        let vocab = self.spec.vocab;
        match tokens.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Error::Token { token, vocab }),
            None => Ok(()),
        }
    }

    /// Checks a request against this model, and fills in what it leaves open.
    ///
    /// # Errors
    /// [`Error::Settings`] names the option, its value and what is possible.
    pub fn settings(&self, canvas: &Canvas, request: &Request) -> Result<Settings, Error> {
        let open = canvas.open_in(0..canvas.len()).count();
        let ids = self.tokenizer.ids();
        let ends = [ids.eos, ids.eot].into_iter().flatten().collect();
        Ok(request.settings(&self.spec, ends, open)?)
    }

    /// For the recipe `auto`: the request as a machine with this curve affords it on this canvas, see [`Request::tuned`].
    pub fn tuned(&self, canvas: &Canvas, request: &Request, curve: &Curve) -> (Request, Tuning) {
        let open = canvas.open_in(0..canvas.len()).count();
        request.tuned(curve, &self.spec, canvas.len() - open, open)
    }

    /// The decided tokens of the answer up to the first open position or end token.
    pub fn answer_tokens<'a>(&self, canvas: &'a Canvas) -> &'a [u32] {
        let range = canvas.asked_range();
        let end = range
            .clone()
            .find(|&p| canvas.is_open(p) || (canvas.is_asked(p) && self.tokenizer.is_end(canvas.tokens()[p])))
            .unwrap_or(range.end);
        &canvas.tokens()[range.start..end]
    }

    /// The text of [`ModelFile::answer_tokens`].
    pub fn answer_text(&self, canvas: &Canvas) -> String {
        self.tokenizer.decode(self.answer_tokens(canvas))
    }
}
