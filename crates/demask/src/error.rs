//! What can go wrong in the library.

use crate::diffusion::SettingsError;
use crate::model::{ARCHITECTURES, Fault};
use crate::text::TextError;

/// A failure of the library. Messages are one line; [`Error::hint`] says what helps where we know it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // fields: the messages say it; sizes are bytes
pub enum Error {
    /// A file that can't be read, or is no GGUF file, or has metadata of the wrong shape.
    #[error(transparent)]
    Gguf(#[from] demask_gguf::Error),
    /// The processor or the GPU can't do what is asked, or failed.
    #[error(transparent)]
    Compute(#[from] demask_compute::ComputeError),
    /// A tokenizer, chat template or conversation that can't be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An option that can't be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No diffusion model, or one that demask doesn't know.
    #[error("cannot run {file}: {} (demask runs {})", architecture_fault(name, *autoregressive), supported())]
    Architecture { file: String, name: String, autoregressive: bool },
    /// A weight that isn't in the file.
    #[error("cannot run {file}: tensor `{tensor}` is missing{}", first_found(first))]
    NoTensor { file: String, tensor: String, first: Option<String> },
    /// A weight of another shape than the metadata ask for; a row's length goes first.
    #[error("cannot run {file}: tensor `{tensor}` has shape {found:?}, expected {expected:?}")]
    Shape { file: String, tensor: String, expected: Vec<usize>, found: Vec<usize> },
    /// A weight of a type that there are no kernels for.
    #[error("cannot run {file}: tensor `{tensor}` has type {ty}; supported types: {supported}")]
    WeightType { file: String, tensor: String, ty: String, supported: String },
    /// More tokens than the embedding table has rows.
    #[error(
        "cannot run {file}: its tokenizer has {tokens} tokens, and its embedding table (`token_embd.weight`) only {vocab} rows"
    )]
    Vocabulary { file: String, tokens: usize, vocab: usize },
    /// Weights that the system's free memory can't hold.
    #[error("cannot load {file}: it needs {:.1} GB of memory and {:.1} GB are available", gigabytes(*needed), gigabytes(*available))]
    Memory { file: String, needed: u64, available: u64 },
    /// Layers that the GPU's free memory can't hold; `fitting` of them it could.
    #[error("cannot load {file} on {device}: {layers} layer{} of it need{} {:.1} GB there and {:.1} GB are free", if *layers == 1 { "" } else { "s" }, if *layers == 1 { "s" } else { "" }, gigabytes(*needed), gigabytes(*free))]
    GpuMemory { file: String, device: String, layers: usize, needed: u64, free: u64, fitting: usize },
    /// Neither the file nor the architecture says which token stands for an open position.
    #[error(
        "the model needs a mask token: `tokenizer.ggml.mask_token_id` is missing and {architecture}'s own is outside this vocabulary of {vocab}"
    )]
    NoMaskToken { architecture: &'static str, vocab: usize },
    /// More positions than the model's context.
    #[error("prompt of {prompt} tokens and {max_tokens} open positions are {} positions; the model's context has {limit}", prompt + max_tokens)]
    Context { prompt: usize, max_tokens: usize, limit: usize },
    /// A model whose logits are infinite or no numbers.
    #[error("logits at step {step}, position {position} are not finite numbers{}; nothing of this step was kept", place_of(*fault))]
    NotFinite { step: usize, position: usize, fault: Option<Fault> },
    /// WINO with a predictor that can't run its shadow.
    #[error("the unmasker wino needs a masked shadow of its block, which {architecture} models can't run here yet")]
    NoShadow { architecture: &'static str },
    /// Drift with a predictor that doesn't tell its rows' values.
    #[error("--refresh-drift needs the values of rows, which {architecture} models can't give here yet")]
    NoRowValues { architecture: &'static str },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocab}")]
    Token { token: u32, vocab: usize },
}

impl Error {
    /// What would help.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Gguf(error) => error.hint(),
            Error::Compute(demask_compute::ComputeError::Device { hint, .. }) => Some(hint.clone()),
            Error::Text(error) => error.hint().map(str::to_owned),
            Error::Context { prompt, limit, .. } if prompt < limit => {
                Some(format!("use `--max-tokens {}` or less, or a shorter prompt", limit - prompt))
            }
            Error::Context { .. } => Some("use a shorter prompt".to_owned()),
            Error::WeightType { .. } => {
                Some("get the model in another quantisation, such as Q4_K_M or Q8_0".to_owned())
            }
            Error::Memory { needed, available, .. } => Some(format!(
                "a quantisation of {:.0} % of this file's size would fit; or free some memory",
                (*available as f64 / *needed as f64 * 100.0).floor()
            )),
            Error::GpuMemory { fitting: 0, .. } => Some("use `--device cpu`".to_owned()),
            Error::GpuMemory { fitting, .. } => {
                Some(format!("`--gpu-layers {fitting}` would fit; or use `--device cpu`"))
            }
            Error::NotFinite { .. } => {
                Some("the file may be damaged; `demask inspect FILE` shows what it holds".to_owned())
            }
            Error::NoRowValues { .. } => Some("use `--refresh N` instead".to_owned()),
            Error::NoShadow { .. } => Some("use another unmasker, such as `--unmask threshold`".to_owned()),
            _ => None,
        }
    }
}

fn place_of(fault: Option<Fault>) -> String {
    fault.map_or_else(String::new, |fault| format!(": {fault}"))
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn supported() -> String {
    ARCHITECTURES.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

fn architecture_fault(name: &str, autoregressive: bool) -> String {
    if autoregressive {
        format!("`{name}` is not a diffusion model: it generates left to right")
    } else {
        format!("architecture `{name}` is unknown")
    }
}

fn first_found(first: &Option<String>) -> String {
    match first {
        None => "; the file holds no weights".to_owned(),
        Some(name)
            if name.contains("weight")
                && !name.starts_with("blk.")
                && !name.starts_with("token_embd")
                && !name.starts_with("output") =>
        {
            format!("; the names are another converter's (the first is `{name}`)")
        }
        Some(_) => String::new(),
    }
}
