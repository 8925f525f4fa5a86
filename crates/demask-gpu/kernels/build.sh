#!/usr/bin/env bash
# Compiles the kernels to PTX with clang 19, which needs no SDK. The results are checked in beside the sources;
# `build.sh FOLDER` writes them elsewhere, to compare.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-ptx}
clang=${CLANG:-clang++-19}
mkdir -p "$out"

compile() { # NAME SOURCE [DEFINES...]
    local name=$1 source=$2
    shift 2
    "$clang" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_80 --cuda-feature=+ptx80 \
        -std=c++20 -O3 -ffp-contract=off -fno-exceptions -fno-rtti -Wall -Wextra -Werror \
        -Wno-unused-command-line-argument "$@" -S "$source" -o - |
        sed -e 's/[[:space:]]*\/\/.*$//' -e '/^[[:space:]]*$/d' -e 's/^[[:space:]]*\t/\t/' >"$out/$name.ptx"
}

# The forms of quantised weights: bits, halves, minima, integer scales (pack.rs has the same list).
for form in 4111 5111 6201 8100 4100 4110 5100 5110 4211 4201 8101; do
    compile "codes_$form" gemm_codes.cu -DBITS=${form:0:1} -DHALVES=${form:1:1} -DMINS=${form:2:1} -DINTEGER=${form:3:1}
done
compile wide gemm_wide.cu
compile rows rows.cu
compile sample sample.cu
compile attention attention.cu
compile peaks peaks.cu
