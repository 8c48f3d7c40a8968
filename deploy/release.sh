#!/usr/bin/env bash
# Makes all that a release consists of, out of the commit that is checked out, in a new folder:
#   deploy/release.sh FOLDER [BUILD]
# the sources, a tree that may be unpacked anywhere, Debian packages, Grafana's dashboard and Kubernetes' objects,
# with their checksums in SHA256SUMS. BUILD, by default build/release, is configured and built if need be.
# Sources, tree, dashboard and objects have the same bytes each time they are made of the same binaries.
set -euo pipefail

fail() {
  echo "release.sh: $1" >&2
  exit 1
}

(($# == 1 || $# == 2)) || {
  echo 'usage: deploy/release.sh FOLDER [BUILD]' >&2
  exit 2
}
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(realpath --canonicalize-missing "$1")
build=$(realpath --canonicalize-missing "${2:-$root/build/release}")
readonly root folder build
cd "$root"
# shellcheck source=deploy/logged.sh
source deploy/logged.sh
[[ ! -e $folder ]] || fail "$folder is there already"
[[ -z $(git status --porcelain) ]] || fail 'there are changes that are not committed'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

version=$(sed -nE 's/^project\(warpcall VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
name=warpcall-$version
# What is packed says when the commit was made, not when it was packed.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# pack ARCHIVE FOLDER ENTRY
pack() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    -C "$2" -cf - "$3" | gzip --no-name >"$1"
}

[[ -f $build/build.ninja ]] ||
  run_logged "$scratch/configure.log" cmake --preset release -B "$build" -DWARPCALL_BUILD_TESTS=OFF \
    "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$PWD=."
run_logged "$scratch/build.log" cmake --build "$build" --target warpcalld warpcall warpcall_client
mkdir -p "$folder"
git archive --prefix="$name/" HEAD | gzip --no-name >"$folder/$name.tar.gz"
run_logged "$scratch/install.log" cmake --install "$build" --strip --prefix "$scratch/$name-linux-$(uname -m)"
pack "$folder/$name-linux-$(uname -m).tar.gz" "$scratch" "$name-linux-$(uname -m)"
run_logged "$scratch/cpack.log" cpack --config "$build/CPackConfig.cmake" -B "$scratch/packages"
mv "$scratch"/packages/*.deb "$folder"
cp deploy/kubernetes/components/dashboard/warpcall.json "$folder/$name-dashboard.json"
pack "$folder/$name-kubernetes.tar.gz" deploy kubernetes
(cd "$folder" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)
echo "$folder:"
ls "$folder"
