#!/usr/bin/env bash
# deploy/gpu_architectures.sh beside a made-up nvidia-smi: gpu_architectures_test.sh
set -u
script=$(dirname "$0")/../../deploy/gpu_architectures.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect WHAT OUTPUT...: nvidia-smi prints OUTPUT, a line each, and ends with $status.
expect() {
  local what=$1 found
  shift
  printf '%s\n' '#!/bin/sh' "printf '%s\\n' $(printf "'%s' " "$@")" "exit ${status:-0}" >"$folder/nvidia-smi"
  chmod +x "$folder/nvidia-smi"
  found=$(PATH="$folder:$PATH" bash "$script")
  [ "$found" = "$what" ] || { echo "of $*: $found, wanted $what"; failures=1; }
}

expect 90a 9.0
expect 90a 9.0 9.0
expect '86;90a' 9.0 8.6
expect '100;120' 12.0 10.0
expect 80 6.1 8.0
expect '' 7.5
expect native '[N/A]'
status=9 expect native 'NVIDIA-SMI has failed'
exit $failures
