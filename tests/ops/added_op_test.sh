#!/usr/bin/env bash
# An op that a folder outside of kernels/ brings is listed, checked, served, benchmarked, profiled and
# described, and no other file knows of it. added_op_test.sh WARPCALLD CONFORMANCE WARPCALL, the first
# two with relu.
set -u
server=$1
conformance=$2
client=$3
failures=0
scratch=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || { kill "$pid"; wait "$pid"; } 2>/dev/null; rm -rf "$scratch"' EXIT

fail() {
  echo "$1"
  failures=1
}

# $1: the output's name; $2: the output; it must contain the other arguments.
holds() {
  local what=$1 text=$2
  shift 2
  for wanted in "$@"; do
    [[ $text == *"$wanted"* ]] || fail "$what lacks $wanted: $text"
  done
}

checked=$("$conformance" --gtest_filter='Catalog/*/relu_*:ConformanceCoverage.*') ||
  fail 'conformance fails'
holds conformance "$checked" '[  PASSED  ] 5 tests' element_loop
checked=$("$server" --check --devices=cpu) || fail "--check fails: $checked"
holds --check "$checked" relu

"$server" --listen="unix:$scratch/socket" --metrics_listen=127.0.0.1:0 --lame_duck_seconds=0 \
  --devices=cpu >"$scratch/out" 2>"$scratch/err" &
pid=$!
for _ in $(seq 300); do
  grep -q serving "$scratch/out" && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
warpcall() { "$client" --server "unix:$scratch/socket" "$@" 2>&1; }

holds kernels "$(warpcall kernels)" 'relu(x)' element_loop float64
# Two float32, -1 and 1: NumPy's format 1.0, its header padded to 128 bytes.
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\x00\x00\x80\xbf\x00\x00\x80\x3f' \
  "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" >"$scratch/x.npy"
ran=$(warpcall run relu --input "$scratch/x.npy" --output "$scratch/y.npy") || fail "run: $ran"
bytes=$(tail -c 8 "$scratch/y.npy" | od -An -tx1 | tr -d ' \n')
[ "$bytes" = 000000000000803f ] || fail "relu of -1 and 1 is $bytes"
holds bench "$(warpcall bench relu --shape 64x32 --iterations 2)" element_loop float64
holds profile "$(warpcall profile relu --shape 64x32)" 'relu on cpu by manual:element_loop'
holds describe "$(warpcall describe relu --shape 64x32)" 'relu on cpu by manual:element_loop' \
  'every bit is right' '16.0 KiB'
# The file of the implementation, and the header that it includes.
holds 'describe --source' "$(warpcall describe relu --shape 64x32 --source cpp)" \
  'Implementation ElementLoopRow() {' 'const Op& ReluOp();'
exit $failures
