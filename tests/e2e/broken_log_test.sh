#!/usr/bin/env bash
# A server whose log nobody reads any more serves on, and ends as it should: broken_log_test.sh WARPCALLD
set -u
server=${WARPCALL_TEST_BIN_DIR:+$WARPCALL_TEST_BIN_DIR/warpcalld}
server=${server:-$1}
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# The reader ends at once.
"$server" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 --devices=cpu --lame_duck_seconds=0 \
  >"$said" 2> >(:) &
pid=$!
until grep -q 'serving on' "$said"; do
  kill -0 "$pid" 2>/dev/null || { wait "$pid"; echo "left at start with status $?"; exit 1; }
  sleep 0.1
done
kill -TERM "$pid"
wait "$pid"
status=$?
[ "$status" = 0 ] || { echo "ended with status $status"; exit 1; }
