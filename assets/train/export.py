"""Checkpoint to GGUF (architecture `llada`, as llama.cpp's converter names and lays out things), and GGUF back to PyTorch.

    python export.py RUN_FOLDER OUT.gguf
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, LlamaFileType, TokenType
from tokenizers import models

from model import Config, LLaDA
from tokenizer import BOS, CHAT_TEMPLATE, EOS, EOT, MASK, SPECIAL, Text, untrained

BLOCK_KEY = "diffusion.block_length"  # demask's default for the model; llama.cpp knows no such key and ignores it
ROTATED = ("attn_q.weight", "attn_k.weight")


def interleave(weight, heads):
    """Rows for the interleaved RoPE layout of llama.cpp's llada: (i, i + K/2) become neighbours."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def uninterleave(weight, heads):
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def add_metadata(writer, config):
    writer.add_name("demask-tiny")
    writer.add_description("A toy masked diffusion language model, trained on generated instructions")
    writer.add_license("MIT OR Apache-2.0")
    writer.add_size_label("4.2M")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.heads)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_vocab_size(config.vocab)
    writer.add_causal_attention(False)
    writer.add_diffusion_shift_logits(False)
    writer.add_uint32(BLOCK_KEY, config.block)


def add_tokenizer(writer, tokenizer_file):
    saved = json.loads(Path(tokenizer_file).read_text())
    ids = saved["model"]["vocab"] | {token["content"]: token["id"] for token in saved["added_tokens"]}
    tokens = sorted(ids, key=ids.get)
    assert [ids[token] for token in tokens] == list(range(len(tokens))), "the vocabulary has gaps"
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("bailingmoe")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in saved["model"]["merges"]])
    writer.add_bos_token_id(ids[BOS])
    writer.add_eos_token_id(ids[EOS])
    writer.add_eot_token_id(ids[EOT])
    writer.add_pad_token_id(ids[EOS])
    writer.add_mask_token_id(ids[MASK])
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def export(checkpoint, tokenizer_file, out):
    config = Config(**checkpoint["config"])
    writer = gguf.GGUFWriter(out, "llada")
    add_metadata(writer, config)
    add_tokenizer(writer, tokenizer_file)
    for name, weight in checkpoint["model"].items():
        weight = weight.float().numpy()
        if name.endswith(ROTATED):
            weight = interleave(weight, config.heads)
        if weight.ndim == 1:
            writer.add_tensor(name, weight)
        else:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(weight), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_gguf(path):
    """The model, dequantised, and its tokenizer; nothing but the GGUF file is read."""
    reader = gguf.GGUFReader(path)

    def value(key):
        return reader.fields[key].contents()

    config = Config(
        vocab=value("llada.vocab_size"), width=value("llada.embedding_length"), layers=value("llada.block_count"),
        heads=value("llada.attention.head_count"), ffn=value("llada.feed_forward_length"),
        context=value("llada.context_length"), rope_base=value("llada.rope.freq_base"),
        norm_eps=value("llada.attention.layer_norm_rms_epsilon"), block=value(BLOCK_KEY),
    )
    weights = {}
    for tensor in reader.tensors:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1].tolist())
        if tensor.name.endswith(ROTATED):
            weight = uninterleave(weight, config.heads)
        weights[tensor.name] = torch.tensor(weight, dtype=torch.float32)
    model = LLaDA(config)
    model.load_state_dict(weights)

    ids = {token: index for index, token in enumerate(value("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]
    tokenizer = untrained(models.BPE({t: i for t, i in ids.items() if t not in SPECIAL}, merges))
    tokenizer.add_special_tokens(SPECIAL)
    return model.eval(), Text(tokenizer)


def main():
    parser = argparse.ArgumentParser(description="Write a checkpoint as GGUF, matrices in Q8_0.")
    parser.add_argument("folder", type=Path, help="holds checkpoint.pt and tokenizer.json")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    checkpoint = torch.load(arguments.folder / "checkpoint.pt", map_location="cpu")
    export(checkpoint, arguments.folder / "tokenizer.json", arguments.out)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.2f} MB, step {checkpoint['step']}")


if __name__ == "__main__":
    main()
