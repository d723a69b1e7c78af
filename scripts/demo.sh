#!/bin/sh
# Trains a small language model with Muon on four ranks, and once more with
# AdamW; then plans a 32-billion-parameter model on 256 GPUs and compares the
# strategies.
set -eu
cd "$(dirname "$0")/.."
canzona=build/canzona
mkdir -p build/demo

run() {
  echo "\$ $*"
  "$@"
  echo
}

for rule in muon adamw; do
  run $canzona train --preset tiny --rule $rule --mesh dp=2,tp=2 \
    --set eval.every=50 --set log.every=20 --run build/demo/$rule --overwrite
done
run $canzona report build/demo/adamw build/demo/muon \
  --html build/demo/report.html
run $canzona compare --model qwen3-32b --mesh dp=32,tp=8 --rule muon --fused \
  --html build/demo/plans.html
echo "The runs, side by side:      build/demo/report.html"
echo "The strategies for the 32B:  build/demo/plans.html"
