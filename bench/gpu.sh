#!/usr/bin/env bash
# Measures demask on a machine with an NVIDIA card, in at most 8 minutes: builds, runs the conformance suite on the
# card, times forward passes of the 8B and 7B shapes with their parts; with a model also its logits against the CPU's,
# whether its texts repeat, and its forward passes.
#
#     bench/gpu.sh [MODEL.gguf]
#
# LLAMA_CPP: a folder with llama.cpp's sources; where nvcc is installed, its CUDA build is measured on the same model.
# What fails or is left out is said, and at the end all of it again; the exit code is 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
model=${1:-}
deadline=$((SECONDS + 465))
faults=()
skipped=()

left() { echo $((deadline - SECONDS > 1 ? deadline - SECONDS : 1)); }
within() { timeout --kill-after=5 "$(left)" "$@"; }
failed() { faults+=("$1") && echo "failed: $1"; }
skip() { skipped+=("$1") && echo "left out: $1"; }
finish() {
    echo
    echo "took $SECONDS s"
    [ ${#skipped[@]} -eq 0 ] || printf 'left out: %s\n' "${skipped[@]}"
    [ ${#faults[@]} -eq 0 ] || printf 'failed: %s\n' "${faults[@]}"
    [ ${#faults[@]} -eq 0 ]
    exit
}

if [ -n "$model" ] && [ ! -f "$model" ]; then
    echo "there is no file $model" >&2
    exit 2
fi
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if ! within cargo build --quiet --release -p demask-gpu --example measure ||
    ! within cargo build --quiet --release -p demask-cli; then
    failed "the build, or it took longer than 8 minutes: what is built stays, so run this again"
    finish
fi
target=${CARGO_TARGET_DIR:-target}/release
demask=$target/demask

echo
within "$target/examples/measure" || failed "conformance or the forward passes of the shapes (above)"
[ -n "$model" ] || skip "logits, texts and forward passes of a model: none was given"

if [ -n "$model" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT

    echo
    tokens=$(seq -s, 100 3 195)
    for device in gpu cpu; do
        within "$demask" logits -m "$model" --device "$device" --tokens "$tokens" --out "$scratch/$device" 2>/dev/null ||
            failed "logits on the $device"
    done
    if ! command -v python3 >/dev/null; then
        skip "logits against the CPU's: python3 is missing"
    elif [ -s "$scratch/gpu" ] && [ -s "$scratch/cpu" ]; then
        within python3 - "$scratch/gpu" "$scratch/cpu" <<'END' || failed "logits within 2 % relative RMS of the CPU's"
import array, math, sys
gpu, cpu = (array.array("f", open(name, "rb").read()) for name in sys.argv[1:])
error = math.sqrt(sum((a - b) ** 2 for a, b in zip(gpu, cpu)) / max(sum(b * b for b in cpu), 1e-300))
print(f"logits: {100 * error:.2f} % relative RMS from the CPU's, over {len(cpu)}")
sys.exit(not (len(gpu) == len(cpu) and error <= 0.02))
END
    fi

    # Half of the time that is left, as there is more to measure.
    until=$((SECONDS + $(left) / 2))
    runs=0
    while [ "$runs" -lt 20 ] && [ "$SECONDS" -lt "$until" ]; do
        within "$demask" run -m "$model" --device gpu --recipe exact -n 64 --temperature 0.5 --seed 7 \
            'Name three uses of sand.' >"$scratch/text.$runs" 2>"$scratch/said" || break
        runs=$((runs + 1))
    done
    different=0
    [ "$runs" -eq 0 ] || different=$(for ((n = 0; n < runs; n++)); do cksum <"$scratch/text.$n"; done | sort -u | wc -l)
    echo "generation of 64 tokens: $runs runs, $different distinct texts"
    if [ "$runs" -lt 20 ] && [ "$SECONDS" -lt "$until" ]; then
        failed "generation: $(grep '^error: ' "$scratch/said" || echo "no error was told")"
    elif [ "$runs" -lt 20 ]; then
        skip "generations after the first $runs: no time"
    fi
    [ "$runs" -eq 0 ] || [ "$different" -eq 1 ] || failed "equal texts of equal runs"

    within "$demask" bench -m "$model" --device gpu --forward-only --rows 32,148,256,512 --repeat 8 ||
        failed "forward passes of the model"

    if [ -z "${LLAMA_CPP:-}" ] || ! command -v nvcc >/dev/null || ! command -v cmake >/dev/null; then
        skip "llama.cpp: LLAMA_CPP, nvcc or cmake is missing"
    elif within cmake -S "$LLAMA_CPP" -B "$scratch/llama" -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native \
        -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF >"$scratch/said" 2>&1 &&
        within cmake --build "$scratch/llama" --target llama-bench -j >"$scratch/said" 2>&1; then
        within "$scratch/llama/bin/llama-bench" -m "$model" -ngl 99 -p 32,148,256,512 -n 0 || failed "llama-bench"
    else
        skip "llama.cpp: its CUDA build failed or took too long ($(tail -n 1 "$scratch/said"))"
    fi
fi
finish
