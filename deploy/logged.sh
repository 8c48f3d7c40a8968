# shellcheck shell=bash
# Sourced by scripts: steps that are quiet when they succeed and say what went wrong when not.

# The part of a log that tells: from ninja's first failed step on, or else its end and behind it
# what the first checks that failed said, which may stand far above.
print_failure() {
  local log=$1 first
  first=$(grep -n -m 1 '^FAILED: ' "$log" | cut -d : -f 1) || true
  if [[ -n $first ]]; then
    sed -n "$first,$((first + 60))p" "$log"
  else
    tail -n 60 "$log"
    grep -n -m 2 -A 6 -E ': Failure$|^(FAIL|ERROR): |runtime error: |ERROR: AddressSanitizer' "$log" || true
  fi
}

# run_logged LOG COMMAND...: runs the command without input, its output in LOG. When it fails,
# prints what LOG says and leaves the script with exit status 1.
run_logged() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null && return
  print_failure "$log" >&2
  echo "${0##*/}: failed: $* (the whole log: $PWD/$log)" >&2
  exit 1
}
