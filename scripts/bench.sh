#!/bin/sh
# Runs every benchmark that was built. BENCH_ARGS goes to each of them.
set -eu
cd "$(dirname "$0")/.."
for program in build/bench/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  echo "== ${program##*/}"
  # shellcheck disable=SC2086  # a list of words
  "$program" ${BENCH_ARGS:-} </dev/null
done
