#!/usr/bin/env bash
# Compiles the kernels of the tests with clang 19, which needs no SDK. `build.sh FOLDER` writes elsewhere, to compare.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-.}
clang=${CLANG:-clang++-19}

compile() { # NAME SOURCE [DEFINES...]
    local name=$1 source=$2
    shift 2
    "$clang" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 \
        -std=c++20 -O2 -fno-exceptions -fno-rtti -Wall -Werror "$@" -S "$source" -o "$out/$name.ptx"
}

compile gemm_q8 gemm_q8.cu
compile gemm_q4 gemm_q4.cu
compile rows rows.cu
compile attention attention.cu
compile odds odds.cu -gline-tables-only -fdebug-compilation-dir=.

# The same with a mistake in each.
faulty() { # SOURCE FAULTS...
    local source=$1 fault
    shift
    for fault in "$@"; do
        compile "$source.${fault,,}" "$source.cu" "-DFAULT_$fault"
    done
}
faulty gemm_q8 UNCLAMPED_ROW OFF_BY_ONE_STEP WRONG_LAYOUT MISALIGNED_ROWS OVERLAPPING_TILES ONE_STAGE
faulty rows DIVERGENT_BARRIER DIVERGENT_SHUFFLE UNWRITTEN_PARTIALS SOME_WARPS_LEAVE
faulty attention UNMASKED_TAIL
