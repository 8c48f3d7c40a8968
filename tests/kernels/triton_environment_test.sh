#!/usr/bin/env bash
# A build without Triton goes on, says why, and so does its manifest; WARPCALL_TRITON=ON is a failure then.
#   triton_environment_test.sh CMAKE
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root cmake=$1
scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

# A project with nothing but Triton's kernels, and the target that would embed them.
mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(triton NONE)
include($root/kernels/triton/environment.cmake)
warpcall_find_triton(python reason)
file(WRITE \${CMAKE_BINARY_DIR}/reason "\${python}|\${reason}")
END

fail() {
  echo "triton_environment_test: $*" >&2
  exit 1
}

# find NAME CMAKE-OPTION...: configures, and leaves "python|reason" in $found.
find_triton() {
  local folder=$scratch/$1
  shift
  "$cmake" -S "$scratch/project" -B "$folder" -G Ninja "$@" >"$folder.log" 2>&1 || return 1
  found=$(<"$folder/reason")
}

expect() { [[ $found == "$1" ]] || fail "expected $1, got $found"; }

# program NAME: an executable with stdin as its text.
program() {
  cat >"$scratch/$1"
  chmod +x "$scratch/$1"
}

find_triton off -DWARPCALL_TRITON=OFF || fail 'OFF is no failure'
expect '|it was built with WARPCALL_TRITON=OFF'

find_triton missing -DWARPCALL_TRITON_PYTHON="$scratch/no_python3" || fail 'no Python is no failure'
expect '|python3 -m venv failed: No such file or directory'
if find_triton forced -DWARPCALL_TRITON=ON -DWARPCALL_TRITON_PYTHON="$scratch/no_python3"; then
  fail 'ON without Python is no failure'
fi
grep -q 'Triton: python3 -m venv failed' "$scratch/forced.log" || fail "$(<"$scratch/forced.log")"

program no_venv <<'END'
#!/bin/sh
echo 'The virtual environment was not created successfully;'
echo 'on Debian, install "python3-venv"'
exit 1
END
find_triton no_venv_build -DWARPCALL_TRITON_PYTHON="$scratch/no_venv"
expect '|python3 -m venv failed: on Debian, install "python3-venv"'

# Stands in for Python twice: makes an environment whose pip cannot reach PyPI.
program offline <<'END'
#!/bin/sh
for environment; do :; done
mkdir -p "$environment/bin"
cat >"$environment/bin/python" <<'PIP'
#!/bin/sh
echo 'WARNING: Retrying; the network is unreachable'
echo 'ERROR: No matching distribution found for triton==3.6.0'
exit 1
PIP
chmod +x "$environment/bin/python"
END
find_triton offline_build -DWARPCALL_TRITON_PYTHON="$scratch/offline"
expect '|pip install triton failed: ERROR: No matching distribution found for triton==3.6.0'

# A working environment is installed once, and again when its requirements change.
program works <<'END'
#!/bin/sh
for environment; do :; done
mkdir -p "$environment/bin"
printf '#!/bin/sh\necho installed >>"%s/count"\n' "$(dirname "$environment")" >"$environment/bin/python"
chmod +x "$environment/bin/python"
END
find_triton works_build -DWARPCALL_TRITON_PYTHON="$scratch/works"
expect "$scratch/works_build/environment/bin/python|"
find_triton works_build
expect "$scratch/works_build/environment/bin/python|"
[[ $(wc -l <"$scratch/works_build/count") == 1 ]] || fail 'Triton was installed again without need'
echo other >"$scratch/works_build/environment/installed"
find_triton works_build
[[ $(wc -l <"$scratch/works_build/count") == 2 ]] || fail 'Triton was not installed anew'
echo 'triton_environment_test: passed'
