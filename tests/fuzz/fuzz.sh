#!/usr/bin/env bash
# Runs a fuzzer for WARPCALL_FUZZ_SECONDS (10) from its corpus; new inputs go beside the program.
# fuzz.sh PROGRAM CORPUS
set -euo pipefail
readonly program=$1 corpus=$2
mkdir -p "$program.corpus"
exec "$program" -max_total_time="${WARPCALL_FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 \
  -max_len=4096 -entropic=0 -print_final_stats=1 -artifact_prefix="$program." \
  $([[ ! -e $corpus.dict ]] || echo "-dict=$corpus.dict") "$program.corpus" "$corpus"
