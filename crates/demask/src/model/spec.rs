//! Facts about a model, read from its GGUF metadata.

use demask_compute::RopeSpec;
use demask_gguf::{Gguf, Metadata, Value};

use super::{ARCHITECTURES, Architecture};
use crate::diffusion::UnmaskRule;
use crate::error::Error;

/// Which reference sampler a model was published with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// LLaDA: blocks, even quotas, Gumbel noise.
    Llada,
    /// Dream: one block, time steps, filtered sampling, shifted logits.
    Dream,
}

impl Family {
    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Family::Llada => "LLaDA",
            Family::Dream => "Dream",
        }
    }

    /// The reference's unmaskers.
    pub fn rules(self) -> &'static [UnmaskRule] {
        match self {
            Family::Llada => &[UnmaskRule::LowConfidence, UnmaskRule::Random],
            Family::Dream => &[UnmaskRule::Entropy, UnmaskRule::MaskgitPlus, UnmaskRule::Margin, UnmaskRule::Origin],
        }
    }

    /// The unmasker that the family's published results use.
    pub fn default_rule(self) -> UnmaskRule {
        self.rules()[0]
    }
}

/// What the denoising loop and the forward pass need to know of a model.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// `general.name`, or the file's name.
    pub name: String,
    /// Reference sampler.
    pub family: Family,
    /// Layers.
    pub layers: usize,
    /// Model width (D).
    pub width: usize,
    /// Query heads (H).
    pub heads: usize,
    /// Key/value heads (G).
    pub kv_heads: usize,
    /// Features per head (K).
    pub head_dim: usize,
    /// Feed-forward width (F).
    pub ffn: usize,
    /// Vocabulary (V): rows of the embedding table.
    pub vocab: usize,
    /// Most positions of a canvas.
    pub context: usize,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Rotary embedding; its number of positions is each canvas's own.
    pub rope: RopeSpec,
    /// The token of open positions.
    pub mask_token: u32,
    /// Whether row p - 1 scores position p.
    pub shift_logits: bool,
    /// Block length the model was made for, if the file says.
    pub block_length: Option<usize>,
}

/// Architectures that people may try: they generate left to right.
const AUTOREGRESSIVE: &[&str] = &[
    "llama",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "qwen2moe",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma4",
    "mistral",
    "mistral3",
    "phi2",
    "phi3",
    "gpt2",
    "gptneox",
    "gpt-oss",
    "falcon",
    "mamba",
    "deepseek2",
    "command-r",
    "starcoder2",
    "olmo2",
    "granite",
    "smollm3",
    "glm4",
];

