#!/usr/bin/env bash
# Packs what tests/gpu/run.sh needs into one folder that a GPU machine without a compiler, gRPC or
# Abseil can run: programs of a CUDA build, their libraries except CUDA's and the C library's, the
# scripts, and the service's description.
#   tests/gpu/pack.sh [BUILD_FOLDER [OUT_FOLDER]]       there: bash OUT_FOLDER/run.sh
set -euo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
build=$(realpath --canonicalize-missing "${1:-$root/build/cuda}")
out=$(realpath --canonicalize-missing "${2:-$root/build/gpu-pack}")
readonly root build out
cd "$root"

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib"
for program in bin/warpcalld bin/warpcall tests/bin/kernels_conformance_test \
  tests/bin/kernels_variants_test tests/bin/device_test \
  tests/bin/gpu_observe_test tests/bin/warpcall_row_launcher \
  tests/bin/warpcall_cuda_kernel_bench tests/bin/warpcall_device_path_bench \
  tests/bin/warpcall_triton_choices \
  tests/bin/warpcall_transport_bench tests/bin/warpcall_resident_bench tests/bin/warpcall_graph_bench \
  tests/bin/warpcall_stream_bench tests/bin/warpcall_soak_bench \
  tests/bin/warpcall_metrics_bench tests/bin/warpcall_worker_hop_bench; do
  strip --strip-debug -o "$out/bin/${program##*/}" "$build/$program"
  ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' >>"$out/libraries"
done
# The machine brings these itself: newer ones of the system, and those that belong to its driver.
sort -u "$out/libraries" |
  { grep -Ev "/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|cuda|cudart|cublas(Lt)?|cudnn[^/]*))\\.so" ||
    true; } |
  while read -r library; do cp -L "$library" "$out/lib/"; done
rm "$out/libraries"
protoc --proto_path=proto --include_imports --descriptor_set_out="$out/warpcall.desc" \
  warpcall/v1/warpcall.proto
# The other machine has nvml.h, which this one need not have.
cp --parents tests/gpu/nvml_check.cc server/runtime/cuda/nvml_types.h "$out/"
cp --parents client/python/warpcall/*.py tests/client/python/{support,torch_test}.py \
  tests/differential/differential.py "$out/"
cp tests/gpu/run.sh tests/gpu/{service,residents,graphs,workers,push,fault,inspect}_check.py tests/gpu/tune.py \
  tests/differential/{differential,graphs}.py tests/bench/scrape_bench.py tests/bench/peers{,_load,_problems,_triton}.py tests/bench/graph_peers.py \
  tests/deploy/processes.py "$out/"
du -sh "$out"
