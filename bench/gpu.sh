#!/usr/bin/env bash
# Measures demask on a machine with an NVIDIA card, in at most 8 minutes: builds, runs the conformance suite on the
# card, times forward passes of the 8B and 7B shapes with their parts, and a generation if a model is given.
#
#     bench/gpu.sh [MODEL.gguf]
#
# LLAMA_CPP: a folder with llama.cpp's sources; where nvcc is installed, its CUDA build is measured on the same model.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-}
deadline=$((SECONDS + 470))
left() { echo $((deadline - SECONDS > 1 ? deadline - SECONDS : 1)); }

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
timeout "$(left)" cargo build --quiet --release -p demask-gpu --example measure
timeout "$(left)" cargo build --quiet --release
target=${CARGO_TARGET_DIR:-target}/release
timeout "$(left)" "$target/examples/measure"

if [ -z "$model" ]; then
    echo "no model given: no generation was run"
    exit 0
fi
echo "generation of 64 tokens, greedy, ten times: the texts must be one"
for _ in $(seq 10); do
    timeout "$(left)" "$target/demask" run -m "$model" --device gpu -n 64 -p 'Name three uses of sand.' 2>/dev/null | cksum
done | sort | uniq -c
timeout "$(left)" "$target/demask" bench -m "$model" --device gpu --forward-only --rows 32,148,256,512 || echo "bench failed"

if [ -z "${LLAMA_CPP:-}" ] || ! command -v nvcc >/dev/null || ! command -v cmake >/dev/null; then
    echo "llama.cpp was not measured: LLAMA_CPP, nvcc or cmake is missing"
    exit 0
fi
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
if timeout "$(left)" cmake -S "$LLAMA_CPP" -B "$build" -DGGML_CUDA=ON -DCMAKE_BUILD_TYPE=Release >/dev/null &&
    timeout "$(left)" cmake --build "$build" --target llama-bench -j >/dev/null; then
    timeout "$(left)" "$build/bin/llama-bench" -m "$model" -ngl 99 -p 32,148,256,512 -n 0 || echo "llama-bench failed"
else
    echo "llama.cpp's CUDA build failed or took too long"
fi
