#!/usr/bin/env bash
# Makes all that a release consists of, out of the commit that is checked out, in a new folder:
#   deploy/release.sh [--offline] FOLDER [BUILD]
# the sources, a tree that may be unpacked anywhere, Debian packages, wheels, a container image with its bill of
# materials, a bill of materials of the programs, Grafana's dashboard and Kubernetes' objects, with their checksums in
# SHA256SUMS. BUILD, by default build/release, is configured and built if need be; with the CUDA device in it, wheel and
# image have it too. Wheels and bills need PyPI, and the release fails without it; the image needs docker or podman, and
# is left out without them. --offline leaves out wheels, image and bills.
# All but the image has the same bytes each time it is made of the same binaries.
set -euo pipefail

fail() {
  echo "release.sh: $1" >&2
  exit 1
}

offline=
if [[ ${1-} == --offline ]]; then
  offline=1
  shift
fi
if (($# < 1 || $# > 2)) || [[ $1 == -* ]]; then
  echo 'usage: deploy/release.sh [--offline] FOLDER [BUILD]' >&2
  exit 2
fi
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(realpath --canonicalize-missing "$1")
build=$(realpath --canonicalize-missing "${2:-$root/build/release}")
python=/usr/bin/python3
[[ -x $python ]] || python=python3
readonly root folder build python offline
cd "$root"
# shellcheck source=deploy/logged.sh
source deploy/logged.sh
[[ ! -e $folder ]] || fail "$folder is there already"
[[ -z $(git status --porcelain) ]] || fail 'there are changes that are not committed'
scratch=$(mktemp -d)
# FOLDER appears when all is there.
made=$scratch/made
mkdir "$made"
trap 'rm -rf "$scratch"' EXIT

version=$(sed -nE 's/^project\(warpcall VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
name=warpcall-$version
# An archive says when the commit was made, not when it was packed.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# pack ARCHIVE FOLDER ENTRY
pack() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    -C "$2" -cf - "$3" | gzip --no-name >"$1"
}

# The wheels, and a bill of materials of the programs with the packages that they are linked with.
make_wheels() {
  run_logged "$scratch/wheels.log" bash deploy/wheels.sh "$made" "$build"
  run_logged "$scratch/root.log" "$python" deploy/vendored.py root "$scratch/programs" "$tree"/bin/{warpcall,warpcalld}
  run_logged "$scratch/bill.log" "$python" deploy/sbom.py "$scratch/programs" "$version" "$made/$name.cdx.json"
}

# Prints the first container engine that answers.
find_engine() {
  local engine
  for engine in docker podman; do
    if command -v "$engine" >/dev/null && "$engine" info >/dev/null 2>&1; then
      echo "$engine"
      return
    fi
  done
}

# $1: an engine, $2: the image's target in Dockerfile.
make_image() {
  local engine=$1 target=$2 container
  local tag=warpcall:$target-$version archive=$made/$name-image-$target
  run_logged "$scratch/image.log" "$engine" build --target "$target" --tag "$tag" \
    --build-arg "REVISION=$(git rev-parse HEAD)" .
  "$engine" save "$tag" | gzip --no-name >"$archive.tar.gz"
  container=$("$engine" create "$tag")
  mkdir "$scratch/image"
  "$engine" export "$container" | tar -x --exclude='dev/*' -C "$scratch/image"
  "$engine" rm "$container" >/dev/null
  run_logged "$scratch/bill.log" "$python" deploy/sbom.py "$scratch/image" "$version" "$archive.cdx.json"
}

[[ -f $build/build.ninja ]] ||
  run_logged "$scratch/configure.log" cmake --preset release -B "$build" -DWARPCALL_BUILD_TESTS=OFF \
    "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$PWD=."
run_logged "$scratch/build.log" cmake --build "$build" --target warpcalld warpcall warpcall_client
git archive --prefix="$name/" HEAD | gzip --no-name >"$made/$name.tar.gz"
tree=$scratch/$name-linux-$(uname -m)
run_logged "$scratch/install.log" cmake --install "$build" --strip --prefix "$tree"
pack "$made/${tree##*/}.tar.gz" "$scratch" "${tree##*/}"
run_logged "$scratch/cpack.log" cpack --config "$build/CPackConfig.cmake" -B "$scratch/packages"
mv "$scratch"/packages/*.deb "$made"
cp deploy/kubernetes/components/dashboard/warpcall.json "$made/$name-dashboard.json"
pack "$made/$name-kubernetes.tar.gz" deploy kubernetes
left_out=
if [[ -n $offline ]]; then
  left_out='wheels, container image and bills of materials: --offline'
else
  make_wheels
  engine=$(find_engine)
  target=cpu
  ! grep --quiet --text --fixed-strings libcublasLt.so. "$tree/bin/warpcalld" || target=gpu
  if [[ -n $engine ]]; then
    make_image "$engine" "$target"
  else
    left_out='the container image: neither docker nor podman answers here (docker info, podman info)'
  fi
fi
(cd "$made" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)
mkdir -p "$(dirname "$folder")"
mv "$made" "$folder"
echo "$folder:"
ls "$folder"
[[ -z $left_out ]] || echo "left out: $left_out"
