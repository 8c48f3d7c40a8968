#!/usr/bin/env bash
# Everything that only a machine with a GPU can show, from a folder that tests/gpu/pack.sh made:
#   bash run.sh [STEP...]      steps: device check conformance expressions variants observe sanitizer service
# residents graphs push spread fault inspect torch scrape path transport stream soak bench; default: all. By name only: choices tune peers peers_settled graph_bench
# Ends with one line per step and exit status 1 if any failed. Logs go to $OUT, or ./logs.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly logs=${OUT:-$here/logs}
# Folder of the programs that benchmarks start.
export WARPCALL_TEST_BIN_DIR=$here/bin
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$logs"
results=()
failed=0

# step NAME COMMAND...: runs it, keeps its output in a log, notes verdict and seconds.
step() {
  local name=$1 start=$SECONDS verdict=passed
  shift
  echo "== $name"
  if ! "$@" >"$logs/$name.log" 2>&1; then
    verdict=FAILED
    failed=1
  fi
  tail -n "${TAIL_LINES:-12}" "$logs/$name.log"
  results+=("$(printf '%-24s %-7s %4d s' "$name" "$verdict" $((SECONDS - start)))")
}

device() { step device "$here/bin/device_test"; }

# The trials of a server's start, and their time.
check() { TAIL_LINES=60 step check "$here/bin/warpcalld" --check; }

conformance() {
  WARPCALL_TEST_DEVICE_KIND=cuda step conformance "$here/bin/kernels_conformance_test" \
    --gtest_filter=-FusedGpuTest.*
}

# A thousand random expressions, compiled and run; their time, and the cache's content then.
expressions() {
  step expressions "$here/bin/kernels_conformance_test" --gtest_filter='FusedGpuTest.*'
}

# Every variant of every row, forced; a line a row and type: "N of N variants ran".
variants() {
  WARPCALL_TEST_DEVICE_KIND=cuda TAIL_LINES=90 step variants "$here/bin/kernels_variants_test"
}

# Compares our declarations of NVML with the toolkit's, where that has a compiler beside it; then
# the profiler's and the monitor's figures with known work.
observe() {
  local include=${CUDA_HOME:-/usr/local/cuda}/include
  if [[ -e $include/nvml.h ]] && command -v g++ >/dev/null; then
    step nvml_check g++ -std=c++20 -fsyntax-only "-I$here" "-I$include" \
      "$here/tests/gpu/nvml_check.cc"
  else
    echo "== nvml_check: skipped, there is no $include/nvml.h or no g++"
  fi
  TAIL_LINES=120 step observe "$here/bin/gpu_observe_test" --gtest_filter=-NcuTest.*
  # Needs a process that CUPTI has not touched yet.
  TAIL_LINES=60 step observe_ncu "$here/bin/gpu_observe_test" --gtest_filter=NcuTest.*
}

