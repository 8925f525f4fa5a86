//! Full-size models with random weights, for measuring speed and memory: the shapes, types and metadata of real files.
//!
//! Weights are quant blocks drawn directly (nothing is quantised), scaled so that activations stay in range. The mix of
//! types is llama-quantize's Q4_K_M.

use std::path::Path;

use anyhow::{Context, Result, bail};
use demask_gguf::{Array, TensorType, Value, Writer};

/// One shape.
struct Shape {
    name: &'static str,
    arch: &'static str,
    pre: &'static str,
    layers: u32,
    width: u64,
    heads: u32,
    kv_heads: u32,
    ffn: u64,
    vocab: u64,
    context: u32,
    theta: f32,
    eps: f32,
    /// (id, name) of special tokens.
    specials: &'static [(u32, &'static str)],
    bos: u32,
    eos: u32,
    eot: u32,
    mask: u32,
    biases: bool,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "llada-8b",
        arch: "llada",
        pre: "bailingmoe",
        layers: 32,
        width: 4096,
        heads: 32,
        kv_heads: 32,
        ffn: 12_288,
        vocab: 126_464,
        context: 4096,
        theta: 500_000.0,
        eps: 1e-5,
        specials: &[
            (126_080, "<|startoftext|>"),
            (126_081, "<|endoftext|>"),
            (126_336, "<|mdm_mask|>"),
            (126_346, "<|start_header_id|>"),
            (126_347, "<|end_header_id|>"),
            (126_348, "<|eot_id|>"),
        ],
        bos: 126_080,
        eos: 126_081,
        eot: 126_348,
        mask: 126_336,
        biases: false,
    },
    Shape {
        name: "dream-7b",
        arch: "dream",
        pre: "qwen2",
        layers: 28,
        width: 3584,
        heads: 28,
        kv_heads: 4,
        ffn: 18_944,
        vocab: 152_064,
        context: 131_072,
        theta: 1_000_000.0,
        eps: 1e-6,
        specials: &[
            (151_643, "<|endoftext|>"),
            (151_644, "<|im_start|>"),
            (151_645, "<|im_end|>"),
            (151_665, "<|beginoftext|>"),
            (151_666, "<|mask|>"),
        ],
        bos: 151_665,
        eos: 151_643,
        eot: 151_645,
        mask: 151_666,
        biases: true,
    },
];

/// Writes the model called `name` to `path`.
pub(crate) fn write(name: &str, path: &Path) -> Result<()> {
    let Some(shape) = SHAPES.iter().find(|shape| shape.name == name) else {
        let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        bail!("no shape `{name}`; there are {}", names.join(", "));
    };
    let mut writer = Writer::new();
    metadata(shape, &mut writer)?;
    tensors(shape, &mut writer)?;
    let bytes = writer.save(path).with_context(|| format!("cannot write {}", path.display()))?;
    crate::report(&format!("{}: {:.2} GB", path.display(), bytes as f64 / 1e9));
    Ok(())
}

fn metadata(shape: &Shape, writer: &mut Writer<'_>) -> Result<()> {
    let mut add = |key: &str, value: Value| writer.add(key, value).map(|_| ());
    add("general.architecture", shape.arch.into())?;
    add("general.name", format!("{} shape, random weights", shape.name).into())?;
    add("general.file_type", 15u32.into())?;
    add("general.quantization_version", 2u32.into())?;
    let key = |suffix: &str| format!("{}.{suffix}", shape.arch);
    add(&key("context_length"), shape.context.into())?;
    add(&key("embedding_length"), (shape.width as u32).into())?;
    add(&key("block_count"), shape.layers.into())?;
    add(&key("feed_forward_length"), (shape.ffn as u32).into())?;
    add(&key("attention.head_count"), shape.heads.into())?;
    add(&key("attention.head_count_kv"), shape.kv_heads.into())?;
    add(&key("attention.layer_norm_rms_epsilon"), shape.eps.into())?;
    add(&key("attention.causal"), false.into())?;
    add(&key("rope.freq_base"), shape.theta.into())?;
    add(&key("vocab_size"), (shape.vocab as u32).into())?;
    if shape.arch == "llada" {
        add("diffusion.shift_logits", false.into())?;
    }
    let (tokens, types) = vocabulary(shape);
    add("tokenizer.ggml.model", "gpt2".into())?;
    add("tokenizer.ggml.pre", shape.pre.into())?;
    add("tokenizer.ggml.tokens", Array::strings(tokens).into())?;
    add("tokenizer.ggml.token_type", Array::from(&types[..]).into())?;
    add("tokenizer.ggml.merges", Array::strings(["t h", "th e"]).into())?;
    for (key, id) in
        [("bos", shape.bos), ("eos", shape.eos), ("eot", shape.eot), ("mask", shape.mask), ("padding", shape.eos)]
    {
        add(&format!("tokenizer.ggml.{key}_token_id"), id.into())?;
    }
    add("tokenizer.ggml.add_bos_token", (shape.arch == "llada").into())?;
    Ok(())
}

/// All byte tokens, two merges, the special tokens at their ids, unused tokens elsewhere.
fn vocabulary(shape: &Shape) -> (Vec<String>, Vec<i32>) {
    let printable = |b: u32| (33..=126).contains(&b) || (161..=172).contains(&b) || (174..=255).contains(&b);
    let mut moved = 256;
    let byte_name = |b: u32| {
        let code = if printable(b) {
            b
        } else {
            moved += 1;
            moved - 1
        };
        char::from_u32(code).expect("below the surrogates").to_string()
    };
    let mut tokens: Vec<String> = (0..256).map(byte_name).collect();
    tokens.extend(["th".to_owned(), "the".to_owned()]);
    let mut types = vec![1; tokens.len()];
    for id in tokens.len() as u32..shape.vocab as u32 {
        let special = shape.specials.iter().find(|(at, _)| *at == id);
        tokens.push(special.map_or_else(|| format!("[PAD{id}]"), |(_, name)| (*name).to_owned()));
        types.push(if special.is_some() { 3 } else { 5 });
    }
    (tokens, types)
}

