#!/usr/bin/env bash
# Every check that this machine can run, from a clone: installs what is missing, then builds and
# tests with AddressSanitizer and UndefinedBehaviorSanitizer, with ThreadSanitizer (the engine), with
# clang (thread-safety analysis, fuzzing), with CUDA where there is nvcc, and last the release build,
# whose ctest summary ends the output. Stops at the first failure with the end of its log. Says what
# it skipped and why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/logged.sh
source deploy/logged.sh

readonly logs=build/logs
jobs=$(nproc)
readonly jobs
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
skipped=()
launchers=()

step() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

skip() {
  skipped+=("$1: $2")
  step "skipped: $1: $2"
}

# build FOLDER CMAKE-OPTION... [-- TARGET...]: configures and builds in build/FOLDER.
build() {
  local folder=$1 options=()
  shift
  while (($# > 0)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift $(($# > 0 ? 1 : 0))
  run_logged "$logs/$folder-configure.log" \
    cmake -B "build/$folder" -DWARPCALL_BUILD_TESTS=ON "${launchers[@]}" "${options[@]}"
  run_logged "$logs/$folder-build.log" \
    cmake --build "build/$folder" --parallel "$jobs" ${1:+--target "$@"}
}

# Runs ctest in build/FOLDER quietly and repeats its verdict.
run_ctest() {
  local folder=$1
  shift
  run_logged "$logs/$folder-ctest.log" \
    ctest --test-dir "build/$folder" --output-on-failure --no-tests=error --parallel "$jobs" "$@"
  step "$folder: $(grep 'tests passed' "$logs/$folder-ctest.log")"
}

check_sanitized() {
  step 'dev: building with AddressSanitizer and UndefinedBehaviorSanitizer, warnings are errors'
  build dev --preset dev
  run_ctest dev -LE '^deploy$'  # is about configuration, and runs below
}

# gRPC's and protobuf's libraries are not instrumented, so ThreadSanitizer reports races in them that
# are none. The engine, the kernels' thread pool and the metrics need neither.
check_threads() {
  echo 'int main() { return 0; }' >"$scratch/tsan.cc"
  if ! g++ -fsanitize=thread "$scratch/tsan.cc" -o "$scratch/tsan" 2>"$logs/tsan-probe.log" ||
    ! "$scratch/tsan" 2>>"$logs/tsan-probe.log"; then
    skip 'ThreadSanitizer' "it does not run here: $(tail -n 1 "$logs/tsan-probe.log")"
    return
  fi
  step 'tsan: building the engine, the thread pool and the metrics with ThreadSanitizer'
  build tsan --preset tsan -- \
    tsan_race engine_tests kernels_thread_pool_test metrics_test
  run_ctest tsan -L '^(tsan|engine)$'
  run_ctest tsan -R '^(kernels_thread_pool_test|metrics_test)$'
}

# Compiles the CUDA device and runs what needs no GPU: the start without a driver, the vendor's
# libraries not being there, and the CPU's rows in the same binary. Kernels are proved on a GPU.
check_cuda() {
  if ! command -v nvcc >/dev/null; then
    skip 'the CUDA build' 'there is no nvcc'
    return
  fi
  if ! printf '#include <cublasLt.h>\n#include <cudnn.h>\n' >"$scratch/headers.cu" ||
    ! nvcc -E "$scratch/headers.cu" >/dev/null 2>"$logs/cuda-probe.log"; then
    skip 'the CUDA build' "headers are missing: $(head -n 1 "$logs/cuda-probe.log")"
    return
  fi
  step 'cuda: building with the CUDA device'
  local tests=(device_test devices_test kernels_conformance_test kernels_libraries_test
    nvtx_phases_test nvml_monitor_test cupti_test gpu_observe_test)
  build cuda --preset cuda -- warpcalld warpcall warpcall_cuda_kernel_bench "${tests[@]}"
  run_ctest cuda -R "^($(IFS='|' && echo "${tests[*]}")|no_gpu_test)\$"
  [[ -e /dev/nvidiactl ]] || skip 'GPU tests' \
    'there is no GPU; tests/gpu/pack.sh and run.sh bring them to one'
}

check_clang() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' \
    >"$scratch/fuzz.cc"
  if ! clang++ -fsanitize=fuzzer "$scratch/fuzz.cc" -o "$scratch/fuzz" 2>"$logs/clang-probe.log"; then
    skip 'clang and fuzzing' "clang++ does not link libFuzzer: $(tail -n 1 "$logs/clang-probe.log")"
    return
  fi
  step 'clang: building the server with thread-safety analysis, warnings are errors, and the fuzzers'
  build clang --preset release -DCMAKE_CXX_COMPILER=clang++ -DWARPCALL_WERROR=ON \
    -DCMAKE_CXX_FLAGS_RELEASE='-O1 -DNDEBUG' -DWARPCALL_SANITIZE=address,undefined \
    -DWARPCALL_FUZZ=ON -- warpcalld fuzzers
  step "clang: fuzzing for ${WARPCALL_FUZZ_SECONDS:-10} s a target (WARPCALL_FUZZ_SECONDS)"
  run_ctest clang -L '^fuzz$'
}

mkdir -p "$logs"
bash deploy/install_packages.sh test
# The CUDA build compiles most of the release build's files once more, with the same flags.
if command -v ccache >/dev/null; then
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  launchers=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
step 'release: building'
build release --preset release
check_sanitized
check_threads
check_clang
check_cuda

step 'release: every test; skipped above:'
printf '  %s\n' "${skipped[@]}"
ctest --test-dir build/release --output-on-failure --no-tests=error --parallel "$jobs" </dev/null
