#!/usr/bin/env bash
# deploy/quickstart.sh waits for a server that starts slowly, reports its waiting, and does not wait for a server that
# has ended. Its functions run here, with a clock that the test moves and a program in the server's place.
set -euo pipefail
script=$(dirname "${BASH_SOURCE[0]}")/../../deploy/quickstart.sh
build=$(mktemp -d)
logs=$build/logs server_pid=
readonly script build logs
mkdir "$build/bin" "$logs"
trap 'rm -r "$build"' EXIT
# shellcheck disable=SC1090
source <(sed -n '/^step()/p; /^readonly .*_seconds.*=/p; /^\(fail\|start_step\|http_ask\|start_server\)() {$/,/^}$/p' "$script")
started=$SECONDS
export build

# Each look at the log takes a minute, and in the third the server begins to serve.
looks=0
sleep() {
  ((++looks < 3)) || touch "$build/serve"
  ((looks < 600)) || fail 'it waits for ever'
  SECONDS=$((SECONDS + 60))
  command sleep 0.1
}
http_ask() { [[ "$*" = '127.0.0.1:7 /readyz' ]] && printf 'HTTP/1.1 503 No\n\nstarting: testing gelu (3 of 48)\n'; }

cat >"$build/bin/warpcalld" <<'END'
#!/usr/bin/env bash
echo 'ts=1 level=info msg="the metrics port answers" metrics_listen=127.0.0.1:7' >&2
until [[ -e $build/serve ]]; do sleep 0.05; done
echo 'warpcalld: serving on 127.0.0.1:5, metrics on 127.0.0.1:7'
END
chmod +x "$build/bin/warpcalld"

start_server >"$build/said"
[[ $server_address = 127.0.0.1:5 && $metrics_address = 127.0.0.1:7 ]]
grep -q 'not ready yet: starting: testing gelu (3 of 48)$' "$build/said" || { cat "$build/said"; exit 1; }
wait "$server_pid"

printf '#!/bin/sh\nexit 1\n' >"$build/bin/warpcalld"
if (start_server) >"$build/said" 2>&1; then echo 'a server that left counts as started'; exit 1; fi
grep -q 'quickstart: the server left' "$build/said" || { cat "$build/said"; exit 1; }
