"""Training: LLaDA's masked-diffusion objective on the generated data, on a few CPU cores.

One process per core, which share the batches of a step between them; parameters, gradients and optimiser state live in shared memory, and
every process updates its share of the matrices (Muon) and vectors (AdamW) with the summed gradient. The learning rate is
constant until `decay_steps` appears in the run folder's control.json, then falls to zero over that many steps.

    python train.py RUN_FOLDER        resumes from RUN_FOLDER/checkpoint.pt when it is there
"""

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F

import data
from model import Config, LLaDA
from tokenizer import VOCABULARY, Text

STEP_TOKENS = 3072  # of all processes together
BATCH_TOKENS = 768  # one forward and backward pass
MUON_RATE, MUON_MOMENTUM, WEIGHT_DECAY = 0.0016, 0.95, 0.05  # at more than twice this rate little is learned
ADAM_RATE, ADAM_BETAS = 0.0008, (0.9, 0.95)
WARMUP_STEPS = 60
REPORT_STEPS = 100
CHECKPOINT_SECONDS = 150
ALL_MASKED = 0.1  # extra share of fully masked answers, where decoding starts
SIDE_WEIGHT = 0.2  # loss weight of end-of-text padding and of the blocks after the current one
WHOLE = 0.2  # share of the short canvases that are one block
BLOCKS = [8] * 5 + [16] * 2 + [32] * 2 + [4]  # block lengths of the others, 8 being the model's default
LAST_BLOCK = 0.15  # extra share of answers' last blocks: an end is harder to see than to go on
IN_ORDER = 0.5  # share of the blocks whose first tokens are there and whose others are masked: decoding likes to go so

# what can be changed while training runs, by writing RUN_FOLDER/control.json
CONTROL = {
    "mix": {
        "sums": 22, "word_problems": 12, "sorting": 12, "counting": 11, "comparing": 9, "reversing": 8, "infill": 7,
        "spelling": 6, "blanks": 5, "capitals": 4, "times_table": 3, "lists": 2, "calendar": 2, "general": 2, "chat": 2,
    },
    "long_share": 0.02,  # samples on a canvas of 128 open positions, and as many on one of 64
    "rate": 1.0,
    "decay_steps": 0,
}


# Masked samples


def mask_some(rng, positions, in_order=False):
    """LLaDA's objective in its low-variance form: the number of masked tokens is uniform, each counts 1 / number."""
    count = len(positions) if rng.random() < ALL_MASKED else rng.randint(1, len(positions))
    chosen = positions[-count:] if in_order else rng.sample(positions, count)
    return {position: 1 / count for position in chosen}


def mask_chat(rng, text, sample, long_share):
    """Tokens and loss weights of one chat turn: a clean prompt, and an answer as some denoising step may find it."""
    prompt, answer = text.chat(sample.prompt), text.answer(sample)
    kind = rng.random()
    if kind < 2 * long_share:
        room = 128 if kind < long_share else 64
    elif kind < 2 * long_share + 0.2:
        room = 32 * math.ceil(len(answer) / 32)
    else:
        room = len(answer) + rng.randint(0, 20)
    total = 4 * math.ceil((len(prompt) + max(room, len(answer))) / 4)
    room = total - len(prompt)

    block = room
    if room > 64 or rng.random() >= WHOLE:
        block = rng.choice(BLOCKS)  # show what block decoding shows
    blocks = math.ceil(len(answer) / block)
    last = rng.random() < (LAST_BLOCK if kind > 2 * long_share else 0.5)
    low = block * (blocks - 1 if last else rng.randrange(blocks))
    high = min(low + block, room)
    equals = text.encode(" =")[0]
    if equals in answer and block >= len(answer) and rng.random() < 0.4:
        low = answer.index(equals) + 1  # the equation is there, its result isn't

    start, end = len(prompt), len(prompt) + len(answer)
    in_order = rng.random() < IN_ORDER
    weights = mask_some(rng, range(start + low, min(start + high, end)), in_order)
    padding = range(max(end, start + low), start + high)
    padding_masked = 1.0 if in_order else rng.choice([0.0, 1.0, rng.random(), rng.random()])
    side = [position for position in padding if rng.random() < padding_masked] + list(range(start + high, total))
    weights |= {position: SIDE_WEIGHT / len(side) for position in side}
    return prompt + answer + [text.eos] * (total - end), weights


def mask_raw(rng, text, sample):
    """Raw text with open positions in the middle; positions that the filling doesn't need hold the end-of-text token.

    Lengths are multiples of 4 so that batches fill up: through the number of open positions, or end-of-text tokens last.
    """
    if rng.random() < 0.3:
        tokens = [text.bos, *text.encode(sample.answer)]
        open_positions = range(1, len(tokens))
        return tokens + [text.eos] * (-len(tokens) % 8), mask_some(rng, open_positions)
    pieces = [(text.encode(piece), is_blank) for piece, is_blank in sample.pieces]
    ended = rng.random() < 0.5
    length = 1 + sum(len(piece) for piece, _ in pieces)
    spare = rng.choice([0, 0, 1, 2, 3, 4]) if ended else -length % 4
    tokens = [text.bos]
    for piece, is_blank in pieces:
        start = len(tokens)
        tokens += piece
        if is_blank:
            tokens += [text.eos] * spare
            blank = range(start, len(tokens))
    return tokens + [text.eos] * (-len(tokens) % 8 if ended else 0), mask_some(rng, blank)


