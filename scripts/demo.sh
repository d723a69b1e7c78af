#!/bin/sh
# Plans one 32-billion-parameter model on 256 GPUs and compares the strategies,
# then checks the optimizers against their references and times one of them.
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
echo "The report is build/demo/report.html: open it in a browser."
