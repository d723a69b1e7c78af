#!/bin/sh
# Compares the strategies for a 32-billion-parameter model on 256 GPUs, then
# trains a small language model on four ranks, with AdamW and with Muon, and
# shows when each has AdamW's final loss. Evaluations are frequent, so that this
# is known to a few steps, and small, so that they take little of the minute.
set -eu
cd "$(dirname "$0")/.."
canzona=build/canzona
mkdir -p build/demo

run() {
  echo "\$ $*"
  "$@"
  echo
}

run $canzona compare --model qwen3-32b --mesh dp=32,tp=8 --rule muon --fused \
  --html build/demo/plans.html
for rule in adamw muon; do
  run $canzona train --preset tiny --rule $rule --mesh dp=2,tp=2 \
    --set eval.every=10 --set eval.sequences=64 --set log.every=20 \
    --run build/demo/$rule --overwrite
done
run $canzona report build/demo/adamw build/demo/muon \
  --html build/demo/report.html
echo "The runs, side by side:                build/demo/report.html"
echo "The strategies for Qwen3-32B:          build/demo/plans.html"