class Batches:
    """An endless stream of batches; samples of equal length go together."""

    def __init__(self, text, seed):
        self.text, self.rng = text, random.Random(seed)
        self.waiting = {}

    def draw(self, control):
        """Returns (task names, inputs [N, L], targets [N, L], weights [N, L])."""
        rng, text = self.rng, self.text
        names, shares = list(control["mix"]), list(control["mix"].values())
        while True:
            sample = data.draw(rng, rng.choices(names, shares)[0])
            if sample.pieces:
                tokens, weights = mask_raw(rng, text, sample)
            else:
                tokens, weights = mask_chat(rng, text, sample, control["long_share"])
            queue = self.waiting.setdefault(len(tokens), [])
            queue.append((sample.task, tokens, weights))
            if len(queue) * len(tokens) >= BATCH_TOKENS:
                return self.assemble(self.waiting.pop(len(tokens)))

    def assemble(self, queue):
        targets = torch.tensor([tokens for _, tokens, _ in queue])
        weights = torch.zeros(targets.shape)
        for row, (_, _, chosen) in enumerate(queue):
            weights[row, list(chosen)] = torch.tensor(list(chosen.values()))
        inputs = targets.masked_fill(weights > 0, self.text.mask)
        return [name for name, _, _ in queue], inputs, targets, weights


# Optimiser


def orthogonalise(matrices, iterations=4):
    """Newton-Schulz iteration: the nearest semi-orthogonal matrix, roughly. matrices [N, rows <= columns]."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


class Optimiser:
    """Muon for the matrices of the layers, AdamW for everything else; state in shared memory."""

    def __init__(self, model):
        self.parameters = dict(model.named_parameters())
        self.muon = [n for n, p in self.parameters.items() if n.startswith("blk.") and p.ndim == 2]
        self.adam = [n for n in self.parameters if n not in set(self.muon)]
        self.state = {n: torch.zeros_like(self.parameters[n]).share_memory_() for n in self.parameters}
        self.squares = {n: torch.zeros_like(self.parameters[n]).share_memory_() for n in self.adam}

    @torch.no_grad()
    def update(self, rank, processes, gradient, step, scale):
        """Updates this process's share. gradient(name) returns the summed gradient."""
        by_shape = {}
        for name in self.muon[rank::processes]:
            momentum, g = self.state[name], gradient(name)
            momentum.lerp_(g, 1 - MUON_MOMENTUM)
            direction = g.lerp(momentum, MUON_MOMENTUM)
            tall = direction.shape[0] > direction.shape[1]
            by_shape.setdefault(tuple(sorted(direction.shape)), []).append((name, direction.mT if tall else direction, tall))
        for shape, entries in by_shape.items():
            for (name, _, tall), u in zip(entries, orthogonalise(torch.stack([d for _, d, _ in entries]))):
                rate = MUON_RATE * scale
                self.parameters[name].mul_(1 - rate * WEIGHT_DECAY)
                self.parameters[name].add_(u.mT if tall else u, alpha=-rate * 0.2 * max(shape) ** 0.5)
        for name in self.adam[rank::processes]:
            g, (beta1, beta2) = gradient(name), ADAM_BETAS
            mean, square = self.state[name].lerp_(g, 1 - beta1), self.squares[name].mul_(beta2).addcmul_(g, g, value=1 - beta2)
            step_mean, step_square = mean / (1 - beta1 ** step), square / (1 - beta2 ** step)
            self.parameters[name].addcdiv_(step_mean, step_square.sqrt() + 1e-10, value=-ADAM_RATE * scale)

    def tensors(self):
        return {"state": self.state, "squares": self.squares}

    def load(self, saved):
        for kind, tensors in self.tensors().items():
            for name, tensor in tensors.items():
                tensor.copy_(saved[kind][name])


# The loop


class Shared:
    """What the processes share besides the parameters: gradients, counters, the decisions of process 0."""

    def __init__(self, model, processes):
        self.shapes = {n: p.shape for n, p in model.named_parameters()}
        size = sum(p.numel() for p in model.parameters())
        self.gradients = torch.zeros(processes, size).share_memory_()
        self.samples = torch.zeros(processes).share_memory_()
        self.tokens = torch.zeros(processes, dtype=torch.int64).share_memory_()
        self.losses = torch.zeros(processes, len(data.GENERATORS), 2).share_memory_()  # sum, count
        self.claimed = multiprocessing.get_context("fork").Value("q", 0)  # batches since the start
        self.scale = torch.zeros(1).share_memory_()  # learning rate; negative: stop

    def claim_batch(self, steps):
        """Whether another batch belongs to this step; whichever process is free takes it."""
        with self.claimed.get_lock():
            if self.claimed.value >= steps * (STEP_TOKENS // BATCH_TOKENS):
                return False
            self.claimed.value += 1
            return True

    def views(self, row):
        """name -> the part of one process's gradient that belongs to it"""
        parts = row.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts)}


