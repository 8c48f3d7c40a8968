#!/usr/bin/env bash
# Where deploy/release.sh and deploy/build_programs.sh write that are told by a relative path, from elsewhere, and what
# a release leaves out: in a made-up repository, beside a made-up cmake, cpack and docker: release_folders_test.sh
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath "$(mktemp -d)")
trap 'rm -rf "$folder"' EXIT
failures=0

# Builds nothing: the programs to build and install are copies of `true`.
mkdir "$folder/bin" "$folder/elsewhere"
cat >"$folder/bin/cmake" <<'END'
#!/bin/sh
echo "cmake $*" >>"$LOG"
case $1 in
  --preset) mkdir -p "build/$2/bin" && cp /bin/true "build/$2/bin/warpcalld" && cp /bin/true "build/$2/bin/warpcall" ;;
  --install) mkdir -p "$5/bin" && echo "$PROGRAM" >"$5/bin/warpcalld" ;;
esac
END
cat >"$folder/bin/cpack" <<'END'
#!/bin/sh
echo "cpack $*" >>"$LOG"
mkdir -p "$4" && touch "$4/warpcall.deb"
END
cat >"$folder/bin/docker" <<'END'
#!/bin/sh
echo "docker $*" >>"$LOG"
case $1 in
  info) test -n "$ENGINE" ;;
  create) echo container ;;
  save | export) tar -c -C / etc/passwd ;;
esac
END
cp "$folder/bin/docker" "$folder/bin/podman"
chmod +x "$folder"/bin/*
export LOG=$folder/log PATH=$folder/bin:$PATH PROGRAM=cpu ENGINE=

repository=$folder/repository
mkdir "$repository"
cp -r "$source/deploy" "$source/CMakeLists.txt" "$source/.gitignore" "$repository"
# In place of what needs PyPI.
cat >"$repository/deploy/wheels.sh" <<'END'
echo "wheels $2" >>"$LOG"
[[ -z ${UNREACHABLE-} ]] || { echo 'PyPI cannot be reached'; exit 1; }
touch "$1/made.whl"
END
echo 'import sys; open(sys.argv[3], "w").close()' >"$repository/deploy/sbom.py"
: >"$repository/deploy/vendored.py"
git -C "$repository" init --quiet
git -C "$repository" add .
git -C "$repository" -c user.name=test -c user.email=test@warpcall.invalid commit --quiet --message test

# expect PATH: it must exist; expect_call TEXT: cmake or cpack must have been called so.
expect() { [[ -e $1 ]] || { echo "there is no $1"; failures=1; }; }
expect_said() { grep -q --fixed-strings -- "$1" said || { echo "no line has: $1"; cat said; failures=1; }; }
expect_none() { [[ -z $(find . -path "./$1") ]] || { echo "there is $1"; failures=1; }; }
expect_call() { grep -q --fixed-strings -- "$1" "$LOG" || { echo "no call has: $1"; cat "$LOG"; failures=1; }; }

cd "$folder/elsewhere"
bash "$repository/deploy/build_programs.sh" release programs
expect "$folder/elsewhere/programs/warpcalld"
expect "$folder/elsewhere/programs/warpcall"

mkdir built
touch built/build.ninja
bash "$repository/deploy/release.sh" --offline out built >said
expect "$folder/elsewhere/out/SHA256SUMS"
expect_said 'left out: wheels, container image and bills of materials: --offline'
expect_call "cmake --build $folder/elsewhere/built "
expect_call "cmake --install $folder/elsewhere/built "
expect_call "cpack --config $folder/elsewhere/built/CPackConfig.cmake "

# A build that nobody names is the repository's.
mkdir -p "$repository/build/release"
touch "$repository/build/release/build.ninja"
bash "$repository/deploy/release.sh" --offline ../elsewhere/again >/dev/null
expect "$folder/elsewhere/again/SHA256SUMS"
expect_call "--config $repository/build/release/CPackConfig.cmake "

# Wheels and a bill of materials; no engine answers.
bash "$repository/deploy/release.sh" wheels built >said
expect_call "wheels $folder/elsewhere/built"
expect "$folder/elsewhere/wheels/made.whl"
expect "$(echo "$folder"/elsewhere/wheels/warpcall-*.cdx.json)"
grep -q ' made.whl$' wheels/SHA256SUMS || { echo 'the sums lack the wheel'; failures=1; }
expect_said 'left out: the container image: neither docker nor podman answers here'
expect_none 'wheels/*image*'

# An image for the devices that the programs have, with its own bill.
ENGINE=1 bash "$repository/deploy/release.sh" image built >said
expect_call 'docker build --target cpu '
expect "$(echo "$folder"/elsewhere/image/warpcall-*-image-cpu.tar.gz)"
expect "$(echo "$folder"/elsewhere/image/warpcall-*-image-cpu.cdx.json)"
ENGINE=1 PROGRAM='opens libcublasLt.so.13' bash "$repository/deploy/release.sh" gpu built >said
expect_call 'docker build --target gpu '

# Without PyPI there is no release, and no part of one.
if UNREACHABLE=1 bash "$repository/deploy/release.sh" unreachable built >said 2>&1; then
  echo 'a release without wheels'
  failures=1
fi
expect_said 'PyPI cannot be reached'
expect_none unreachable
exit $failures
