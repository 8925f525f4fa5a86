"""What the second thread brings: forward passes of one and of more threads, in turn.

    cargo build --release && cargo xtask model llada-8b bench/models/llada-8b.gguf
    python3 bench/threads.py bench/models/llada-8b.gguf

The machine's own limit is measured between them: what that many processes of one thread each get done together, each with a model of
its own, against one of them alone. Writes runs/DATE-MACHINE/threads-MODEL.json. `--share` is for busy machines, see peers.py.
"""

import argparse
import concurrent.futures
import datetime
import json
import pathlib
import statistics

import peers

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--demask", default=str(HERE.parent / "target/release/demask"))
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--rows", default=148, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--repeat", default=2, type=int, help="passes per round")
    parser.add_argument("--share", type=int, help="weight of each measured process's own scheduling group, -20 to 19")
    args = parser.parse_args()

    def passes(threads):
        return peers.demask(args.demask, args.model, [args.rows], threads, args.repeat, args.share, None)[0][args.rows]

    one, more, together = [], [], []
    for number in range(args.rounds):
        one += passes(1)
        more += passes(args.threads)
        with concurrent.futures.ThreadPoolExecutor(args.threads) as pool:
            for seconds in pool.map(passes, [1] * args.threads):
                together += seconds
        print(f"round {number + 1}: {min(one):.2f} s, {min(more):.2f} s", flush=True)

    median = statistics.median
    scaling, limit = median(one) / median(more), args.threads * median(one) / median(together)
    about, name = peers.machine(), pathlib.Path(args.model).stem
    result = {"model": name, "machine": about, "date": datetime.date.today().isoformat(), "commit": peers.commit(), "rows": args.rows, "threads": args.threads,
              "share": args.share, "one_thread_seconds": one, "seconds": more, "scaling": scaling,
              "together_seconds": together, "limit": limit}
    folder = peers.run_folder(about, result)
    (folder / f"threads-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{args.threads} threads: {scaling:.2f} of one; as many processes of one thread each: {limit:.2f}")


if __name__ == "__main__":
    main()
