"""demask and llama.cpp on the same file, one after the other in one run: forward passes at several row counts.

    python3 -m venv .venv && .venv/bin/pip install llama-cpp-python==0.3.36
    cargo build --release && cargo xtask model llada-8b bench/models/llada-8b.gguf
    .venv/bin/python bench/peers.py bench/models/llada-8b.gguf

Rounds alternate between the programs, so that both see the same machine; what counts is the ratio of their medians. demask
computes what a denoising step needs (row statistics for the last 32 rows); llama.cpp's encoder path computes the logits of
every row, as its diffusion tool does in each step. llama.cpp runs in two settings: as its tool runs it (weights repacked at
load) and without repacking, which may be faster. Flash attention is off in both. Writes runs/DATE-MACHINE/peers-MODEL.json
and a Markdown table beside it.

`--isa avx2` holds both to AVX2, on any machine. llama.cpp's package is built for the machine it is installed on, so this needs
a second environment, with a package built without more (and not taken from pip's cache):

    python3 -m venv .venv-avx2 && CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON" \
        .venv-avx2/bin/pip install --no-cache-dir llama-cpp-python==0.3.36
    .venv-avx2/bin/python bench/peers.py bench/models/llada-8b.gguf --isa avx2

On a busy machine, `--share -19` (Linux, as root) gives each measured process a scheduling group of its own with that weight.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def run(command, share, isa=None):
    """What a measured program prints, as JSON, with its peak memory."""
    environment = dict(os.environ, **({"DEMASK_ISA": isa} if isa else {}))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=share is not None)
    if share is not None:
        pathlib.Path(f"/proc/{process.pid}/autogroup").write_text(str(share))
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} failed with status {process.returncode}")
    return {"peak_rss_bytes": usage.ru_maxrss * 1024, **json.loads(out)}


def demask(binary, model, rows, threads, repeat, share, isa):
    """Seconds per pass by row count, load seconds, peak memory."""
    command = [binary, "bench", "--forward-only", "--json", "--model", model, "--threads", str(threads), "--repeat", str(repeat),
               "--rows", ",".join(map(str, rows))]
    out = run(command, share, isa)
    forward = out["forward"]
    seconds = {p["rows"]: p["seconds"] for p in forward["passes"]}
    return seconds, forward["load_seconds"], forward["peak_rss_bytes"], out["isa"], {"copy_seconds": forward["copy_seconds"]}


def llamacpp(model, rows, threads, repeat, share, repack):
    """The same for llama.cpp, in a process of its own so that memory is given back and can be read."""
    command = [sys.executable, __file__, "--worker", model, "--threads", str(threads), "--repeat", str(repeat),
               "--rows", ",".join(map(str, rows))] + ([] if repack else ["--no-repack"])
    out = run(command, share)
    return {int(r): s for r, s in out["seconds"].items()}, out["load_seconds"], out["peak_rss_bytes"], out["version"], {"built_for": out["built_for"]}


def worker(args):
    import llama_cpp
    from llama_cpp import llama_cpp as c

    @c.llama_log_callback
    def quiet(level, text, data):
        pass

    c.llama_log_set(quiet, ctypes.c_void_p(0))
    c.llama_backend_init()
    params = c.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, not args.no_repack
    start = time.perf_counter()
    model = c.llama_model_load_from_file(args.model.encode(), params)
    if not model:
        sys.exit("llama.cpp can't load the file")
    load = time.perf_counter() - start
    mask = c.llama_vocab_mask(c.llama_model_get_vocab(model))
    seconds = {}
    for rows in args.rows:
        params = c.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = rows
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = 0
        context = c.llama_init_from_model(model, params)
        batch = c.llama_batch_init(rows, 0, 1)
        batch.n_tokens = rows
        for i in range(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = mask, i, 1, 1
            batch.seq_id[i][0] = 0
        seconds[rows] = []
        for _ in range(args.repeat):
            start = time.perf_counter()
            if c.llama_decode(context, batch) != 0:
                sys.exit("llama_decode failed")
            c.llama_synchronize(context)
            seconds[rows].append(time.perf_counter() - start)
        c.llama_batch_free(batch)
        c.llama_free(context)
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "load_seconds": load, "peak_rss_bytes": peak,
                      "version": f"llama-cpp-python {llama_cpp.__version__}", "built_for": built_for()}))


def built_for():
    """The instruction sets that the installed llama.cpp was built for."""
    from llama_cpp import llama_cpp as c

    return [part.split("=")[0].strip() for part in c.llama_print_system_info().decode().replace("CPU :", "").split("|") if "= 1" in part]


def machine():
    """The processor's name and the features that matter."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    field = lambda name: next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(name)), "")
    flags = set(field("flags").split())
    wanted = ["avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8"]
    return {"cpu": field("model name") or platform.processor(), "flags": [f for f in wanted if f in flags],
            "cores": len([line for line in text.splitlines() if line.startswith("processor")])}


