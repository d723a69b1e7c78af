#!/bin/sh
# test_mpich.sh
#
# The tests of MPI once more with MPICH, in build-mpich, and a run of `bench
# step` that must lead to the same parameters as ranks on threads. `make
# test-all` calls it. MPICH is installed beside Open MPI, which stays the
# default; where it cannot be had, the reason is said and the tests are skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}

if ! sh scripts/setup.sh --mpich; then
  echo "test_mpich: skipped: MPICH is not here and cannot be installed"
  exit 0
fi

set -e
# The settings are those of the release, with another MPI.
cmake --preset release -B build-mpich -DCANZONA_MPI=mpich -DCANZONA_BUILD_TESTS=ON >/dev/null
cmake --build build-mpich -j "$jobs" --target canzona canzona_comm_mpi_test
ctest --test-dir build-mpich --output-on-failure --no-tests=error \
  -R '^comm_mpi\.(ranks_[24]|parts)$'

digests() {  # <launcher and its options>...
  "$@" build-mpich/canzona bench step --model qwen3-0.6b --scale 1/16 \
    --layers 2 --mesh dp=2,tp=2 --rule soap --strategy all --steps 4 \
    --rule-option precondition_frequency=2 --iterations 0 --compute 0 --json \
    --quiet | grep -E '"(name|digest|state_digest|transport)":'
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
digests env >"$folder/thread"
digests mpirun.mpich -n 4 >"$folder/mpi"
grep -q '"transport": "mpi"' "$folder/mpi" || {
  echo "test_mpich: the run under mpirun.mpich was none of MPI" >&2
  exit 1
}
grep -v transport "$folder/thread" >"$folder/expected"
grep -v transport "$folder/mpi" | cmp -s "$folder/expected" - || {
  echo "test_mpich: MPICH leads to other digests than threads:" >&2
  diff "$folder/thread" "$folder/mpi" >&2
  exit 1
}
echo "test_mpich: $(grep -c '"digest"' "$folder/mpi") strategies, digests as on threads"
