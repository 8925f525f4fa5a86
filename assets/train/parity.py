"""Logits of the GGUF in llama.cpp against the same file in PyTorch, for all rows of partly masked canvases.

Two environments, because llama-cpp-python is slow to build: the first command runs where it is installed, the second
where PyTorch is.

    python parity.py --write LOGITS.npz      llama.cpp's logits (needs llama_cpp, numpy, gguf)
    python parity.py --compare LOGITS.npz    against PyTorch (needs this folder's requirements.txt)
"""

import argparse
import ctypes
import random
from pathlib import Path

import numpy as np

MODEL = Path(__file__).resolve().parent.parent / "demask-tiny-q8_0.gguf"
PROMPTS = [
    "What is 48 + 24?", "List the planets separated by commas.", "Reverse the word stone.",
    "Tom has 12 apples and buys 7 more. How many apples does Tom have now?",
]
OPEN_POSITIONS = 48
CONTEXT = 256


def llama_logits(path, canvases):
    import llama_cpp as lc

    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
    vocabulary = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    settings = lc.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = CONTEXT
    settings.n_threads = settings.n_threads_batch = 2
    rows = []
    for canvas in canvases:
        context = lc.llama_init_from_model(model, settings)
        lc.llama_set_causal_attn(context, False)
        batch = lc.llama_batch_init(len(canvas), 0, 1)
        batch.n_tokens = len(canvas)
        for position, token in enumerate(canvas):
            batch.token[position], batch.pos[position] = int(token), position
            batch.n_seq_id[position], batch.seq_id[position][0], batch.logits[position] = 1, 0, 1
        if lc.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        pointer = lc.llama_get_logits(context)
        size = len(canvas) * vocabulary * ctypes.sizeof(ctypes.c_float)
        rows.append(np.frombuffer(ctypes.string_at(pointer, size), np.float32).reshape(len(canvas), vocabulary))
        lc.llama_batch_free(batch)
        lc.llama_free(context)
    lc.llama_model_free(model)
    return rows


def llama_tokens(path, texts):
    import llama_cpp as lc

    model = lc.Llama(str(path), vocab_only=True, verbose=False)
    return [model.tokenize(text.encode(), add_bos=False, special=True) for text in texts]


def chat_texts():
    return [
        f"<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n{prompt}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        for prompt in PROMPTS
    ]


def masked_canvases(path, prompts):
    """Open positions after each prompt, about a third of them filled with random tokens."""
    from gguf import GGUFReader

    mask = GGUFReader(path).fields["tokenizer.ggml.mask_token_id"].contents()
    rng = random.Random(5)
    return [
        [*prompt, *(rng.randrange(mask) if rng.random() < 0.3 else mask for _ in range(OPEN_POSITIONS))]
        for prompt in prompts
    ]


def write(path, out):
    canvases = masked_canvases(path, llama_tokens(path, chat_texts()))
    logits = llama_logits(path, canvases)
    np.savez(out, **{f"tokens{i}": c for i, c in enumerate(canvases)}, **{f"logits{i}": x for i, x in enumerate(logits)})


def compare(path, saved_path):
    import torch

    from export import load_gguf

    model, text = load_gguf(path)
    saved = np.load(saved_path)
    cosines, differences, agreements = [], [], []
    for index, prompt in enumerate(PROMPTS):
        tokens, theirs = saved[f"tokens{index}"].tolist(), saved[f"logits{index}"].astype(np.float64)
        if tokens[:-OPEN_POSITIONS] != text.chat(prompt):
            raise SystemExit(f"tokens of {prompt!r} differ: {tokens[:-OPEN_POSITIONS]} and {text.chat(prompt)}")
        with torch.inference_mode():
            ours = model(torch.tensor([tokens]))[0].double().numpy()
        norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        cosines.append((ours * theirs).sum(1) / norms)
        differences.append(np.abs(ours - theirs).max(1))
        agreements.append(ours.argmax(1) == theirs.argmax(1))
    cosines, differences, agreements = map(np.concatenate, (cosines, differences, agreements))
    print(f"{len(cosines)} rows of {len(PROMPTS)} canvases; prompts tokenise alike")
    print(f"cosine: median {np.median(cosines):.6f}, least {cosines.min():.6f}")
    print(f"largest difference of a logit: median {np.median(differences):.4f}, most {differences.max():.4f}")
    print(f"same first choice: {agreements.mean():.1%}")
    if np.median(cosines) <= 0.9995:
        raise SystemExit("median cosine is not above 0.9995")


def main():
    parser = argparse.ArgumentParser(description="Compare logits with llama.cpp; see the file's first lines.")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--write", type=Path, metavar="LOGITS")
    parser.add_argument("--compare", type=Path, metavar="LOGITS")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.model, arguments.write)
    if arguments.compare:
        compare(arguments.model, arguments.compare)


if __name__ == "__main__":
    main()
