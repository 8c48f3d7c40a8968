#!/usr/bin/env bash
# Installs CUDA from PyPI, pinned by cuda_*_requirements.txt beside this script:
#   install_cuda.sh TOOLKIT RUNTIME
# In the folder TOOLKIT all that compiles, as NVIDIA's own packages lay it out; in the folder RUNTIME the shared
# libraries alone that the server loads. What was installed is told by dist-info/ in each.
set -euo pipefail

(($# == 2)) || {
  echo 'usage: install_cuda.sh TOOLKIT RUNTIME' >&2
  exit 2
}
readonly toolkit=$1 runtime=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
readonly here scratch
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/venv"

# unpack REQUIREMENTS FOLDER: of all wheels into one tree; libraries of cuDNN are beside the others.
unpack() {
  "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 2 --no-cache-dir \
    --require-hashes --no-deps --only-binary :all: --requirement "$1" --target "$scratch/wheels"
  mkdir -p "$2/dist-info"
  cp --recursive --link "$scratch"/wheels/nvidia/*/. "$2"
  mv "$scratch"/wheels/*.dist-info "$2/dist-info"
  rm -rf "$scratch/wheels"
}

unpack "$here/cuda_run_requirements.txt" "$toolkit"
mkdir -p "$runtime"
cp --recursive "$toolkit/dist-info" "$runtime"
cp --recursive "$toolkit/lib" "$runtime/lib64"
# NVRTC's other build of itself, which nothing loads.
rm -f "$runtime"/lib64/*.alt.so* "$runtime"/lib64/*.a
unpack "$here/cuda_build_requirements.txt" "$toolkit"
ln -s lib "$toolkit/lib64"
# CMake looks for a library by the name that a linker does.
for library in "$toolkit"/lib/*.so.*; do
  ln -sf "${library##*/}" "${library%%.so.*}.so"
done