impl ModelSpec {
    /// Reads and checks a model's metadata. The weights are not touched.
    ///
    /// # Errors
    /// [`Error::Architecture`] for one without a row in [`ARCHITECTURES`], [`Error::Gguf`] for a key that is missing or holds
    /// what can't be, [`Error::NoTensor`] without an embedding table, [`Error::NoMaskToken`].
    pub fn from_gguf(gguf: &Gguf) -> Result<ModelSpec, Error> {
        let meta = gguf.metadata();
        let architecture = architecture(gguf)?;
        let name = meta.string("general.name")?.map_or_else(|| gguf.name().to_owned(), demask_gguf::escape);
        let key = |suffix: &str| format!("{}.{suffix}", architecture.name);
        let count = |suffix: &str| -> Result<usize, Error> {
            let key = key(suffix);
            let value = scalar(meta, &key)?.ok_or_else(|| meta.missing(&key))?;
            if value == 0 { Err(meta.wrong(&key, "a number over 0", "0").into()) } else { Ok(value) }
        };
        let (layers, width, heads) =
            (count("block_count")?, count("embedding_length")?, count("attention.head_count")?);
        let ffn = count("feed_forward_length")?;
        let kv_heads = scalar(meta, &key("attention.head_count_kv"))?.unwrap_or(heads);
        let context = scalar(meta, &key("context_length"))?.unwrap_or(4096);
        if !width.is_multiple_of(heads) {
            let key = key("attention.head_count");
            return Err(meta.wrong(&key, format!("a divisor of the width {width}"), heads.to_string()).into());
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let key = key("attention.head_count_kv");
            return Err(meta.wrong(&key, format!("a divisor of the {heads} heads"), kv_heads.to_string()).into());
        }
        let head_dim = width / heads;
        if !head_dim.is_multiple_of(2) || head_dim > 512 {
            let key = key("attention.head_count");
            let expected = "heads of an even number of features up to 512";
            return Err(meta.wrong(&key, expected, head_dim.to_string()).into());
        }
        for suffix in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
            if let Some(found) = scalar(meta, &key(suffix))?
                && found != head_dim
            {
                return Err(meta.wrong(&key(suffix), head_dim.to_string(), found.to_string()).into());
            }
        }
        if let Some(scaling) = meta.string(&key("rope.scaling.type"))?
            && scaling != "none"
        {
            let key = key("rope.scaling.type");
            return Err(meta.wrong(&key, "no scaling (none)", demask_gguf::escape(scaling)).into());
        }
        let eps_key = key("attention.layer_norm_rms_epsilon");
        let norm_eps = meta.require_f32(&eps_key)?;
        if !(norm_eps.is_finite() && norm_eps >= 0.0) {
            return Err(meta.wrong(&eps_key, "a small number", norm_eps.to_string()).into());
        }
        let theta_key = key("rope.freq_base");
        let theta = meta.f32(&theta_key)?.unwrap_or(10_000.0);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(meta.wrong(&theta_key, "a number over 0", theta.to_string()).into());
        }
        let embedding = crate::weights::tensor(gguf, "token_embd.weight")?;
        let vocab = usize::try_from(embedding.rows()).unwrap_or(usize::MAX);
        if let Some(claimed) = scalar(meta, &key("vocab_size"))?.filter(|&claimed| claimed != vocab) {
            let expected = format!("{vocab}, the rows of `token_embd.weight`");
            return Err(meta.wrong(&key("vocab_size"), expected, claimed.to_string()).into());
        }
        Ok(ModelSpec {
            architecture: architecture.name,
            name,
            family: architecture.family,
            layers,
            width,
            heads,
            kv_heads,
            head_dim,
            ffn,
            vocab,
            context,
            norm_eps,
            rope: RopeSpec { style: architecture.rope, head_dim, theta: f64::from(theta), positions: 0 },
            mask_token: mask_token(meta, architecture, vocab)?,
            shift_logits: shift(meta)?.unwrap_or(architecture.shift_logits),
            block_length: scalar(meta, "diffusion.block_length")?.filter(|&length| length > 0),
        })
    }

    /// The row of logits that scores `position`.
    pub fn scoring_row(&self, position: usize) -> u32 {
        (if self.shift_logits { position.saturating_sub(1) } else { position }) as u32
    }
}

fn architecture(gguf: &Gguf) -> Result<&'static Architecture, Error> {
    let name = gguf.metadata().require_string("general.architecture")?;
    ARCHITECTURES.iter().find(|row| row.name == name).ok_or_else(|| Error::Architecture {
        file: gguf.name().to_owned(),
        name: demask_gguf::escape(name),
        autoregressive: AUTOREGRESSIVE.contains(&name),
    })
}

/// An integer; an array of equal integers (some writers give one per layer) counts as one.
fn scalar(meta: &Metadata, key: &str) -> Result<Option<usize>, Error> {
    let wide = |value: u64| usize::try_from(value).unwrap_or(usize::MAX).min(1 << 40);
    if let Some(Value::Array(_)) = meta.get(key) {
        let values = meta.u32s(key)?.unwrap_or_default();
        return match values.split_first() {
            Some((first, rest)) if rest.iter().all(|v| v == first) => Ok(Some(wide(u64::from(*first)))),
            _ => Err(meta
                .wrong(key, "one number, or the same for every layer", format!("{:?}", &values[..values.len().min(8)]))
                .into()),
        };
    }
    Ok(meta.u64(key)?.map(wide))
}

/// `diffusion.shift_logits`: a bool, or the strings that older converters wrote.
fn shift(meta: &Metadata) -> Result<Option<bool>, Error> {
    const KEY: &str = "diffusion.shift_logits";
    match meta.get(KEY) {
        Some(Value::String(_)) => match meta.string(KEY)? {
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            other => Err(meta.wrong(KEY, "true or false", demask_gguf::escape(other.unwrap_or_default())).into()),
        },
        _ => Ok(meta.bool(KEY)?),
    }
}

fn mask_token(meta: &Metadata, architecture: &Architecture, vocab: usize) -> Result<u32, Error> {
    const KEY: &str = "tokenizer.ggml.mask_token_id";
    let named = meta.u32(KEY)?;
    match named.or(architecture.mask_token) {
        Some(id) if (id as usize) < vocab => Ok(id),
        Some(id) if named.is_some() => {
            Err(meta.wrong(KEY, format!("an id below the vocabulary's {vocab}"), id.to_string()).into())
        }
        _ => Err(Error::NoMaskToken { architecture: architecture.name, vocab }),
    }
}
