#!/usr/bin/env bash
# Installs what is missing of the Debian or Ubuntu packages that Warpcall needs:
#   install_packages.sh build   to compile it
#   install_packages.sh test    to compile it and its tests with g++ and clang, and run them
#   install_packages.sh run     to run its binaries: shared libraries only
# Needs root or sudo only when something is missing, and touches no network when nothing is.
set -euo pipefail

# python3-venv is for what is had from PyPI: Triton by the CUDA build, linters and schemas by tests.
build_packages=(
  g++ cmake ninja-build pkg-config
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libssl-dev zlib1g-dev prometheus-cpp-dev libdnnl-dev libhwy-dev libcli11-dev nlohmann-json3-dev libboost-dev
  python3-venv
)
# clang and its run-time library are for the fuzzer and the thread-safety analysis; prometheus, which
# brings promtool, and python3 for the tests of what deploy/ holds to watch the server, and cpp-httplib to
# ask it; prometheus-client for its parser of OpenMetrics; grpcio, NumPy and protobuf for an independent client, Python's headers for the module warpcall_fast,
# mypy and flake8 for the Python client's code; jsonschema and yaml for what deploy/ holds for others' schemas,
# seccomp for its systemd unit, Slurm for its batch script, HAProxy for several servers; git for those that
# clone, file for CPack; ccache saves tests/run.sh some minutes.
test_packages=("${build_packages[@]}" libgtest-dev libgmock-dev libbenchmark-dev libcpp-httplib-dev
  clang libclang-rt-dev prometheus python3 python3-dev python3-grpcio python3-jsonschema python3-numpy
  python3-prometheus-client python3-protobuf python3-seccomp python3-yaml haproxy munge slurm-client
  slurmctld slurmd mypy flake8 ccache file git libb64-0d)
# Those that bring a service, which would start now and at every boot. The tests start what they need.
services=(haproxy munge prometheus slurmctld slurmd)

# Shared libraries carry a version in their package names, which differ between releases. The
# development package depends on the right one; the pattern picks it from the dependencies.
run_packages=(
  'libgrpc++-dev libgrpc++[0-9]*'
  'libprotobuf-dev libprotobuf[0-9]*'
  'libabsl-dev libabsl[0-9]*'
  'prometheus-cpp-dev libprometheus-cpp-core[0-9]*'
  'libdnnl-dev libdnnl[0-9]*'
  'libhwy-dev libhwy[0-9]*'
  'libssl-dev libssl[0-9]*'
  'zlib1g-dev zlib1g'
)

# Maintainers' scripts ask this program whether they may start a service.
readonly service_policy=/usr/sbin/policy-rc.d
policy_is_ours=
log=$(mktemp)
trap 'clean_up' EXIT

fail() {
  echo "install_packages.sh: $1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 1
}

is_installed() {
  dpkg-query --show --showformat '${db:Status-Abbrev}\n' "$1" 2>/dev/null | grep -q '^ii'
}

# How to become root: not at all, or through sudo, which may ask for a password at a terminal only.
become_root=()
if ((EUID != 0)); then
  become_root=(sudo)
  [[ -t 0 ]] || become_root+=(--non-interactive)
fi

# Runs an apt-get command; its output is kept in $log.
apt_get() {
  "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get --quiet -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" >>"$log" 2>&1 </dev/null
}

clean_up() {
  rm -f "$log"
  [[ -z $policy_is_ours ]] || "${become_root[@]}" rm -f "$service_policy"
}

# A policy that is there already is the administrator's (container images have one that forbids all) and
# stays.
forbid_services() {
  [[ ! -e $service_policy ]] || return 0
  policy_is_ours=1
  printf '#!/bin/sh\nexit 101\n' | "${become_root[@]}" tee "$service_policy" >/dev/null
  "${become_root[@]}" chmod 755 "$service_policy"
}

forbid_at_boot() {
  local service
  [[ -d /run/systemd/system ]] || return 0
  for service in "$@"; do
    "${become_root[@]}" systemctl disable --now "$service.service" >>"$log" 2>&1 ||
      echo "warning: $service may start with this machine: systemctl disable $service" >&2
  done
}

# The name that this release gives to the library of a development package.
resolve_library() {
  local development=$1 pattern=$2 name
  for name in $(apt-cache depends "$development" 2>/dev/null | awk '$1 == "Depends:" {print $2}'); do
    # shellcheck disable=SC2053  # the right-hand side is a pattern
    if [[ $name == $pattern ]]; then
      echo "$name"
      return
    fi
  done
  fail "no dependency of $development is called $pattern in this release." \
    'Debian 12, Ubuntu 24.04 and later have what Warpcall needs.'
}

# Adds to the array `missing`.
find_missing() {
  local package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
}

install() {
  local started=$SECONDS package service
  local -a brought=()
  for service in "${services[@]}"; do
    [[ " $* " != *" $service "* ]] || brought+=("$service")
  done
  echo "installing packages: $*"
  for package in "$@"; do
    apt-cache show "$package" >/dev/null 2>&1 ||
      fail "this release has no package $package." \
        'Debian 12, Ubuntu 24.04 and later have what Warpcall needs.'
  done
  ((${#brought[@]} == 0)) || forbid_services
  if ! apt_get install --yes --no-install-recommends "$@"; then
    tail -n 40 "$log" >&2
    fail "apt-get install failed (its output is above): $*"
  fi
  forbid_at_boot "${brought[@]}"
  echo "installed $# packages in $((SECONDS - started)) s"
}

update_lists() {
  command -v apt-get >/dev/null ||
    fail 'needs apt-get: Debian 12, Ubuntu 24.04 or later.' "missing: $*"
  ((EUID == 0)) || "${become_root[@]}" true ||
    fail 'needs root, or a sudo that lets this user in, to install packages.' "missing: $*"
  # A third party's unreachable archive makes this fail, and need not matter: the lists of the
  # archive that counts are asked next.
  apt_get update || echo 'warning: apt-get update failed; going on with the lists that there are' >&2
}

main() {
  local -a missing=()
  local entry development pattern library
  case ${1-} in
    build) find_missing "${build_packages[@]}" ;;
    test) find_missing "${test_packages[@]}" ;;
    run) find_missing "${run_packages[@]#* }" ;;
    *)
      echo "usage: ${0##*/} build|test|run" >&2
      exit 2
      ;;
  esac
  ((${#missing[@]} > 0)) || return 0
  update_lists "${missing[@]}"
  if [[ $1 == run ]]; then
    missing=()
    for entry in "${run_packages[@]}"; do
      read -r development pattern <<<"$entry"
      is_installed "$pattern" && continue
      library=$(resolve_library "$development" "$pattern")
      missing+=("$library")
    done
  fi
  install "${missing[@]}"
}

main "$@"
