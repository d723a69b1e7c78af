# canzona bench step carries plans out on real ranks.
. "$(dirname "$0")/words.sh"

computes bench step
exits 2
says '--model is required'

small_shapes
small="bench step --model small.json --compute 0.001"

# The JSON has all figures for every strategy.
# shellcheck disable=SC2086
canzona $small --mesh dp=2,tp=2 --strategy all --steps 3 --json --quiet
exits 0
is_json
is_empty err
member_is model small.json
member_is 'mesh dp' 2
member_is 'mesh tp' 2
member_is rule muon
member_is transport thread
precision=$(member precision)
plan=$(member 'strategies 0 plan_digest')
checks=$((checks + 1))
case $precision/$(member precision_why) in
  'bf16/auto: A'* | 'fp32/auto: no fast bf16') ;;
  *) fail "precision $precision because of $(member precision_why)" ;;
esac
member_is steps 3
member_is digests_agree ON
digest=$(member 'strategies 0 digest')
states=$(member 'strategies 0 state_digest')
for i in 0 1 2 3 4 5; do
  for name in name digest state_digest step_seconds step_and_gather_seconds \
    iteration_seconds hidden_fraction bytes_sent_max bytes_predicted_max \
    memory_bytes_max memory_predicted_max speedup_over_replicated; do
    has_member "strategies $i $name"
  done
  member_is "strategies $i digest" "$digest"
  member_is "strategies $i state_digest" "$states"
  member_is "strategies $i bytes_sent_max" \
    "$(member "strategies $i bytes_predicted_max")"
  member_is "strategies $i memory_bytes_max" \
    "$(member "strategies $i memory_predicted_max")"
done
member_is 'strategies 0 name' replicated
member_is 'strategies 0 speedup_over_replicated' 1

# `auto` is resolved before planning, so it gives the same plan as the precision
# that it stands for.
# shellcheck disable=SC2086
canzona $small --mesh dp=2,tp=2 --strategy replicated --steps 3 --json --quiet \
  --rule-option precision=$precision
exits 0
member_is precision_why --rule-option
member_is 'strategies 0 plan_digest' "$plan"
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --strategy balanced --steps 1 --quiet
exits 0
prints "precision: $precision (auto: "

# Exact gradients: one digest for every mesh. Random ones: one for every dp.
run() {
  # shellcheck disable=SC2086
  canzona $small --strategy balanced --steps 3 --json --quiet "$@"
  exits 0
  found=$(member 'strategies 0 digest')
  checks=$((checks + 1))
}
same() {
  run "$@"
  [ "$found" = "$wanted" ] || fail "digest $found, expected $wanted"
}
differs() {
  run "$@"
  [ "$found" != "$wanted" ] || fail "digest $found, expected another"
}
wanted=$digest
for mesh in dp=1 dp=4 tp=2; do same --mesh $mesh; done
run --mesh dp=2 --gradients random
wanted=$found
same --mesh dp=2,tp=2 --gradients random
same --mesh dp=2 --gradients random --serial --check-collectives \
  --bucket-elements 1000
differs --mesh dp=4 --gradients random

# Sending once per node gives the same bits with fewer bytes between nodes, as
# predicted.
for wire in fp32 bf16; do
  run --mesh dp=4 --gradients random --ranks-per-node 2 --wire $wire
  wanted=$found
  direct=$(member 'strategies 0 slow_bytes_sent_max')
  for how in node auto; do
    same --mesh dp=4 --gradients random --ranks-per-node 2 --wire $wire \
      --collectives $how
    member_is 'strategies 0 collectives' node
    for i in bytes slow_bytes; do
      member_is "strategies 0 ${i}_sent_max" \
        "$(member "strategies 0 ${i}_predicted_max")"
    done
    checks=$((checks + 1))
    [ "$(member 'strategies 0 slow_bytes_sent_max')" -lt "$direct" ] ||
      fail 'no fewer bytes between nodes'
  done
done
refuses 'has 3, 1 ranks on its nodes of 3, not the same power of two' -- \
  bench step --model small.json --mesh dp=4 --ranks-per-node 3 \
  --strategy balanced --collectives node
run --mesh dp=2 --gradients random
wanted=$found
differs --mesh dp=2 --gradients random --clip 0.01
differs --mesh dp=2 --gradients random --wire bf16

# Text, with the audit; every output with a modelled link says so.
# shellcheck disable=SC2086
canzona $small --mesh dp=2,tp=2 --steps 2 --audit \
  --link intra=1GB/s,inter=0.5GB/s,latency=20us --ranks-per-node 2
