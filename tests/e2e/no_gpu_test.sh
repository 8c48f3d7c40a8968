#!/usr/bin/env bash
# A server built with the CUDA device, on a machine without a driver: it starts, serves the CPU and says
# what is missing. no_gpu_test.sh WARPCALLD WARPCALL; exit status 77: skipped, there is a GPU.
set -u
server=$1
client=$2
failures=0
scratch=$(mktemp -d)
if [ -e /dev/nvidiactl ]; then
  echo 'skipped: there is a GPU here'
  exit 77
fi

fail() {
  echo "$1"
  failures=1
}

"$server" --listen="unix:$scratch/socket" --metrics_listen=127.0.0.1:0 --lame_duck_seconds=0 \
  >"$scratch/out" 2>"$scratch/err" &
pid=$!
trap 'kill -9 $pid 2>/dev/null; rm -rf "$scratch"' EXIT
for _ in $(seq 900); do
  grep -q serving "$scratch/out" && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
grep -q 'level=warning msg="no GPU: the CPU serves alone"' "$scratch/err" || fail "no line: $(cat "$scratch/err")"
address=unix:$scratch/socket
devices=$("$client" --server "$address" devices) || fail "devices: $devices"
[[ $devices == *cpu* && $devices != *cuda:0* ]] || fail "devices lists: $devices"
kernels=$("$client" --server "$address" kernels) || fail "kernels: $kernels"
for row in vectorized mma_tiled cublaslt float64; do
  [[ $kernels == *"$row"* ]] || fail "kernels lacks $row: $kernels"
done
# One float32: NumPy's format 1.0, its header padded to 128 bytes.
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\x00\x00\x80\x3f' \
  "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" >"$scratch/x.npy"
"$client" --server "$address" run gelu --input "$scratch/x.npy" --output "$scratch/y.npy" ||
  fail 'gelu does not run on the CPU'
refusal=$("$client" --server "$address" run gelu --implementation cuda --input "$scratch/x.npy" \
  --output "$scratch/y.npy" 2>&1)
status=$?
[ $status = 1 ] && [[ $refusal == *"cuda devices"* ]] || fail "family cuda: status $status: $refusal"
kill -TERM $pid
wait $pid || fail "the server ended with status $?: $(cat "$scratch/err")"

output=$("$server" --devices=cuda:0 2>&1 >/dev/null)
[ $? = 1 ] && [[ $output == *cuda:0*"available: cpu"* ]] || fail "--devices=cuda:0: $output"
exit $failures
