#!/bin/sh
# lint.sh <build folder>: clang-tidy over every source that the build compiles.
set -eu
build=${1:?usage: lint.sh <build folder>}
cd "$(dirname "$0")/.."
[ -f "$build/compile_commands.json" ] ||
  { echo "lint: $build is not configured" >&2; exit 1; }
sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
  grep -v '_test\.cc$' | sort -u |
  xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "$build"