exits 0
prints 'Audit' 'layers.0.up' 'muon' 'adamw' 'who keeps it' 'modelled link' \
  'speed-up' 'predicted' 'same parameters'
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'
# shellcheck disable=SC2086
canzona $small --mesh tp=2 --strategy balanced --comm-ratio 0.5 --json \
  --audit --trace trace.json
exits 0
is_json
says 'wrote trace trace.json'
prints 'modelled link'
member_is measured_first balanced
has_member 'link intra_bytes_per_second'
has_member 'strategies 0 audit 0 owners 0'
checks=$((checks + 1))
grep -q traceEvents trace.json || fail 'no trace'
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --strategy balanced \
  --link intra=900GB/s,inter=900GB/s
exits 0
says 'faster than a quarter'

# Refreshes: mean and worst over a period, and a word where it is not covered.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --rule soap --rule-option precondition_frequency=2 \
  --strategy balanced --steps 5 --json --quiet
exits 0
member_is period 2
member_is covers_period ON
has_member 'strategies 0 step_seconds_mean'
has_member 'strategies 0 step_seconds_worst'
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --rule soap --strategy balanced --steps 2
exits 0
says 'do not cover'

# Presets are scaled down, for the planner, too.
canzona plan --model qwen3-1.7b --scale 1/8 --layers 2 --mesh dp=2 --json
exits 0
is_json
refuses '1/3' '1024' -- plan --model qwen3-0.6b --scale 1/3 --mesh dp=2
refuses '28 layers' -- plan --model qwen3-0.6b --layers 29 --mesh dp=2
refuses '--scale' -- plan --model qwen3-0.6b --scale 8 --mesh dp=2

# `auto` is the default, as for train.
canzona $small --mesh dp=2 --steps 3 --json \
  --quiet --transport auto
exits 0
member_is transport thread

# Mistakes.
refuses '--mesh' -- bench step --model small.json
refuses "'blanced'" "'balanced'" -- bench step --model small.json --mesh dp=2 \
  --strategy blanced
refuses "'carrier'" thread mpi -- bench step --model small.json --mesh dp=2 \
  --transport carrier
refuses "'exakt'" "'exact'" -- bench step --model small.json --mesh dp=2 \
  --gradients exakt
refuses '--warmup 3' -- bench step --model small.json --mesh dp=2 --steps 3 \
  --warmup 3
refuses --warmup "'-2'" -- bench step --model small.json --mesh dp=2 --warmup -2
refuses --deadline "'1e300s'" 'up to 1e9s' -- bench step --model small.json \
  --mesh dp=2 --deadline 1e300s
refuses '--steps 0' -- bench step --model small.json --mesh dp=2 --steps 0
refuses '--deadline' -- bench step --model small.json --mesh dp=2 --deadline 0s
refuses 'one strategy' -- bench step --model small.json --mesh dp=2 \
  --trace t.json
refuses 'sends nothing' -- bench step --model small.json --mesh dp=1 \
  --strategy balanced --comm-ratio 1
refuses 'inter' -- bench step --model small.json --mesh dp=2 \
  --link intra=1GB/s
refuses '--compute products' '--device cuda' -- bench step --model small.json \
  --mesh dp=2 --compute products
refuses '--tokens is only valid with' -- bench step --model small.json --mesh dp=2 \
  --tokens 64
refuses '--compute' 'products' -- bench step --model small.json --mesh dp=2 \
  --compute product

# If a link is so slow that a deadline passes, the error names the missing
# ranks.
canzona bench step --model small.json --mesh dp=2 --strategy balanced \
  --compute 0 --link intra=1KB/s,inter=1KB/s --deadline 300ms \
  --flight-record flights.jsonl
exits 4
says 'rank'
checks=$((checks + 1))
grep -q '"state"' flights.jsonl || fail 'no flight record'
for flag in --flight-record --trace; do
  refuses "$flag" 'no/such/file' -- bench step --model small.json --mesh dp=2 \
    --strategy balanced $flag no/such/file
done

canzona bench step --help
exits 0
prints 'Examples:' '--comm-ratio' 'Strategies:' 'modelled link'
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'

# NCCL: a process for each GPU, and options that it alone has.
# shellcheck disable=SC2086
refuses 'expected --device cuda' -- $small --mesh dp=1 --transport nccl
# shellcheck disable=SC2086
refuses 'this process was not started as a rank' -- $small --mesh dp=1 \
  --transport nccl --device cuda
