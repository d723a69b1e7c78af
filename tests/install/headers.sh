#!/bin/sh
# headers.sh <root> <compiler> [<folder of MPI's headers>...]
#
# Compiles every header that is installed, alone: a user may include any of them
# first. Those of linalg/cuda need CUDA's and are left out, those of comm/mpi in a
# build without MPI, and those for AVX-512 on other processors.
set -u
usage="usage: headers.sh <root> <compiler> [<folder of MPI's headers>...]"
root=${1:?$usage}
compiler=${2:?$usage}
shift 2
folders=
for folder; do folders="$folders -isystem $folder"; done
cd "$root" || exit 2

failures=$(mktemp)
trap 'rm -f "$failures"' EXIT
export compiler failures folders
left_out='^canzona/linalg/cuda/'
[ -n "$folders" ] || left_out="$left_out|^canzona/comm/mpi/"
[ "$(uname -m)" = x86_64 ] || left_out="$left_out|_avx512[.]h$"
find canzona -name '*.h' ! -name 'test_*' | grep -Ev "$left_out" |
  sort | xargs -P "$(nproc)" -I '{}' sh -c '
    errors=$("$compiler" -std=c++20 -w -I. $folders -fsyntax-only \
      -x c++ "{}" 2>&1) ||
      { echo "{} does not compile alone:"; echo "$errors" | head -n 3; } \
        >>"$failures"'
[ -s "$failures" ] || exit 0
cat "$failures"
exit 1
