#!/usr/bin/env bash
# Builds the module warpcall_fast for the tests, by the same CMakeLists.txt as pip:
#   build.sh FOLDER PYTHON [CMAKE-OPTION...]
# leaves FOLDER/module/warpcall_fast.*.so for the interpreter PYTHON, or FOLDER/reason, which says why there is
# none: nanobind comes from PyPI, and Python's headers from python3-dev. Fails only when compiling does.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here folder=$1 python=$2
shift 2
readonly environment=$folder/environment log=$folder/environment.log
mkdir -p "$folder"

without() {
  rm -rf "$folder/module"
  echo "$1" >"$folder/reason"
  echo "warpcall_fast: not built: $1"
  exit 0
}

"$python" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  without "there is no Python.h: deploy/install_packages.sh test installs it"

wanted=$(sha256sum "$here/requirements.txt")" $python"
if [[ ! -f $environment/installed || $(<"$environment/installed") != "$wanted" ]]; then
  if ! { "$python" -m venv --clear "$environment" &&
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --retries 2 \
      --require-hashes --only-binary :all: --no-deps --requirement "$here/requirements.txt"; } >"$log" 2>&1; then
    without "nanobind cannot be had: $(tail -n 1 "$log")"
  fi
  echo "$wanted" >"$environment/installed"
fi

cmake -S "$here" -B "$folder/build" -G Ninja -DPython_EXECUTABLE="$python" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -g1 -DNDEBUG' \
  -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$folder/module" \
  -Dnanobind_DIR="$("$environment/bin/python" -m nanobind --cmake_dir)" "$@" >"$folder/configure.log" 2>&1 || {
  tail -n 30 "$folder/configure.log" >&2
  exit 1
}
cmake --build "$folder/build" --target warpcall_fast
rm -f "$folder/reason"
