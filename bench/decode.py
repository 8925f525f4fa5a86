"""Visible tokens per second of a whole answer: demask's recipe `fast` beside llama.cpp at one token per step, in one run.

    cargo build --release -p demask --example scripted_confidence && cargo xtask model llada-8b bench/models/llada-8b.gguf
    .venv/bin/python bench/decode.py bench/models/llada-8b.gguf

The canvas is a prompt of 150 tokens and 256 open positions in blocks of 32. llama.cpp's diffusion tool runs all 406 rows in each
of its 256 steps, so a few of its steps are timed and multiplied; it runs in both of its settings (see peers.py). demask runs the
whole answer, every forward pass as it is; as the weights are random, the number of positions that a step decides is set by a
scripted confidence, 2.8 on average. Programs run one after the other, llama.cpp before and after demask. Writes
runs/DATE-MACHINE/decode-SIZE.json and a Markdown table beside it. `--share` is for machines that do other things too, see peers.py.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

import peers

HERE = pathlib.Path(__file__).resolve().parent
ROWS, STEPS, TOKENS, BAR = 150 + 256, 256, 256, 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--example", default=str(HERE.parent / "target/release/examples/scripted_confidence"))
    parser.add_argument("--threads", default=2, type=int, help="of llama.cpp; demask takes the machine's physical cores")
    parser.add_argument("--repeat", default=1, type=int, help="steps of llama.cpp per round and setting")
    parser.add_argument("--exact-steps", default=2, type=int, help="steps of demask's `exact` that are timed")
    parser.add_argument("--share", type=int, help="weight of each measured process's own scheduling group, -20 to 19")
    parser.add_argument("--build", default="release profile", help="how demask was built, told in the result")
    args = parser.parse_args()
    say = lambda text: print(text, file=sys.stderr, flush=True)

    steps = {"llama.cpp": [], "llama.cpp, no repack": []}
    version = None

    def llamacpp():
        nonlocal version
        for name in steps:
            command = [sys.executable, str(HERE / "peers.py"), "--worker", args.model, "--threads", str(args.threads), "--repeat",
                       str(args.repeat), "--rows", str(ROWS)] + ([] if name == "llama.cpp" else ["--no-repack"])
            found = peers.run(command, args.share)
            version = found["version"]
            steps[name] += found["seconds"][str(ROWS)]
            say(f"{name}: {found['seconds'][str(ROWS)]} s per step of {ROWS} rows")

    def demask(recipe, most=None):
        found = peers.run([args.example, args.model, recipe] + ([str(most)] if most else []), args.share)
        say(f"demask {recipe}: {found['steps']} steps, {sum(found['step_seconds']):.1f} s")
        return found

    llamacpp()
    fast = demask("fast")
    exact = demask("exact", args.exact_steps)
    llamacpp()

    seconds = sum(fast["step_seconds"])
    speed = fast["visible_tokens"] / seconds
    peer = {name: TOKENS / (STEPS * statistics.median(found)) for name, found in steps.items()}
    own = TOKENS / (STEPS * statistics.median(exact["step_seconds"]))
    about, name = peers.machine(), pathlib.Path(args.model).stem
    size = name.removeprefix("llada-")
    result = {"model": name, "machine": about, "date": datetime.date.today().isoformat(), "commit": peers.commit(), "threads": args.threads,
              "share": args.share, "build": args.build, "peer_version": version, "prompt": 150, "open": 256, "block_length": 32, "scripted_commits_per_step": 2.8,
              "demask_fast": fast, "demask_exact_steps": exact, "llama_cpp_step_seconds": steps,
              "tokens_per_s": {"demask fast": speed, "demask exact": own, **peer},
              "fast_over": {**{n: speed / p for n, p in peer.items()}, "demask exact": speed / own}}
    folder = peers.run_folder(about, result)
    (folder / f"decode-{size}.json").write_text(json.dumps(result, indent=1) + "\n")

    lines = [f"{name}, random weights, {fast['device']}, {about['cpu']}, {result['date']}, commit {result['commit']}; prompt 150 tokens, 256 open positions, "
             f"blocks of 32; {version}; demask built in the {args.build}; peak memory of `fast` {fast['peak_rss_bytes'] / 1e9:.2f} GB", "",
             "| | steps | rows per step | s per step | visible tokens/s | `fast` is |", "|---|--:|--:|--:|--:|--:|",
             f"| demask, `fast` | {fast['steps']} | {fast['rows'] / fast['steps']:.0f} | {seconds / fast['steps']:.2f} | {speed:.3f} | |",
             f"| demask, `exact` | 256 ({len(exact['step_seconds'])} timed) | {ROWS} | {statistics.median(exact['step_seconds']):.2f} | {own:.4f} | "
             f"{speed / own:.1f} x |"]
    lines += [f"| {n} | 256 ({len(found)} timed) | {ROWS} | {statistics.median(found):.2f} | {peer[n]:.4f} | {speed / peer[n]:.1f} x |"
              for n, found in steps.items()]
    lines += ["", f"`fast` decided {fast['commits_per_step']:.2f} positions per step: a scripted confidence sets that (2.8), as random weights are sure "
              "of nothing; every forward pass", "was computed as it is. llama.cpp's diffusion tool decides one position per step over the whole canvas."]
    (folder / f"decode-{size}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if speed / max(peer.values()) < BAR:
        sys.exit(f"under the bar of {BAR} times")


if __name__ == "__main__":
    main()
