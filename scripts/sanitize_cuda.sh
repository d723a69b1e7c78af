#!/bin/sh
# sanitize_cuda.sh [TOOL...]
#
# Runs the GPU tests of kernels, and of thread ranks that share a GPU, under
# compute-sanitizer: memcheck (accesses outside of what was allocated, leaks) and
# racecheck (shared memory), or the tools named. The tests are those that reach
# every kernel on small shapes: the tools slow a kernel down a hundredfold. What
# measures the device's free memory is left out, because the tools take of it.
#
# Ranks issue work beside each other. There memcheck itself ends with an illegal
# address that it cannot attribute, as soon as it instruments the kernels of tiled
# products: not with one connection to the GPU (CUDA_DEVICE_MAX_CONNECTIONS=1),
# not with CUDA_LAUNCH_BLOCKING=1, and not without the tool. So the tests of ranks
# leave those kernels out, which the tests of rules and engines have covered.
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
  "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 \
    --kernel-name-exclude kns=tile_product \
    build-cuda/rooms/runtime/canzona_cuda_runtime_test \
    --gtest_filter='CudaLanes.*-*GiveTheResultOfRanksThatWait*' --gtest_brief=1
done