def commit():
    """The commit that is checked out."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()


def run_folder(about, result):
    """Where the results of this machine and day go."""
    slug = "-".join(about["cpu"].lower().replace("(r)", "").replace("@", "").split()[:4])
    folder = HERE / "runs" / f"{result['date']}-{slug}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--demask", default=str(HERE.parent / "target/release/demask"))
    parser.add_argument("--rows", default="32,64,148", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--repeat", default=2, type=int, help="passes per row count and round")
    parser.add_argument("--isa", help="hold both to this instruction set; only avx2")
    parser.add_argument("--share", type=int, help="weight of each measured process's own scheduling group, -20 to 19")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-repack", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)

    if args.isa not in (None, "avx2"):
        sys.exit("--isa can only be avx2")
    beyond = [name for name in built_for() if name.startswith(("AVX512", "AVX_VNNI", "AMX"))]
    if args.isa and beyond:
        sys.exit(f"this environment's llama.cpp is built for {', '.join(beyond)}: see the top of {__file__}")
    share = args.share
    peers = {
        "demask": lambda: demask(args.demask, args.model, args.rows, args.threads, args.repeat, share, args.isa),
        "llama.cpp": lambda: llamacpp(args.model, args.rows, args.threads, args.repeat, share, True),
        "llama.cpp, no repack": lambda: llamacpp(args.model, args.rows, args.threads, args.repeat, share, False),
    }
    found = {name: {"seconds": {rows: [] for rows in args.rows}, "load_seconds": [], "peak_rss_bytes": []} for name in peers}
    for number in range(args.rounds):
        for name, measure in peers.items():
            seconds, load, peak, version, more = measure()
            for rows in args.rows:
                found[name]["seconds"][rows] += seconds[rows]
            found[name]["load_seconds"].append(load)
            found[name]["peak_rss_bytes"].append(peak)
            found[name]["version"] = version
            for key, value in more.items():
                found[name].setdefault(key, []).append(value)
            print(f"round {number + 1}, {name}: " + ", ".join(f"{r} rows {min(seconds[r]):.2f} s" for r in args.rows), file=sys.stderr)

    about = machine()
    name = pathlib.Path(args.model).stem
    result = {"model": name, "file_bytes": pathlib.Path(args.model).stat().st_size, "threads": args.threads, "isa": args.isa or "native", "share": share, "machine": about,
              "date": datetime.date.today().isoformat(), "commit": commit(), "peers": found}
    folder = run_folder(about, result)
    suffix = f"-{args.isa}" if args.isa else ""
    (folder / f"peers-{name}{suffix}.json").write_text(json.dumps(result, indent=1) + "\n")

    median = lambda peer, rows: statistics.median(found[peer]["seconds"][rows])
    held = f"held to {args.isa}" if args.isa else ", ".join(about["flags"])
    lines = [f"{name}, {args.threads} threads, {about['cpu']} ({held}), {result['date']}, commit {result['commit']}; medians of "
             f"{args.rounds * args.repeat} interleaved passes, seconds", "",
             "| | " + " | ".join(f"{r} rows" for r in args.rows) + " | load s | peak memory |", "|---" * (len(args.rows) + 3) + "|"]
    for peer in peers:
        memory = max(found[peer]["peak_rss_bytes"]) / 1e9
        lines.append(f"| {peer} | " + " | ".join(f"{median(peer, r):.2f}" for r in args.rows)
                     + f" | {statistics.median(found[peer]['load_seconds']):.1f} | {memory:.2f} GB |")
    for peer in list(peers)[1:]:
        lines.append(f"| demask / {peer} | " + " | ".join(f"{median('demask', r) / median(peer, r):.2f}" for r in args.rows) + " | | |")
    (folder / f"peers-{name}{suffix}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
