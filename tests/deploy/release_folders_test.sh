#!/usr/bin/env bash
# Where deploy/release.sh and deploy/build_programs.sh write that are told by a relative path, from elsewhere: in a
# made-up repository, beside a made-up cmake and cpack: release_folders_test.sh
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
  --install) mkdir -p "$5" ;;
esac
END
cat >"$folder/bin/cpack" <<'END'
#!/bin/sh
echo "cpack $*" >>"$LOG"
mkdir -p "$4" && touch "$4/warpcall.deb"
END
chmod +x "$folder/bin/cmake" "$folder/bin/cpack"
export LOG=$folder/log PATH=$folder/bin:$PATH

repository=$folder/repository
mkdir "$repository"
cp -r "$source/deploy" "$source/CMakeLists.txt" "$source/.gitignore" "$repository"
git -C "$repository" init --quiet
git -C "$repository" add .
git -C "$repository" -c user.name=test -c user.email=test@warpcall.invalid commit --quiet --message test

# expect PATH: it must exist; expect_call TEXT: cmake or cpack must have been called so.
expect() { [[ -e $1 ]] || { echo "there is no $1"; failures=1; }; }
expect_call() { grep -q --fixed-strings -- "$1" "$LOG" || { echo "no call has: $1"; cat "$LOG"; failures=1; }; }

cd "$folder/elsewhere"
bash "$repository/deploy/build_programs.sh" release programs
expect "$folder/elsewhere/programs/warpcalld"
expect "$folder/elsewhere/programs/warpcall"

mkdir built
touch built/build.ninja
bash "$repository/deploy/release.sh" out built >/dev/null
expect "$folder/elsewhere/out/SHA256SUMS"
expect_call "cmake --build $folder/elsewhere/built "
expect_call "cmake --install $folder/elsewhere/built "
expect_call "cpack --config $folder/elsewhere/built/CPackConfig.cmake "

# A build that nobody names is the repository's.
mkdir -p "$repository/build/release"
touch "$repository/build/release/build.ninja"
bash "$repository/deploy/release.sh" ../elsewhere/again >/dev/null
expect "$folder/elsewhere/again/SHA256SUMS"
expect_call "--config $repository/build/release/CPackConfig.cmake "
exit $failures