# shellcheck disable=SC2086
refuses '--share-gpu is only valid with --transport nccl' -- $small --mesh dp=1 \
  --share-gpu
refuses '--split-gpu is only valid with --device cuda and --transport thread' \
  -- $small --mesh dp=1 --split-gpu
# shellcheck disable=SC2086
refuses 'expected auto, thread, mpi, tcp or nccl' -- $small --mesh dp=1 \
  --transport ncl
export CANZONA_RANK=0 CANZONA_NUM_RANKS=1 CANZONA_RENDEZVOUS=127.0.0.1:1
canzona doctor --json
if [ "$(member nccl | cut -c 1-18)" = 'this build has no ' ]; then
  # shellcheck disable=SC2086
  refuses 'nvidia-nccl-cu13' -- $small --mesh dp=1 --device cuda
  says '2.27.7'
fi
unset CANZONA_RANK CANZONA_NUM_RANKS CANZONA_RENDEZVOUS

# Training on a GPU: what it does not have, and what only it has.
refuses 'expected cpu, cuda' -- train --device gpu
refuses 'mesh' 'expected dp alone' -- train --device cuda --preset small --mesh tp=2 --dry-run
refuses 'model.experts' 'experts cannot be trained' -- train --device cuda --preset moe-tiny --dry-run
refuses 'zero.sizes' 'auto' -- train --device cuda --preset small --zero auto --dry-run
refuses 'QK-clip' -- train --device cuda --preset small --dry-run \
  --set qk_clip.tau=100 --set model.qk_norm=off
refuses 'batch.micro' 'a number with device cpu' -- train --micro-batch auto
refuses 'transport' 'auto, thread or nccl' -- train --device cuda --transport tcp --dry-run
refuses 'attention' 'device cuda' -- train --attention plain
refuses 'transport' 'device cuda' -- train --transport nccl
canzona train --device cuda --preset small --dry-run --json
exits 0
prints '"device": "cuda"' '"precision": "fp16"'

# Every operation between ranks, timed.
canzona bench collectives --ranks 3 --bytes 1MB --rounds 1 --json --quiet
exits 0
is_json
is_empty err
member_is transport thread
member_is ranks 3
member_is bytes 1000000
member_is 'collectives 0 operation' all_gather_v
member_is 'collectives 0 sent_bytes' 666664
for name in operation of sent_bytes seconds bytes_per_second; do
  has_member "collectives 10 $name"
done
has_member copy_seconds
canzona bench collectives --ranks 2 --bytes 1MB --rounds 1
exits 0
prints reduce_scatter_v 'bf16 on the wire' 'of a copy'
refuses '--bytes 60: expected at least 64' -- bench collectives --ranks 4 \
  --bytes 60
refuses '--ranks 0' -- bench collectives --ranks 0
refuses 'expected cpu or cuda' -- bench collectives --device gpu
# A cap that no strategy keeps is an error, as for plan.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --strategy balanced --memory-cap 1KiB --steps 1 --quiet
exits 2
says 'no strategy could be run' 'balanced' 'memory'

# Ranks that share matrices give the digests of ranks that own them.
shared="bench step --model qwen3-0.6b --fused --scale 1/8 --layers 1 --mesh tp=4
  --rule-option strips=4 --strategy balanced --steps 2 --iterations 0
  --compute 0 --json --quiet --cost slow.json"
canzona plan --model qwen3-0.6b --fused --scale 1/8 --layers 1 --mesh tp=4 \
  --rule-option strips=4 --rule-option device=cpu -o slow_plan.json --quiet
exits 0
computes calibrate --for slow_plan.json --rounds 1 -o slow.json --quiet
exits 0
# shellcheck disable=SC2086
canzona $shared --teams off
exits 0
whole=$(member 'strategies 0 digest')/$(member 'strategies 0 state_digest')
# shellcheck disable=SC2086
canzona $shared --teams 4
exits 0
checks=$((checks + 1))
[ "$whole" = "$(member 'strategies 0 digest')/$(member 'strategies 0 state_digest')" ] ||
  fail 'teams give other digests'

# Plans say how many matrices are shared.
has_member 'strategies 0 teams 4'
# shellcheck disable=SC2046,SC2086
canzona $(echo $shared | sed 's/--json//; s/balanced/contiguous,balanced/') --teams 2
exits 0
prints 'who shares them' 'balanced: teams' '--teams 2: strategy contiguous'

finish
