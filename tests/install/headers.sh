#!/bin/sh
# headers.sh <root> <compiler>
#
# Compiles every installed header alone: a user may include any of them first,
# on a machine without the headers of MPI, NCCL or CUDA.
set -u
usage="usage: headers.sh <root> <compiler>"
root=${1:?$usage}
compiler=${2:?$usage}
cd "$root" || exit 2

failures=$(mktemp)
trap 'rm -f "$failures"' EXIT
export compiler failures
find canzona -name '*.h' | xargs -P "$(nproc)" -I '{}' sh -c '
  errors=$("$compiler" -std=c++20 -w -I. -fsyntax-only -x c++ "{}" 2>&1) ||
    { echo "{} does not compile alone:"; echo "$errors" | head -n 3; } \
      >>"$failures"'
[ -s "$failures" ] || exit 0
cat "$failures"
exit 1
