#!/usr/bin/env bash
# The three doors to the tests, from a clone; installs what is missing.
#   tests/run.sh            everything that must hold for a change to land: clang's AddressSanitizer and
#                           UndefinedBehaviorSanitizer, thread-safety analysis and fuzzing;
#                           ThreadSanitizer; the CUDA device where there is nvcc; and last the tests
#                           of the release build but those labelled nightly, and those labelled quick
#                           that the sanitizers' builds have run; ctest's summary ends the output
#   tests/run.sh --quick    builds what changed in the release build, and runs the tests that start no
#                           program of ours and are done in a moment
#   tests/run.sh --nightly  everything, with minutes of fuzzing, gcc's sanitizers, the comparisons of
#                           latencies again and again, mutants, a soak, servers in trouble for an hour,
#                           the tests labelled nightly (the systems of others that run the server, call it
#                           or watch it), and packages in a clean root
# A build beside the release one that has not changed since its tests passed is not tested again but at night.
# Stops at the first failure with the end of its log. Says what it skipped and why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/logged.sh
source deploy/logged.sh

readonly logs=build/logs
readonly fuzz_seconds=10 nightly_fuzz_seconds=600 soak_seconds=1800 latency_repetitions=10
readonly chaos_seconds=3600
jobs=$(nproc)
readonly jobs
# Tests wait more than they compute.
readonly test_jobs=$((jobs + 1))
scratch=$(mktemp -d)
trap clean_up EXIT
skipped=()
launchers=()
beside_pid=

clean_up() {
  [[ -z $beside_pid ]] || kill -- "-$beside_pid" 2>/dev/null || true
  rm -rf "$scratch"
}

step() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

skip() {
  skipped+=("$1: $2")
  step "skipped: $1: $2"
}

# configure FOLDER CMAKE-OPTION...
configure() {
  local folder=$1 launcher=("${launchers[@]}")
  shift
  # Another launcher would compile all of it again, as after quickstart.sh, which has none.
  [[ ! -f build/$folder/CMakeCache.txt ]] || launcher=()
  run_logged "$logs/$folder-configure.log" \
    cmake -B "build/$folder" -DWARPCALL_BUILD_TESTS=ON "${launcher[@]}" "$@"
}

# build FOLDER TARGET...: behind the tests that run beside it.
build() {
  local folder=$1
  shift
  run_logged "$logs/$folder-build.log" \
    nice cmake --build "build/$folder" --parallel "$jobs" --target "$@"
}

# run_ctest FOLDER NAME CTEST-OPTION...: quietly, and repeats its verdict for NAME.
run_ctest() {
  local folder=$1 name=$2
  shift 2
  run_logged "$logs/$name-ctest.log" ctest --test-dir "build/$folder" --output-on-failure \
    --no-tests=error --parallel "$test_jobs" "$@"
  step "$name: $(grep 'tests passed' "$logs/$name-ctest.log")"
}

# State that decides if the tests of build/FOLDER could end otherwise than before: its programs,
# which ninja leaves alone when nothing changes, and the scripts.
programs_of() {
  find build/"$1"/bin build/"$1"/tests/bin -maxdepth 1 -type f -executable -printf '%p %s %T@\n' | sort
  find tests deploy -type f ! -name '*.cc' ! -name '*.h' -printf '%p %s %T@\n' | sort
}

# Succeeds if FOLDER's tests passed with these programs and these tests.
has_passed() {
  [[ $door != nightly && -f build/$1/passed ]] || return 1
  programs_of "$1" | cat - "$scratch/release" | cmp -s - "build/$1/passed" || return 1
  step "$1: nothing has changed since its tests passed"
}

note_passed() { programs_of "$1" | cat - "$scratch/release" >"build/$1/passed"; }

# test_programs_of FOLDER CTEST-OPTION...: the tests that start programs, with those of build/FOLDER.
test_programs_of() {
  local folder=$1
  shift
  [[ $door == nightly ]] || set -- -LE '^nightly$' "$@"
  WARPCALL_TEST_BIN_DIR=$PWD/build/$folder/bin WARPCALL_TEST_SANITIZED=1 \
    run_ctest release "$folder-programs" -L '^process$' "$@"
}

