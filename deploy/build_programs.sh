#!/usr/bin/env bash
# Builds warpcalld and warpcall for a release and installs them, stripped, in a folder:
#   deploy/build_programs.sh PRESET FOLDER [CMAKE_OPTION...]
# PRESET: release, cuda or cuda-all. Sources are named relative to their root, wherever that is, so that two builds of
# a commit by the same compiler and libraries have the same bytes.
set -euo pipefail

(($# >= 2)) || {
  echo 'usage: deploy/build_programs.sh PRESET FOLDER [CMAKE_OPTION...]' >&2
  exit 2
}
preset=$1 folder=$(realpath --canonicalize-missing "$2")
readonly preset folder
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset "$preset" -DWARPCALL_BUILD_TESTS=OFF "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$PWD=." "$@"
cmake --build "build/$preset" --target warpcalld warpcall
install --strip -D --target-directory="$folder" "build/$preset"/bin/{warpcalld,warpcall}
