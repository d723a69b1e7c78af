#!/bin/sh
# sanitize_cuda.sh [TOOL...]
#
# Runs the GPU tests of kernels, and of thread ranks that share a GPU, under
# compute-sanitizer: memcheck (accesses outside of what was allocated, leaks) and
# racecheck (shared memory), or the tools named. The tests are those that reach
# every kernel on small shapes: the tools slow a kernel down a hundredfold. What
# measures the device's free memory is left out, because the tools take of it.
#
# Where graphs and other work are in flight beside each other, memcheck itself ends
# with an illegal address that it attributes to no kernel. The same calls without
# graphs have no error, and graphs have none without the tool. So ranks run without
# graphs here; those of rules and engines are covered by tests of one stream.
set -eu
cd "$(dirname "$0")/.."
sanitizer=$(command -v compute-sanitizer ||
  ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
[ -n "$sanitizer" ] ||
  { echo "sanitize: there is no compute-sanitizer" >&2; exit 1; }
build-cuda/gpu_present

small_shapes='*AgreesWithFp64OnAllKindsOfShapes*:*ReplayedWork*'
for tool in ${*:-memcheck racecheck}; do
  echo "== $tool"
  "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    build-cuda/rooms/rules/canzona_cuda_rules_test \
    --gtest_filter="$small_shapes" --gtest_brief=1
  "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    build-cuda/rooms/linalg/cuda/canzona_cuda_engine_test \
    --gtest_filter='-*DoNotDependOnTheBatch*:*Rates*:*Large*:*TakesNoMore*' \
    --gtest_brief=1
  CANZONA_CUDA_GRAPHS=0 \
    "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    build-cuda/rooms/runtime/canzona_cuda_runtime_test \
    --gtest_filter='CudaLanes.*-*GiveTheResultOfRanksThatWait*' --gtest_brief=1
done
