#!/usr/bin/env bash
# The architectures of this machine's GPUs, as CMAKE_CUDA_ARCHITECTURES takes them: "90a", "86;90a"; nothing where all
# are older than Ampere, for which the kernels can't be compiled. CMake's own "native" compiles for 90 where there is an
# H100 or H200, without what only 90a has: wgmma.
set -euo pipefail

capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) || capabilities=
all=$(sed -nE 's/^ *([0-9]+)\.([0-9]+) *$/\1\2/p' <<<"$capabilities")
found=$(awk '$1 >= 80' <<<"$all" | sed 's/^90$/90a/' | sort -u | paste -sd ';')
[[ -n $all ]] || found=native
echo "$found"
