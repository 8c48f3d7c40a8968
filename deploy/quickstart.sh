#!/usr/bin/env bash
# From a clone to a served kernel:
#   deploy/quickstart.sh [--verbose]
# Installs what is missing, builds, starts the server on free ports of the loopback interface, calls a kernel, prints
# its timing and what to type next, and stops the server. --verbose also lists the kernels, classifies handwritten
# digits, and prints a few metrics. A second run only does what is left to do.
set -euo pipefail
verbose=
if [[ ${1-} == --verbose ]]; then
  verbose=1
  shift
fi
if (($# > 0)); then
  echo "usage: deploy/quickstart.sh [--verbose]; unexpected argument '$1'" >&2
  exit 2
fi
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/logged.sh
source deploy/logged.sh

# The CUDA device where there are a GPU, a compiler for it and the vendor's headers. Folders are shared
# with tests/run.sh, so that neither rebuilds what the other built.
preset=release
configuration=()
if [[ -e /dev/nvidiactl ]] && command -v nvcc >/dev/null &&
  printf '#include <cublasLt.h>\n#include <cudnn.h>\n' | nvcc -x cu -E - >/dev/null 2>&1; then
  architectures=$(bash deploy/gpu_architectures.sh)
  if [[ -n $architectures ]]; then
    preset=cuda
    configuration=("-DCMAKE_CUDA_ARCHITECTURES=$architectures")
  fi
fi
readonly preset configuration called_from verbose build=build/$preset
readonly logs=build/logs
readonly report_seconds=10 progress_seconds=30
server_pid=
watcher_pid=
started=$SECONDS

step() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }

fail() {
  echo "quickstart: $1" >&2
  exit 1
}

stop_on_exit() {
  [[ -z $server_pid ]] || kill -KILL "$server_pid" 2>/dev/null || true
  [[ -z $watcher_pid ]] || kill "$watcher_pid" 2>/dev/null || true
}
trap stop_on_exit EXIT
trap 'exit 130' INT TERM

is_terminal() { [[ -t 1 ]]; }

# Prints how far ninja is by its log ($1), which began $2 seconds ago; nothing before its first step is done.
progress_of() {
  local line finished total left
  line=$(tail -c 200000 "$1" 2>/dev/null | grep -o '^\[[0-9]*/[0-9]*\]' | tail -n 1) || return 0
  [[ $line =~ ([0-9]+)/([0-9]+) ]] || return 0
  finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
  ((finished > 0)) || return 0
  left=$(($2 * (total - finished) / finished))
  if ((left < 60)); then
    left='under a minute'
  else
    left="about $(((left + 30) / 60)) min"
  fi
  echo "built $finished of $total steps, $left left"
}

# Shows the progress of ninja's log ($1) until it is killed: in a line that is rewritten on a terminal, else in a line
# every progress_seconds.
watch_progress() {
  local log=$1 began=$SECONDS told=$SECONDS line
  while kill -0 "$$" 2>/dev/null; do
    line=$(progress_of "$log" $((SECONDS - began)))
    if [[ -n $line ]] && is_terminal; then
      printf '\r\e[K        %s' "$line"
    elif [[ -n $line ]] && ((SECONDS >= told + progress_seconds)); then
      told=$SECONDS
      step "$line"
    fi
    sleep 1
  done
}

build_binaries() {
  local log=$logs/quickstart-build.log status=0
  local -a targets=(warpcalld warpcall)
  [[ -z $verbose ]] || targets+=(digits)
  # Configured without tests, it needs none of their packages; a folder that tests/run.sh has
  # configured is taken as it is.
  [[ -f $build/build.ninja ]] ||
    run_logged "$logs/quickstart-configure.log" cmake --preset "$preset" \
      -DWARPCALL_BUILD_TESTS=OFF "${configuration[@]}"
  : >"$log"
  watch_progress "$log" &
  watcher_pid=$!
  NINJA_STATUS='[%f/%t] ' cmake --build "$build" --target "${targets[@]}" >"$log" 2>&1 </dev/null || status=$?
  kill "$watcher_pid"
  wait "$watcher_pid" 2>/dev/null || true
  watcher_pid=
  ! is_terminal || printf '\r\e[K'
  ((status == 0)) || {
    print_failure "$log" >&2
    fail "the build failed (the whole log: $PWD/$log)"
  }
}

# Prints the step of a server that starts, as its /readyz says it. $1: the server's log.
start_step() {
  local address
  address=$(sed -n '0,/.* metrics_listen=/s///p' "$1")
  [[ -z $address ]] || http_ask "$address" /readyz | tail -n 1
}

# Sets server_pid, server_address and metrics_address. Waits as long as the server starts: with GPUs,
# or on a busy machine, that may take a minute.
start_server() {
  local log=$logs/quickstart-warpcalld.log errors=$logs/quickstart-warpcalld-errors.log
  local told=$SECONDS ready=
  : >"$log"  # here: what is begun below may come to it after the first look for this server's line
  "$build/bin/warpcalld" --listen 127.0.0.1:0 --metrics_listen 127.0.0.1:0 --lame_duck_seconds 0 \
    >"$log" 2>"$errors" </dev/null &
  server_pid=$!
  until ready=$(grep -m 1 '^warpcalld: serving on ' "$log"); do
    if ! kill -0 "$server_pid" 2>/dev/null; then
      tail -n 40 "$log" "$errors" >&2
      fail 'the server left before it served; its output is above'
    fi
    if ((SECONDS >= told + report_seconds)); then
      told=$SECONDS
      step "the server is not ready yet: $(start_step "$errors")"
    fi
    sleep 0.05
  done
  [[ $ready =~ serving\ on\ ([^ ,]+),\ metrics\ on\ ([^ ]+)$ ]] ||
    fail "cannot read the server's addresses from its line: $ready"
  server_address=${BASH_REMATCH[1]}
  metrics_address=${BASH_REMATCH[2]}
}

# Prints the reply to GET http://HOST:PORT/PATH; a fresh machine need not have curl.
http_ask() {
  local address=$1 path=$2
  exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
  printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$path" "$address" >&3
  tr -d '\r' <&3
  exec 3>&-
}

# Prints the body of a reply with status 200.
http_get() {
  local address=$1 path=$2 response
  response=$(http_ask "$address" "$path")
  [[ ${response%%$'\n'*} == *' 200 '* ]] ||
    fail "http://$address$path answered ${response%%$'\n'*}"
  echo "${response#*$'\n\n'}"
}

# The counters of what the example has just done.
print_metrics() {
  local names='requests_total|kernel_flops_total|kernel_bytes_total|host_copy_bytes_total'
  http_get "$metrics_address" /metrics |
    awk -v names="^warpcall_($names)[{]" '$0 ~ names && $NF > 0 {print "  " $0; found = 1}
                                          END {exit !found}' ||
    fail "no counter at http://$metrics_address/metrics moved"
}

stop_server() {
  local status=0
  kill -TERM "$server_pid"
  wait "$server_pid" || status=$?
  server_pid=
  ((status == 0)) || fail "the server left with exit status $status after SIGTERM"
}

# Prints what to type next, with paths that lead to this build from where the script was called.
print_next() {
  local bin=$build/bin script=deploy/quickstart.sh
  [[ $called_from == "$PWD" ]] || bin=$PWD/$bin script=$PWD/$script
  cat <<END

Next:
  $bin/warpcalld &          serves on 127.0.0.1:8470, metrics on 127.0.0.1:9470; then
  $bin/warpcall devices     lists the devices that it found
  $bin/warpcall kernels     lists the kernels
  $bin/warpcall help        documents the rest
END
  [[ -n $verbose ]] || echo "  bash $script --verbose     also runs a neural network and shows the metrics"
}

mkdir -p "$logs"
bash deploy/install_packages.sh build
step "building in $build"
build_binaries
start_server
step "warpcalld serves on $server_address; warpcall run softmax --shape 1024x1024:"
"$build/bin/warpcall" --server "$server_address" run softmax --shape 1024x1024
if [[ -n $verbose ]]; then
  step 'what it offers:'
  "$build/bin/warpcall" --server "$server_address" kernels
  step 'classifying handwritten digits: linear, linear, softmax; and as fused chains'
  "$build/bin/digits" --server "$server_address" --data client/examples/digits/data
  step "from http://$metrics_address/metrics:"
  print_metrics
fi
stop_server
step 'the server drained and left with exit status 0'
print_next
