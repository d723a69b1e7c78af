#!/bin/sh
# fuzz.sh [seconds]
#
# Runs each fuzz target for so long, starting from its stored inputs. New
# inputs stay in build-fuzz/; a crash ends the run and leaves its input there.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
ran=0
for program in build-fuzz/fuzz/fuzz_*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  name=${program##*/fuzz_}
  found=build-fuzz/found/$name
  mkdir -p "$found" "fuzz/corpus/$name"
  echo "== fuzz_$name, $seconds s"
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" \
    "$found" "fuzz/corpus/$name"
  ran=$((ran + 1))
done
[ $ran -gt 0 ] || { echo "no fuzz target was built" >&2; exit 1; }
echo "fuzz: $ran targets, no crash"