build_sanitized() {
  local folder=$1
  step "$folder: building with AddressSanitizer and UndefinedBehaviorSanitizer, warnings are errors"
  configure "$folder" --preset "$folder"
  build "$folder" all
}

test_sanitized() {
  local folder=$1 seconds=$fuzz_seconds
  [[ $door != nightly ]] || seconds=$nightly_fuzz_seconds
  has_passed "$folder" && return
  run_ctest "$folder" "$folder" -LE '^fuzz$'
  test_programs_of "$folder" -E '^no_copies_test$'
  if [[ $folder == asan ]]; then
    step "$folder: fuzzing for $seconds s a target"
    WARPCALL_FUZZ_SECONDS=$seconds run_ctest "$folder" "$folder-fuzz" -L '^fuzz$'
  fi
  note_passed "$folder"
}

# beside COMMAND...: starts it beside the following steps, in a process group of its own, once the
# previous such command has ended. Tests wait for much of their time, and compilers never.
beside() {
  await_beside
  set -m
  "$@" &
  beside_pid=$!
  set +m
}

# Waits for the command beside; fails if the command failed.
await_beside() {
  local pid=$beside_pid
  beside_pid=
  [[ -z $pid ]] || wait "$pid"
}

# clang's, or gcc's where there is no clang; at night both.
check_addresses() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' \
    >"$scratch/fuzz.cc"
  if clang++ -fsanitize=address,undefined,fuzzer "$scratch/fuzz.cc" -o "$scratch/fuzz" \
    2>"$logs/clang-probe.log"; then
    build_sanitized asan
    beside test_sanitized asan
    [[ $door == nightly ]] || return 0
  else
    skip "clang's thread-safety analysis and fuzzing, its sanitizers by gcc instead" \
      "clang++ does not link libFuzzer: $(tail -n 1 "$logs/clang-probe.log")"
  fi
  build_sanitized asan-gcc
  beside test_sanitized asan-gcc
}

# Compiles the CUDA device and runs the tests that need no GPU: the start without a driver, the vendor's libraries not
# being there. Kernels are proved on a GPU; without one they are compiled as quickly as can be, to PTX, in a folder that
# nobody packs.
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
  local folder=cuda options=() elements_max=
  if [[ ! -e /dev/nvidiactl ]]; then
    folder=cuda-ptx elements_max=20000
    options=(-DCMAKE_CUDA_ARCHITECTURES=90a-virtual -DCMAKE_CUDA_FLAGS=--Ofast-compile=max)
    skip 'GPU tests' 'there is no GPU; tests/gpu/pack.sh and run.sh bring them to one'
  fi
  step "$folder: building with the CUDA device"
  configure "$folder" --preset cuda "${options[@]}"
  local tests=(device_test devices_test kernels_conformance_test kernels_libraries_test
    kernels_matmul_register_emulated_test kernels_matmul_wgmma_emulated_test nvtx_phases_test
    nvml_monitor_test cupti_test gpu_observe_test)
  build "$folder" warpcalld warpcall warpcall_cuda_kernel_bench kernels_variants_test "${tests[@]}"
  has_passed "$folder" && return
  local more='no_gpu_test|kernels_(architectures|variant_names|matmul_wgmma_plan|softmax_ring_plan)_test'
  more+='|(kernels_)?triton_[a-z]+_test(_[0-9])?'
  # Rows of the CPU are compiled as in the release build, which tries them all.
  WARPCALL_TEST_DEVICE_KIND=cuda WARPCALL_TEST_ELEMENTS_MAX=$elements_max run_ctest "$folder" "$folder" \
    -R "^(($(IFS='|' && echo "${tests[*]}"))(_[0-9]+)?|$more)\$"
  note_passed "$folder"
}

# gRPC's library is not instrumented, so ThreadSanitizer reports false races in its headers' code:
# tests/tsan/suppressions.txt. The tests' own programs that are built here do without it.
check_threads() {
  echo 'int main() { return 0; }' >"$scratch/tsan.cc"
  if ! g++ -fsanitize=thread "$scratch/tsan.cc" -o "$scratch/tsan" 2>"$logs/tsan-probe.log" ||
    ! "$scratch/tsan" 2>>"$logs/tsan-probe.log"; then
    skip 'ThreadSanitizer' "it does not run here: $(tail -n 1 "$logs/tsan-probe.log")"
    return
  fi
  step 'tsan: building the server, and the tests of its threads, with ThreadSanitizer'
  configure tsan --preset tsan
  build tsan tsan_tests warpcalld
  # Only the server is tested; tests that start a client use the release's.
  ln -sf ../../release/bin/warpcall build/tsan/bin/warpcall
  beside test_threads
}

