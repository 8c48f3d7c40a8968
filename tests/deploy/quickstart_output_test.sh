#!/usr/bin/env bash
# The output of deploy/quickstart.sh: while it builds, how far ninja is and how long it will take; at its end a call and
# paths that lead to the build, in at most 25 lines. It runs in a made-up repository, beside a made-up cmake, with
# programs that say a line each; its functions also run here, with a clock that the test moves.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath "$(mktemp -d)")
readonly source folder
trap 'rm -rf "$folder"' EXIT
failures=0

# says FILE TEXT, says_not FILE TEXT: whether a line of the file has the text.
says() { grep -q --fixed-strings -- "$2" "$1" || { echo "no line has: $2"; cat "$1"; failures=1; }; }
says_not() { ! grep -q --fixed-strings -- "$2" "$1" || { echo "a line has: $2"; cat "$1"; failures=1; }; }
# is GOT WANTED
is() { [[ $1 == "$2" ]] || { echo "got '$1', want '$2'"; failures=1; }; }

# ---- progress

# shellcheck disable=SC1090
source <(sed -n '/^step()/p; /^readonly .*_seconds.*=/p; /^\(progress_of\|watch_progress\|print_next\)() {$/,/^}$/p' \
  "$source/deploy/quickstart.sh")
export started=0
log=$folder/log

is "$(progress_of "$folder/none" 5)" ''
printf '[0/443] Building a\n' >"$log"
is "$(progress_of "$log" 5)" ''
printf '[1/443] Building a\nwarning: [9/9] of no step\n[110/440] Building b\n' >"$log"
is "$(progress_of "$log" 200)" 'built 110 of 440 steps, about 10 min left'
is "$(progress_of "$log" 19)" 'built 110 of 440 steps, under a minute left'

# Each look takes 10 s; after ten the build ends.
looks=0
sleep() {
  SECONDS=$((SECONDS + 10))
  echo "[$((++looks))/10] Building" >>"$log"
  ((looks < 10)) || exit 0
}
is_terminal() { [[ -n ${TERMINAL-} ]]; }
: >"$log"
(SECONDS=0; watch_progress "$log") >"$folder/said"
is "$(sed 's/^\[ *[0-9]* s\] //' "$folder/said")" 'built 3 of 10 steps, about 1 min left
built 6 of 10 steps, under a minute left
built 9 of 10 steps, under a minute left'
: >"$log"
(SECONDS=0; TERMINAL=1; watch_progress "$log") >"$folder/said"
is "$(wc -l <"$folder/said")" 0
is "$(tr '\r' '\n' <"$folder/said" | grep -c ' of 10 steps, ')" 9
unset -f sleep

# With a GPU the build is in another folder.
# shellcheck disable=SC2034  # print_next reads them
(called_from=/ build=build/cuda verbose=1; cd "$folder"; print_next) >"$folder/said"
is "$(grep -c "^  $folder/build/cuda/bin/" "$folder/said")" 4
says_not "$folder/said" build/release

# ---- the whole script

repository=$folder/repository
mkdir -p "$folder/bin" "$folder/elsewhere" "$repository"
cp -r "$source/deploy" "$repository"
printf '#!/bin/sh\n' >"$repository/deploy/install_packages.sh"
cat >"$folder/bin/cmake" <<'END'
#!/usr/bin/env bash
# Configures and builds nothing but programs that say what they are.
if [[ $1 == --preset ]]; then
  mkdir -p "build/$2/bin"
  touch "build/$2/build.ninja"
  exit
fi
echo "[1/2] Building ${*:4}"
if [[ -n ${BROKEN-} ]]; then
  printf 'FAILED: some.o\nsome.cc: error: broken\n'
  exit 1
fi
cat >"$2/bin/warpcalld" <<'PROGRAM'
#!/usr/bin/env bash
trap 'exit 0' TERM
echo 'warpcalld: serving on 127.0.0.1:5, metrics on 127.0.0.1:7'
while true; do sleep 0.1; done
PROGRAM
printf '#!/bin/sh\necho "called: $*"\n' | tee "$2/bin/warpcall" >"$2/bin/digits"
chmod +x "$2"/bin/*
END
chmod +x "$folder/bin/cmake"
export PATH=$folder/bin:$PATH

# quickstart FOLDER [WORD...]: runs it from there, its output in `said`, its exit status in `status`.
quickstart() {
  status=0
  (cd "$1" && bash "$repository/deploy/quickstart.sh" "${@:2}") >"$folder/said" 2>&1 </dev/null || status=$?
}

BROKEN=1 quickstart "$repository"
is "$status" 1
says "$folder/said" 'some.cc: error: broken'
says "$folder/said" "the build failed (the whole log: $repository/build/logs/"

for place in "$repository" "$folder/elsewhere"; do
  quickstart "$place"
  is "$status" 0
  (($(wc -l <"$folder/said") <= 25 - 7)) || { echo 'it says too much'; cat "$folder/said"; failures=1; }
  says "$folder/said" 'called: --server 127.0.0.1:5 run softmax --shape 1024x1024'
  says_not "$folder/said" 'digits'
  paths=$(sed -n 's/^  \(bash \)\?\([^ ]*\) .*/\2/p' "$folder/said" | sort -u)
  is "$(wc -l <<<"$paths")" 3
  for path in $paths; do
    (cd "$place" && [[ -e $path ]]) || { echo "there is no $path in $place"; failures=1; }
  done
done

# The made-up server has no metrics, which ends what --verbose shows.
quickstart "$repository" --verbose
is "$status" 1
says "$folder/said" 'called: --server 127.0.0.1:5 kernels'
says "$folder/said" 'called: --server 127.0.0.1:5 --data client/examples/digits/data'

quickstart "$repository" --verbos
is "$status" 2
says "$folder/said" "usage: deploy/quickstart.sh [--verbose]; unexpected argument '--verbos'"
exit $failures
