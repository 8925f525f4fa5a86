"""Held-out accuracy of the GGUF file itself, with LLaDA's reference sampler.

Each denoising step predicts every open position, and the most confident guesses of the current block are kept (greedy,
low-confidence remasking); blocks go from left to right. An item is done as soon as the text up to its end token can't
change any more, which leaves the text as it would be after all steps.

    python evaluate.py                               the table for the shipped model and test files
    python evaluate.py --json OUT.json --canvas 64   as JSON too, on a canvas of 64 open positions
"""

import argparse
import json
import re
import time
from pathlib import Path

import torch

from export import load_gguf

ASSETS = Path(__file__).resolve().parent.parent
BATCH = 64


def end_of_answer(answer, text):
    """How many leading tokens are visible and final, or None while that is open."""
    for index, token in enumerate(answer):
        if token == text.mask:
            return None
        if token in (text.eot, text.eos):
            return index
    return len(answer)


@torch.inference_mode()
def denoise(model, canvas, start, block, per_step, mask, is_final):
    """Fills the mask tokens of canvas [N, L] from `start` on, in place."""
    running = torch.arange(len(canvas))
    for low in range(start, canvas.shape[1], block):
        high = min(low + block, canvas.shape[1])
        while len(running):
            rows = canvas[running]
            unfinished = torch.tensor([not is_final(row) for row in rows.tolist()])
            running, rows = running[unfinished], rows[unfinished]
            working = (rows[:, low:high] == mask).any(-1)
            if not working.any():
                break
            hidden = model.hidden(rows)[:, low:high]
            confidence, guess = model.output(hidden).double().softmax(-1).max(-1)
            open_positions = rows[:, low:high] == mask
            confidence = confidence.masked_fill(~open_positions, -torch.inf)
            best = confidence.topk(min(per_step, high - low), dim=-1).indices
            chosen = torch.zeros_like(open_positions).scatter(-1, best, True) & open_positions
            rows[:, low:high] = torch.where(chosen, guess, rows[:, low:high])
            canvas[running] = rows


def batches(prompts):
    """Indices of prompts of equal length, at most BATCH together."""
    by_length = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(index)
    for indices in by_length.values():
        for at in range(0, len(indices), BATCH):
            yield indices[at : at + BATCH]


def answer_prompts(model, text, prompts, canvas_length, block, per_step):
    tokens = [text.chat(prompt) for prompt in prompts]
    answers = [""] * len(prompts)
    for indices in batches(tokens):
        start = len(tokens[indices[0]])
        canvas = torch.full((len(indices), start + canvas_length), text.mask)
        canvas[:, :start] = torch.tensor([tokens[index] for index in indices])
        denoise(
            model, canvas, start, block, per_step, text.mask,
            lambda row: end_of_answer(row[start:], text) is not None,
        )
        for index, row in zip(indices, canvas.tolist()):
            answers[index] = text.decode(row[start:][: end_of_answer(row[start:], text)])
    return answers


def fill_blanks(model, text, texts, block, per_step):
    """Raw texts with [[N]] marking N open positions."""
    answers = []
    for marked in texts:
        tokens = [text.bos]
        for piece in re.split(r"(\[\[\d+\]\])", marked):
            blank = re.fullmatch(r"\[\[(\d+)\]\]", piece)
            tokens += [text.mask] * int(blank[1]) if blank else text.encode(piece)
        canvas = torch.tensor([tokens])
        denoise(model, canvas, 1, block, per_step, text.mask, lambda row: text.mask not in row)
        answers.append(text.decode(canvas[0].tolist()))
    return answers


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description="Measure held-out accuracy; see the file's first lines.")
    parser.add_argument("--model", type=Path, default=ASSETS / "demask-tiny-q8_0.gguf")
    parser.add_argument("--items", type=Path, nargs="*",
                        default=[ASSETS / "heldout.jsonl", ASSETS / "heldout_infill.jsonl", ASSETS / "demo.jsonl"])
    parser.add_argument("--canvas", type=int, default=128, help="open positions")
    parser.add_argument("--block", type=int, help="positions per block (default: the model's)")
    parser.add_argument("--per-step", type=int, nargs="*", default=[1, 2, 4], help="tokens decided per step")
    parser.add_argument("--every", type=int, default=1, help="use every Nth item only")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--wrong", action="store_true", help="print the wrong answers at the first --per-step")
    parser.add_argument("--json", type=Path, help="write the table as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, text = load_gguf(arguments.model)
    block = arguments.block or model.config.block

    table = {}
    for path in arguments.items:
        items = read_lines(path)[:: arguments.every]
        rows = table.setdefault(path.stem, {})
        for per_step in arguments.per_step:
            started = time.time()
            if "text" in items[0]:
                answers = fill_blanks(model, text, [i["text"] for i in items], block, per_step)
            else:
                prompts = [i["prompt"] for i in items]
                answers = answer_prompts(model, text, prompts, arguments.canvas, block, per_step)
            for item, answer in zip(items, answers):
                right = answer == item["answer"]
                for task in (item["task"], "all"):
                    rows.setdefault(task, {}).setdefault(per_step, []).append(right)
                if arguments.wrong and not right and per_step == arguments.per_step[0]:
                    print(f"{item['id']}: {item.get('prompt', item.get('text'))!r} -> {answer!r}, not {item['answer']!r}")
            print(f"{path.stem}, {per_step} per step: {time.time() - started:.0f} s", flush=True)

    print(f"\n{'test':16} {'task':14} {'items':>5} " + " ".join(f"{n} per step" for n in arguments.per_step))
    report = {"model": arguments.model.name, "canvas": arguments.canvas, "block": block, "accuracy": {}}
    for test, rows in table.items():
        for task, results in sorted(rows.items(), key=lambda row: row[0] == "all"):
            accuracy = {n: sum(right) / len(right) for n, right in results.items()}
            count = len(next(iter(results.values())))
            report["accuracy"].setdefault(test, {})[task] = {"items": count, "per_step": accuracy}
            print(f"{test:16} {task:14} {count:5} " + " ".join(f"{a:10.1%}" for a in accuracy.values()))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