def read_control(folder):
    path = folder / "control.json"
    try:
        return CONTROL | (json.loads(path.read_text()) if path.exists() else {})
    except ValueError:  # half written: take it next time
        return CONTROL


def rate_scale(step, control, decay_start):
    scale = control["rate"] * min(1.0, step / WARMUP_STEPS)
    if decay_start is None:
        return scale
    return scale * (1 - (step - decay_start) / control["decay_steps"])


def save(folder, model, optimiser, step, shared, seconds):
    checkpoint = {
        "config": model.config.as_dict(), "model": model.state_dict(), "optimiser": optimiser.tensors(),
        "step": step, "tokens": shared.tokens.clone(), "seconds": seconds,
    }
    torch.save(checkpoint, folder / "checkpoint.tmp")
    (folder / "checkpoint.tmp").rename(folder / "checkpoint.pt")


def report(step, shared, scale, seconds):
    sums, counts = shared.losses.sum(0).unbind(-1)
    losses = {name: f"{s / c:.3f}" for name, s, c in zip(data.GENERATORS, sums.tolist(), counts.tolist()) if c}
    tokens = int(shared.tokens.sum())
    print(
        f"step {step} tokens {tokens / 1e6:.2f}M seconds {seconds:.0f} rate {scale:.3f} "
        f"loss {sums.sum() / counts.sum():.4f} " + " ".join(f"{k} {v}" for k, v in losses.items()),
        flush=True,
    )
    shared.losses.zero_()


def work(rank, processes, folder, text, model, optimiser, shared, barrier, first_step, seconds_before):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    batches = Batches(text, f"{rank} {first_step}")
    hidden = torch.compile(model.hidden, dynamic=True)
    names = list(data.GENERATORS)
    gradients = [shared.views(row) for row in shared.gradients]
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[rank][name]
    step, control, decay_start = first_step, read_control(folder), None
    started = last_saved = time.time()
    while True:
        step += 1
        if step % 10 == 0:
            control = read_control(folder)
        shared.gradients[rank].zero_()
        shared.samples[rank] = 0
        while shared.claim_batch(step - first_step):
            tasks, inputs, targets, weights = batches.draw(control)
            rows = weights.flatten().nonzero()[:, 0]
            losses = F.cross_entropy(
                model.output(hidden(inputs, rows)), targets.flatten()[rows], reduction="none"
            ) * weights.flatten()[rows]
            losses.sum().backward()
            shared.samples[rank] += len(tasks)
            shared.tokens[rank] += inputs.numel()
            per_sample = torch.zeros(len(tasks)).index_add_(0, rows // inputs.shape[1], losses.detach())
            for task, loss in zip(tasks, per_sample.tolist()):
                shared.losses[rank, names.index(task)] += torch.tensor([loss, 1.0])
        if rank == 0:
            if control["decay_steps"] and decay_start is None:
                decay_start = step
            scale = rate_scale(step, control, decay_start)
            shared.scale[0] = scale if scale > 0 else -1
        barrier.wait()

        scale = shared.scale.item()
        if scale < 0:
            break
        total = shared.samples.sum()
        optimiser.update(rank, processes, lambda name: sum(g[name] for g in gradients) / total, step, scale)
        barrier.wait()

        seconds = seconds_before + time.time() - started
        if rank == 0 and step % REPORT_STEPS == 0:
            report(step, shared, scale, seconds)
        if rank == 0 and time.time() - last_saved > CHECKPOINT_SECONDS:
            save(folder, model, optimiser, step, shared, seconds)
            last_saved = time.time()
    if rank == 0:
        seconds = seconds_before + time.time() - started
        report(step, shared, 0.0, seconds)
        save(folder, model, optimiser, step, shared, seconds)


def main():
    parser = argparse.ArgumentParser(description="Train the model; see the file's first lines.")
    parser.add_argument("folder", type=Path, help="holds tokenizer.json; receives checkpoint.pt")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    folder = arguments.folder

    torch.manual_seed(1)
    model = LLaDA(Config(vocab=VOCABULARY))
    model.initialise()
    shared = Shared(model, arguments.processes)
    model.share_memory()
    optimiser = Optimiser(model)
    first_step, seconds = 0, 0.0
    if (folder / "checkpoint.pt").exists():
        checkpoint = torch.load(folder / "checkpoint.pt")
        model.load_state_dict(checkpoint["model"])
        optimiser.load(checkpoint["optimiser"])
        first_step, seconds = checkpoint["step"], checkpoint["seconds"]
        shared.tokens[0] = checkpoint["tokens"].sum()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, from step {first_step}", flush=True)

    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(arguments.processes)
    text = Text.load(folder / "tokenizer.json")
    workers = [
        context.Process(
            target=work,
            args=(rank, arguments.processes, folder, text, model, optimiser, shared, barrier, first_step, seconds),
        )
        for rank in range(arguments.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
