#!/bin/sh
# Plans one 32-billion-parameter model on 256 GPUs and compares the strategies,
# then checks the optimizers against their references, times one of them, and
# carries plans of a small model out on four ranks.
set -eu
cd "$(dirname "$0")/.."
canzona=build/canzona
mkdir -p build/demo

run() {
  echo "\$ $*"
  "$@"
  echo
}

run $canzona plan --model qwen3-32b --mesh dp=32,tp=8 --rule muon --fused \
  --output build/demo/plan.json
run $canzona compare --model qwen3-32b --mesh dp=32,tp=8 --rule muon --fused \
  --html build/demo/report.html
run $canzona rules check tests/data/golden
run $canzona bench transform --shape 512x1536 --rounds 3
run $canzona bench step --model qwen3-1.7b --scale 1/8 --layers 4 \
  --mesh dp=2,tp=2 --steps 3
run $canzona bench step --model qwen3-1.7b --scale 1/8 --layers 4 \
  --mesh dp=2,tp=2 --steps 3 --strategy balanced --trace build/demo/steps.json
echo "The report is build/demo/report.html: open it in a browser."
echo "The ranks' spans are build/demo/steps.json: open them in ui.perfetto.dev."
