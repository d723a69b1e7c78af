#!/bin/sh
# bench_lanes.sh <build folder> [<arguments of bench/lane_numbers.py>...]
#
# Modelled links on the streams of this machine's GPU: the tests of words, spans
# and products, a trace, then what is hidden. Builds nothing; fails at the first
# thing that is not as it should be.
set -eu
folder=${1:?usage: bench_lanes.sh <build folder> [<arguments>...]}
shift
cd "$(dirname "$0")/.."
canzona=$folder/canzona

# tests <program> <filter>: the program is there if tests were built.
tests() {
  program=$(find "$folder" -type f -name "$1" | head -n 1)
  if [ -z "$program" ]; then
    echo "lanes: no $1 in $folder: its tests are left out"
    return
  fi
  "$program" --gtest_filter="$2"
}

tests canzona_cuda_engine_test 'CudaBf16Products.*'
tests canzona_cuda_runtime_test \
  'CudaLanes.*Words*:CudaLanes.Idle*:CudaLanes.Modelled*:CudaLanes.Spans*'

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
"$canzona" bench step --device cuda --model qwen3-0.6b --scale 1/4 --layers 4 \
  --mesh dp=2 --strategy balanced --zero zero3 --compute products \
  --comm-ratio 0.5 --steps 1 --trace "$trace"
for name in compute gradients parameters; do
  grep -q "GPU stream, $name" "$trace" ||
    { echo "lanes: the trace has no stream of $name" >&2; exit 1; }
done
python3 bench/lane_numbers.py --canzona "$canzona" "$@"
