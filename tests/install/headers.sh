#!/bin/sh
# headers.sh <root> <compiler>
#
# Compiles every header that is installed, alone: a user may include any of them
# first. Those of linalg/cuda need CUDA's and are left out.
set -u
root=${1:?usage: headers.sh <root> <compiler>}
compiler=${2:?usage: headers.sh <root> <compiler>}
cd "$root" || exit 2

failures=$(mktemp)
trap 'rm -f "$failures"' EXIT
export compiler failures
find canzona -name '*.h' ! -name 'test_*' ! -path 'canzona/linalg/cuda/*' |
  sort | xargs -P "$(nproc)" -I '{}' sh -c '
    errors=$("$compiler" -std=c++20 -I. -fsyntax-only -x c++ "{}" 2>&1) ||
      { echo "{} does not compile alone:"; echo "$errors" | head -n 3; } \
        >>"$failures"'
[ -s "$failures" ] || exit 0
cat "$failures"
exit 1