test_threads() {
  has_passed tsan && return
  run_ctest tsan tsan -L '^tsan$'
  test_programs_of tsan -R '^(inspect|late_rows|lifecycle|limits|put_get|refusing_row|stream)_test'
  note_passed tsan
}

run_quick() {
  step 'release: building what changed'
  configure release --preset release -DWARPCALL_QUICK_TESTS=ON
  build release quick_tests
  ctest --test-dir build/release --output-on-failure --no-tests=error --parallel "$test_jobs" \
    -L '^quick$' </dev/null
}

nightly_tests() {
  ctest --test-dir build/release -N -L '^nightly$' | sed -n 's/^ *Test *#[0-9]*: //p'
}

run_at_night() {
  step 'release: wrong programs, each of which a test must tell from the right one'
  run_logged "$logs/mutants.log" python3 tests/mutants/mutants.py build/release
  step "$(tail -n 1 "$logs/mutants.log")"
  step "release: comparisons of latencies, $latency_repetitions times, and a soak of $soak_seconds s"
  WARPCALL_TEST_LATENCIES=1 run_ctest release latencies -L '^latency$' --parallel 1 \
    --repeat "until-fail:$latency_repetitions"
  run_logged "$logs/soak.log" build/release/tests/bin/warpcall_soak_bench --seconds "$soak_seconds"
  step "release: servers that are killed, hang, are overloaded and more, and their alerts, for $chaos_seconds s"
  local status=0
  python3 tests/deploy/chaos_test.py build/release/bin/{warpcalld,warpcall} build/release \
    --seconds "$chaos_seconds" >"$logs/chaos.log" 2>&1 </dev/null || status=$?
  if ((status == 77)); then
    skip 'servers in trouble' "$(tail -n 1 "$logs/chaos.log")"
  elif ((status != 0)); then
    print_failure "$logs/chaos.log" >&2
    exit 1
  fi
  step 'release: the systems of others, one after the other'
  WARPCALL_TEST_NIGHTLY=1 run_ctest release nightly -L '^nightly$' --parallel 1
  if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
    skip 'packages in a clean root' 'it needs root and debootstrap'
  else
    step 'release: its packages in a clean root'
    run_logged "$logs/clean-root.log" python3 tests/deploy/clean_root_test.py build/release
  fi
}

run_all() {
  step 'release: building'
  # By day its quick tests run in the builds with sanitizers alone.
  local quick_tests=OFF
  [[ $door != nightly ]] || quick_tests=ON
  configure release --preset release -DWARPCALL_QUICK_TESTS=$quick_tests
  build release all
  programs_of release >"$scratch/release"
  check_addresses
  check_threads
  check_cuda
  await_beside
  if [[ $door == nightly ]]; then
    run_at_night
  else
    skip "$(nightly_tests | paste -sd ' ')" 'labelled nightly; tests/run.sh --nightly runs them'
  fi
  step 'release: every other test; skipped above:'
  printf '  %s\n' "${skipped[@]}"
  # Nothing is built beside them, and most wait more than they compute.
  ctest --test-dir build/release --output-on-failure --no-tests=error --parallel $((2 * jobs)) \
    -LE '^(nightly|elsewhere)$' </dev/null
}

door=all
case "$#:${1-}" in
  0:) ;;
  1:--quick | 1:--nightly) door=${1#--} ;;
  *)
    echo 'usage: tests/run.sh [--quick | --nightly]' >&2
    exit 2
    ;;
esac
readonly door

mkdir -p "$logs"
bash deploy/install_packages.sh test
if command -v ccache >/dev/null; then
  # Times and macros of precompiled headers are no reason to compile again.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
  launchers=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
if [[ $door == quick ]]; then run_quick; else run_all; fi
