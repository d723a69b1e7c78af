# canzona bench step runs plans with every size of ZeRO and every overlap.
. "$(dirname "$0")/words.sh"

computes bench step --zero all
exits 2
says '--model is required'

small_shapes
quick="bench step --model small.json --strategy balanced --compute 0.001
  --steps 2"

# The JSON has all figures for every plan; dp=4 has 12 triples.
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --ranks-per-node 2 --zero all --overlap all --json \
  --quiet
exits 0
is_json
is_empty err
member_is micro_batches 1
member_is digests_agree ON
digest=$(member 'strategies 0 digest')
states=$(member 'strategies 0 state_digest')
plans=$(grep -c '"overlap"' out)
checks=$((checks + 1))
[ "$plans" -gt 30 ] && [ $((plans % 3)) -eq 0 ] || fail "$plans plans"
i=0
while [ "$i" -lt "$plans" ]; do
  member_is "strategies $i digest" "$digest"
  member_is "strategies $i state_digest" "$states"
  member_is "strategies $i slow_bytes_sent_max" \
    "$(member "strategies $i slow_bytes_predicted_max")"
  member_is "strategies $i bytes_sent_max" \
    "$(member "strategies $i bytes_predicted_max")"
  member_is "strategies $i memory_bytes_max" \
    "$(member "strategies $i memory_predicted_max")"
  i=$((i + 1))
done
last_plan="strategies $((plans - 1))"
for name in 'zero z1' 'zero z2' 'zero z3' overlap iteration_seconds \
  iteration_seconds_spread predicted_iteration_seconds hidden_fraction \
  'pool_high_water bytes' compute_seconds waited_seconds links_busy_seconds \
  links_exposed_seconds covered_fraction link_seconds; do
  has_member "$last_plan $name"
done
member_is "$last_plan name" balanced
member_is "$last_plan overlap" background

# Sizes are separated by ';', overlaps by ','; micro-batches, tensor parallelism
# and other rules work.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2,tp=2 --zero 'zero3;z1=2,z2=1,z3=2;none' \
  --overlap none,background --micro-batches 3 --rule soap \
  --rule-option precondition_frequency=2 --message parameter --prefetch 1 \
  --json --quiet
exits 0
is_json
member_is rule soap
member_is micro_batches 3
member_is 'strategies 0 zero z3' 2
member_is 'strategies 0 overlap' none
member_is 'strategies 1 overlap' background
member_is 'strategies 2 zero z2' 1
member_is 'strategies 4 zero z1' 1
member_is 'strategies 5 bytes_sent_max' \
  "$(member 'strategies 5 bytes_predicted_max')"
member_is 'strategies 0 memory_bytes_max' \
  "$(member 'strategies 0 memory_predicted_max')"
# Random gradients agree where sums have the same order.
# shellcheck disable=SC2086
canzona $quick --mesh dp=6 --zero all --gradients random --iterations 0 --json \
  --quiet
exits 0
member_is digests_agree ON

# Over four micro-batches zero3 sends 24 times the bytes of hier:4 between nodes
# of four if 16 divides all rows.
printf '%s' '[{"name": "layers.0.up", "shape": [64, 64]},
  {"name": "layers.1.up", "shape": [64, 64]}, {"name": "norm", "shape": [64]}]' \
  >even.json
canzona bench step --model even.json --mesh dp=16 --ranks-per-node 4 \
  --zero 'zero3;hier:4' --micro-batches 4 --rule adamw --parameters fp32 \
  --strategy balanced --compute 0 --steps 1 --iterations 0 --json --quiet
exits 0
member_is 'strategies 0 slow_bytes_sent_max' \
  $((24 * $(member 'strategies 1 slow_bytes_sent_max')))

# A modelled link; text.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2 --zero 'zero1;zero3' --overlap all --comm-ratio 0.5
exits 0
prints 'modelled link' 'measured first: balanced, zero3' 'zero3 background' \
  'zero1 none' 'hidden' 'covered' 'none :' 'pools in use' 'must have the same'
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'

# A trace of one plan.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2 --zero zero3 --overlap main --micro-batches 2 \
  --trace trace.json
exits 0
says 'wrote trace trace.json'
prints 'zero3, overlap main, 2 micro-batches'
for text in '"gather modules"' '"scatter modules"' '"compute"' \
  '"gather slots"' '"scatter slots"' '"ph":"s"'; do
  checks=$((checks + 1))
  grep -qF "$text" trace.json || fail "the trace lacks $text"
done
# shellcheck disable=SC2086
refuses '--trace records one plan, not 3' -- $quick --mesh dp=2 --overlap all \
  --trace t.json

# Slices of ZeRO give homes several ranks: who shares a matrix is decided for
# each plan. Plans without such homes say why they are not run.
printf '%s' '{"model_type": "qwen3", "hidden_size": 64, "vocab_size": 256,
  "intermediate_size": 1024, "num_hidden_layers": 1, "head_dim": 16,
  "num_attention_heads": 4, "num_key_value_heads": 4}' >wide.json
shared="bench step --model wide.json --mesh dp=4 --rule soap
  --rule-option strips=8 --rule-option max_preconditioner_dim=64
  --strategy balanced --steps 1 --iterations 0
  --link intra=9000TB/s,inter=9000TB/s,latency=0us --json --quiet"
# shellcheck disable=SC2086
canzona $shared --zero 'zero1;zero3' --teams 4
exits 0
is_json
member_is 'strategies 0 zero z3' 1
checks=$((checks + 1))
member 'strategies 0 error' | grep -q 'have a single rank' ||
  fail 'zero1 does not say that homes have a single rank'
member_is measured_first 'balanced, zero3'
[ "$(member 'strategies 1 teams 4')" -gt 0 ] || fail 'zero3 has no teams of 4'

# Mistakes.
refuses "'blackground'" "'background'" -- bench step --model small.json \
  --mesh dp=2 --overlap blackground
refuses 'z1 = 3' -- bench step --model small.json --mesh dp=4 --zero z1=3
refuses "--zero ''" -- bench step --model small.json --mesh dp=2 --zero ';'
refuses '--micro-batches' -- bench step --model small.json --mesh dp=2 \
  --micro-batches 0
refuses '--comm-ratio' -- bench step --model small.json --mesh dp=2 \
  --comm-ratio x
# If nothing can be planned, nothing is measured.
refuses '--teams 2' 'have a single rank' -- bench step --model small.json \
  --mesh dp=2 --zero 'zero1;none' --strategy balanced --teams 2 --steps 1000000

finish