fn tensors(shape: &Shape, writer: &mut Writer<'_>) -> Result<()> {
    let (d, f, v) = (shape.width, shape.ffn, shape.vocab);
    let kv = d / u64::from(shape.heads) * u64::from(shape.kv_heads);
    let mut seed = 0;
    let mut add = |name: String, dims: &[u64], ty: TensorType| -> Result<()> {
        seed += 1;
        random_tensor(writer, &name, dims, ty, seed)
    };
    add("token_embd.weight".into(), &[d, v], TensorType::Q4_K)?;
    for n in 0..shape.layers {
        // llama-quantize: attn_v and ffn_down get more bits in the first and last eighth and every third layer between.
        let eighth = shape.layers / 8;
        let more = n < eighth || n >= 7 * shape.layers / 8 || (n - eighth) % 3 == 2;
        let some = if more { TensorType::Q6_K } else { TensorType::Q4_K };
        let name = |tensor: &str| format!("blk.{n}.{tensor}");
        add(name("attn_norm.weight"), &[d], TensorType::F32)?;
        add(name("attn_q.weight"), &[d, d], TensorType::Q4_K)?;
        add(name("attn_k.weight"), &[d, kv], TensorType::Q4_K)?;
        add(name("attn_v.weight"), &[d, kv], some)?;
        if shape.biases {
            add(name("attn_q.bias"), &[d], TensorType::F32)?;
            add(name("attn_k.bias"), &[kv], TensorType::F32)?;
            add(name("attn_v.bias"), &[kv], TensorType::F32)?;
        }
        add(name("attn_output.weight"), &[d, d], TensorType::Q4_K)?;
        add(name("ffn_norm.weight"), &[d], TensorType::F32)?;
        add(name("ffn_gate.weight"), &[d, f], TensorType::Q4_K)?;
        add(name("ffn_up.weight"), &[d, f], TensorType::Q4_K)?;
        add(name("ffn_down.weight"), &[f, d], some)?;
    }
    add("output_norm.weight".into(), &[d], TensorType::F32)?;
    add("output.weight".into(), &[d, v], TensorType::Q6_K)
}

/// Adds a tensor whose blocks are drawn while the file is written.
fn random_tensor(writer: &mut Writer<'_>, name: &str, dims: &[u64], ty: TensorType, seed: u64) -> Result<()> {
    let blocks = dims.iter().product::<u64>() / ty.block_len();
    let bytes = usize::try_from(ty.block_bytes())?;
    // Weights of about 1 / sqrt(K), so that a row's product has a standard deviation near 1.
    let deviation = 1.0 / (dims[0] as f32).sqrt();
    let is_norm = name.ends_with("norm.weight");
    writer.tensor_with(name, dims, ty, move |out| {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut buffer = vec![0u8; bytes * 4096];
        let mut left = blocks;
        while left > 0 {
            let count = left.min(4096) as usize;
            for block in buffer[..count * bytes].chunks_exact_mut(bytes) {
                match ty {
                    TensorType::Q4_K => q4_k(block, deviation, &mut random),
                    TensorType::Q6_K => q6_k(block, deviation, &mut random),
                    _ => {
                        let value = if is_norm { 1.0 + 0.1 * random.signed() } else { 0.1 * random.signed() };
                        block.copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            out.write_all(&buffer[..count * bytes])?;
            left -= count as u64;
        }
        Ok(())
    })?;
    Ok(())
}

/// Scales and minima of 32, so that weight = 32 d (q - 7.5) with dmin = 7.5 d; codes uniform.
fn q4_k(block: &mut [u8], deviation: f32, random: &mut Random) {
    random.fill(&mut block[16..]);
    let d = deviation / (32.0 * 4.61);
    block[..2].copy_from_slice(&half_bits(d));
    block[2..4].copy_from_slice(&half_bits(7.5 * d));
    // Low six bits of the first four scales and minima; the last four are 32 too: nibbles 0, top bits 10.
    block[4..12].fill(32 | 0b1000_0000);
    block[12..16].fill(0);
}

/// weight = d * scale * (q - 32), scales of 40, codes uniform.
fn q6_k(block: &mut [u8], deviation: f32, random: &mut Random) {
    random.fill(&mut block[..192]);
    block[192..208].fill(40);
    block[208..].copy_from_slice(&half_bits(deviation / (40.0 * 18.5)));
}

/// A positive f32 as the bytes of the nearest f16 (subnormal ones too).
fn half_bits(value: f32) -> [u8; 2] {
    let bits = if value >= 6.104e-5 {
        let bits = value.to_bits();
        ((bits >> 13) - (112 << 10)) as u16
    } else {
        (value / 5.960_464_5e-8).round() as u16
    };
    bits.to_le_bytes()
}

/// SplitMix64: enough for bytes that only have to look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Uniform in (-1, 1).
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_trip() {
        assert_eq!(half_bits(1.0), 0x3c00u16.to_le_bytes());
        assert_eq!(half_bits(0.5), 0x3800u16.to_le_bytes());
        assert_eq!(half_bits(6.0e-8), 1u16.to_le_bytes(), "the smallest subnormal");
    }

    #[test]
    fn unknown_shapes_are_refused() {
        let error = write("gpt-5", Path::new("never-written.gguf")).expect_err("no such shape");
        assert!(error.to_string().contains("llada-8b"), "{error}");
    }
}
