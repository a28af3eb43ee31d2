# What the journeys share. A journey is a script that `run` starts in an empty folder with `configs` in it and `tightloop` in the PATH.
# $SMALL holds settings that make a training last seconds (empty with `run --full`: the commands as they stand in the docs).
set -uo pipefail
out=.output

fail() { printf '\nFAILED: %s\n' "$*"; exit 1; }
skip() { printf '\nSKIPPED: %s\n' "$*"; exit 77; }
title() { printf '\n# %s\n' "$*"; }
make() { python3 "$JOURNEYS/make.py" "$@"; }

# expect CODE 'COMMAND': shows the command, runs it, shows what it printed (long output: its ends), and checks the exit code.
expect() {
  local wanted=$1 code=0
  printf '\n$ %s\n' "$2"
  (eval "$2") >"$out" 2>&1 </dev/null || code=$?
  if [ "$(wc -l <"$out")" -gt 24 ]; then head -12 "$out"; echo "  ..."; tail -10 "$out"; else cat "$out"; fi
  [ "$code" = "$wanted" ] || { [ "$(wc -l <"$out")" -gt 24 ] && cat "$out"; fail "exit code $code, not $wanted: $2"; }
}
ok() { expect 0 "$1"; }
must_say() { grep -qF -- "$1" "$out" || fail "the output does not say '$1'"; }
must_not_say() { ! grep -qF -- "$1" "$out" || fail "the output says '$1'"; }
must_exist() { for file in "$@"; do [ -s "$file" ] || [ -d "$file" ] || fail "'$file' is not there"; done; }
# The value of a key in the JSON that the last command printed.
value() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$out" "$1"; }