# Small cases only: the tools slow kernels down tenfold and more. Without bands around operands, which
# are not needed to see a write past an end and would hide a read.
# Its own look at a call's status stays off: the loader of Triton's kernels asks for one parameter after
# the last, to know how many there are. With the tool the driver finds kernels that a module does not have, so the
# test of a missing one is left out.
sanitizer() {
  WARPCALL_TEST_DEVICE_KIND=cuda WARPCALL_TEST_BANDS=0 WARPCALL_TEST_ELEMENTS_MAX=20000 step memcheck \
    compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 3 "$here/bin/kernels_conformance_test" \
    --gtest_filter=-TritonLoaderTest.MissingKernelsAreNamed
  # It looks at shared memory, which identity and gelu have none of.
  WARPCALL_TEST_DEVICE_KIND=cuda WARPCALL_TEST_BANDS=0 WARPCALL_TEST_ELEMENTS_MAX=4000 step racecheck \
    compute-sanitizer --tool racecheck --error-exitcode 3 "$here/bin/kernels_conformance_test" \
    --gtest_filter=Catalog/*-*/identity_*:*/gelu_*
  # Rows whose variants small cases do not reach, each forced.
  local row
  for row in two_pass block_per_row cluster_per_row cluster_per_columns ring_per_columns; do
    WARPCALL_TEST_DEVICE_KIND=cuda WARPCALL_TEST_BANDS=0 WARPCALL_TEST_ROW=$row step "racecheck_$row" \
      compute-sanitizer --tool racecheck --error-exitcode 3 "$here/bin/kernels_variants_test" \
      --gtest_filter=Catalog/*/softmax_bfloat16
  done
}

service() { TAIL_LINES=24 step service python3 "$here/service_check.py" "$here" service; }
residents() {
  TAIL_LINES=30 step residents python3 "$here/residents_check.py" "$here"
  step resident_bench "$here/bin/warpcall_resident_bench"
}
graphs() { TAIL_LINES=20 step graphs python3 "$here/graphs_check.py" "$here"; }
# The table of graphs: where PyTorch is, its rows too.
graph_bench() {
  TAIL_LINES=40 step graph_bench "$here/bin/warpcall_graph_bench"
  TAIL_LINES=40 step graph_peers python3 "$here/graph_peers.py"
}
push() {
  TAIL_LINES=80 step push python3 "$here/push_check.py" "$here"
  TAIL_LINES=30 step push_ours python3 "$here/push_check.py" "$here" ours
  step push_times python3 "$here/push_check.py" "$here" times
  step pushes python3 "$here/push_check.py" "$here" repeat 200
}
spread() {
  step spread python3 "$here/workers_check.py" "$here" spread
  step balance python3 "$here/workers_check.py" "$here" balance
  TAIL_LINES=20 step hop python3 "$here/workers_check.py" "$here" hop
  step worker_hop "$here/bin/warpcall_worker_hop_bench"
  step residents python3 "$here/workers_check.py" "$here" residents
}
fault() {
  step fault python3 "$here/fault_check.py" "$here" fault
  step restart python3 "$here/fault_check.py" "$here" restart
}
inspect() { TAIL_LINES=250 step inspect python3 "$here/inspect_check.py" "$here" "$logs"; }
# The Python client's operators of torch, by torch's own opcheck.
torch() { step torch python3 "$here/tests/client/python/torch_test.py" "$here"; }
scrape() {
  TAIL_LINES=40 step scrape python3 "$here/scrape_bench.py" "$here/bin" --pairs 20
  TAIL_LINES=20 step metrics "$here/bin/warpcall_metrics_bench"
}
path() { TAIL_LINES=40 step path "$here/bin/warpcall_device_path_bench"; }
transport() {
  TAIL_LINES=60 step transport "$here/bin/warpcall_transport_bench" --transports tcp --seconds 1 \
    --connections 1,8 --sizes 64b,4kb,1mb,16mb,64mb
}
stream() { step stream "$here/bin/warpcall_stream_bench" 4; }
soak() { TAIL_LINES=40 step soak "$here/bin/warpcall_soak_bench" --seconds "${SOAK_SECONDS:-60}"; }
# Which of Triton's tiles are fastest here: logs/choices.txt is to be kernels/triton/choices.txt.
choices() {
  step choices bash -c "'$here/bin/warpcall_triton_choices' 2>&1 >'$logs/choices.txt'"
}
# Which rows "auto" is to take here: logs/shipped_tuning.txt, of which CONTRIBUTING.md tells what is built in. One that
# is there is added to; TUNE_KERNELS names the kernels to tune, by default all.
tune() {
  TAIL_LINES=200 step tune python3 "$here/tune.py" "$here" "$logs/shipped_tuning.txt" ${TUNE_KERNELS:-}
}
# Times of other libraries for the problems that the benchmark measures; needs PyTorch. Compiles first, so that both
# programs measure one after the other; tests/gpu/peers_table.py makes a table of their logs.
peers() {
  python3 "$here/peers_problems.py" >"$logs/peers_problems.txt"
  step peers_warm python3 "$here/peers.py" --warm
  TAIL_LINES=3 step peers_bench "$here/bin/warpcall_cuda_kernel_bench" --problems "$logs/peers_problems.txt"
  TAIL_LINES=400 step peers python3 "$here/peers.py"
}
# Measures products that power bounds, by the settled method. Each of the two programs takes about five minutes.
# SETTLED_PROBLEMS, a file with some of them, makes it shorter; peers_table.py takes the logs of several calls in one file.
peers_settled() {
  local problems=${SETTLED_PROBLEMS:-$logs/settled_problems.txt}
  [[ -n ${SETTLED_PROBLEMS:-} ]] || python3 "$here/peers_problems.py" --settled >"$problems"
  local lines
  mapfile -t lines <"$problems"
  step peers_warm python3 "$here/peers.py" --warm "${lines[@]}"
  TAIL_LINES=60 step peers_settled_bench "$here/bin/warpcall_cuda_kernel_bench" --settled --problems "$problems"
  TAIL_LINES=60 step peers_settled python3 "$here/peers.py" --settled "${lines[@]}"
}
bench() { TAIL_LINES=400 step bench "$here/bin/warpcall_cuda_kernel_bench"; }

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw --format=csv,noheader
for name in ${@:-device check conformance expressions variants observe sanitizer service residents graphs push spread fault inspect torch scrape path transport stream soak bench}; do
  "$name"
done
printf '\n%s\n' "${results[@]}"
exit $failed
