# Plans written, read, explained, broken.
. "$(dirname "$0")/words.sh"

canzona plan --model qwen3-0.6b --fused --split qkv --mesh dp=4,tp=2 \
  -o plan.json --html report.html
exits 0
checks=$((checks + 1))
[ -s plan.json ] && [ -s report.html ] || fail 'files were not written'
cp plan.json first.json
canzona plan --model qwen3-0.6b --fused --split qkv --mesh dp=4,tp=2 \
  -o plan.json
checks=$((checks + 1))
cmp -s plan.json first.json || fail 'the same input gave another plan'

# A file that is read is not written, nor one file twice; devices may be.
canzona plan --storage plan.json --mesh dp=2 -o ./plan.json
exits 2
says "--output './plan.json': belongs to --storage 'plan.json'"
canzona plan --model qwen3-0.6b --mesh dp=2 -o both.json --html ./both.json
exits 2
says "--output 'both.json': belongs to --html './both.json'"
canzona plan --model qwen3-0.6b --mesh dp=2 -o /dev/null --html /dev/null
exits 0
checks=$((checks + 1))
cmp -s plan.json first.json || fail 'the plan has changed'

canzona validate plan.json
exits 0
prints 'sound'
canzona validate plan.json --json
exits 0
is_json
member_is sound ON

# One digit changed: listed, exit status 1. (cmake prints true as ON.)
digit=$(grep -o '"digest": *"[0-9a-f]*"' plan.json | tail -c 3 | head -c 1)
if [ "$digit" = 0 ]; then other=1; else other=0; fi
sed "s/\(\"digest\": *\"[0-9a-f]*\)[0-9a-f]\"/\1$other\"/" plan.json >broken.json
canzona validate broken.json
exits 1
prints 'not sound' 'digest'
canzona validate broken.json --json
exits 1
is_json
member_is sound OFF
canzona explain broken.json
exits 1
is_empty out
says 'digest'
sed 's/"tp": *2/"tp": 4/' plan.json >broken.json
canzona validate broken.json
exits 1
# A file that claims to be a plan but is too broken to be read to its end.
sed 's/"dp": *4/"dp": 0/' plan.json >broken.json
canzona validate broken.json
exits 1
prints 'not sound' 'dp'

# A plan rewritten by another program: spaces, order and spelling of numbers
# differ, values do not.
cat >again.cmake <<'END'
file(READ plan.json text)
string(JSON text SET "${text}" version 3)
file(WRITE again.json "${text}")
END
"$cmake" -P again.cmake
checks=$((checks + 1))
! cmp -s plan.json again.json || fail 'it was not written anew'
canzona validate again.json
exits 0
prints 'sound'
canzona explain again.json --rank 5
exits 0
# A changed value is reported as two different digests.
sed 's/"bucket_elements" *: *400000000/"bucket_elements": 400000001/' again.json \
  >broken.json
canzona validate broken.json
exits 1
prints 'digest: the file has'
checks=$((checks + 1))
says_digest=$(grep -o 'the file has [0-9a-f]*' out | cut -d' ' -f4)
gives_digest=$(grep -o 'contents have [0-9a-f]*' out | cut -d' ' -f3)
[ -n "$says_digest" ] && [ "$says_digest" != "$gives_digest" ] || fail 'two equal digests'
# Values beside the plan are told by their place.
sed 's/"ticks":\[/"ticks":[[1,1,1,1],/' plan.json >broken.json
canzona validate broken.json
exits 1
prints 'not sound' '/request/cost/ticks'
lacks out 'digest: the file has'

# Modules are counted by layers; a plan with slices has room for no more.
canzona plan --model qwen3-0.6b --layers 2 --mesh dp=4 --zero hier:2 \
  -o slices.json --quiet
exits 0
sed 's/"layers":2/"layers":1/' slices.json >broken.json
canzona validate broken.json
exits 1
prints 'not sound' "lies in layer 1, but the model's 'layers' is 1"
canzona explain broken.json
exits 1
is_empty out
sed 's/"ranks_per_node":8/"ranks_per_node":2147483647/' slices.json >broken.json
canzona validate broken.json
exits 1
prints 'not sound' 'ranks_per_node'

# Files that are no plan at all are refused.
: >empty.json
echo '{"plan": 1}' >other.json
head -c 1000 plan.json >half.json
printf '\377\376' >bytes.json
for file in empty other half bytes; do
  refuses "$file.json" -- validate "$file.json"
  refuses "$file.json" -- explain "$file.json"
done
# A file that claims to be a plan and is not one is unsound.
echo '{"format": "canzona.plan"}' >claims.json
canzona validate claims.json
exits 1
prints 'not sound' 'claims.json: '
canzona explain claims.json
exits 1
refuses 'nowhere.json' -- validate nowhere.json
refuses 'nowhere.json' -- explain nowhere.json

# Explanations.
canzona explain plan.json
exits 0
prints 'Balance' 'Memory per rank'
for selector in '' '--rank 5'; do
  # shellcheck disable=SC2086
  canzona explain plan.json $selector --json --quiet
  exits 0
  is_json
  is_empty err
done
canzona explain plan.json --rank 5
prints 'Rank 5 of 8' 'Computes' 'Memory' 'gather'

# Every matrix can be explained by its name; names come from the rank view.
canzona explain plan.json --rank 0 --json
name=$(member 'matrices 0 name')
canzona explain plan.json --matrix "$name"
exits 0
prints "$name" 'Why' 'rank 0' 'as planned' 'What moves' 'reduce-scatter' \
  'lower bound'
canzona explain plan.json --matrix "$name" --json
exits 0
is_json
member_is 'matrices 0 name' "$name"
member_is 'matrices 0 owners 0' 0
canzona explain plan.json --matrix "${name}x"
exits 2
says '--matrix' "did you mean"
refuses '--rank' '8' -- explain plan.json --rank 8
refuses '--rank' '8' -- explain plan.json --rank 8 --html unasked.html
not_there unasked.html
refuses '--rank' -- explain plan.json --rank -1
refuses 'at most one' -- explain plan.json --rank 1 --audit

# Every strategy explains itself.
for strategy in replicated layerwise start_offset contiguous megatron; do
  canzona plan --model qwen3-0.6b --mesh dp=4,tp=2 --strategy $strategy \
    -o plan.json --quiet
  exits 0
  canzona explain plan.json --matrix model.layers.3.mlp.up_proj.weight
  exits 0
  prints "$strategy: " 'What moves'
done

# One matrix on 512 ranks, and a tensor of 2^40 elements.
# A plan for CPUs asks no machine: auto is bf16, and the plan that of bf16.
for precision in auto bf16; do
  canzona plan --model qwen3-0.6b --mesh dp=2 --rule-option device=cpu \
    --rule-option precision=$precision -o cpu_$precision.json
  exits 0
done
checks=$((checks + 1))
cmp -s cpu_auto.json cpu_bf16.json || fail 'auto is another plan than bf16'
canzona plan --model qwen3-0.6b --mesh dp=2 --rule-option device=cpu
exits 0
says 'precision=auto: bf16' 'without checking this machine'
prints 'precision=bf16'
canzona compare --model qwen3-0.6b --mesh dp=2 --rule-option device=cpu
exits 0
says 'precision=auto: bf16'
canzona plan --model qwen3-0.6b --mesh dp=2 --json
exits 0
lacks err 'precision=auto'
member_is 'rule options precision' fp16

echo '[{"name": "w", "shape": [64, 64]}]' >one.json
canzona plan --model one.json --mesh dp=512
exits 0
prints '511 ranks idle'
canzona compare --model one.json --mesh dp=512 --quiet
exits 0
echo '[{"name": "w", "shape": [1073741824, 1024], "tp": "rows"}]' >huge.json
canzona plan --model huge.json --mesh dp=2
exits 0
# `capacity` refuses it by name; the other strategies are compared all the same.
canzona compare --model huge.json --mesh dp=2,tp=2 --json --quiet
exits 0
is_json
prints '"error"' "'w'" '"makespan_over_bound"'
refuses "'w'" -- plan --model huge.json --mesh dp=2,tp=2 --strategy contiguous
refuses "'w'" -- compare --model huge.json --mesh dp=2,tp=2 \
  --strategies contiguous
# As a square matrix it has more flops than fit 64 bits.
echo '[{"name": "w", "shape": [1048576, 1048576]}]' >huge.json
refuses '1048576' -- plan --model huge.json --mesh dp=2

# Packed experts have three dimensions and become one tensor each; other
# tensors of three dimensions do not count as matrices.
echo '[{"name": "conv", "shape": [4, 4, 4]}, {"name": "w", "shape": [8, 8]}]' \
  >deep.json
canzona plan --model deep.json --mesh dp=2
checks=$((checks + 1))
[ "$status" -eq 0 ] || [ "$status" -eq 2 ] || fail 'three dimensions'

# A cap that cannot be met: violations are listed, nothing is written.
rm -f capped.json
canzona plan --model qwen3-0.6b --mesh dp=2 --memory-cap 1MiB \
  --activations none -o capped.json
exits 2
is_empty out
says '--memory-cap 1.00 MiB' 'needs more' 'memory'
checks=$((checks + 1))
! grep -q 'fails validation' err || fail 'a cap is no fault of the plan'
checks=$((checks + 1))
[ ! -e capped.json ] || fail 'a plan above its cap was written'

# All verbs give the same exit status.
canzona compare --model qwen3-0.6b --mesh dp=2 --memory-cap 1MiB \
  --activations none
exits 2
is_empty out
says '--memory-cap 1.00 MiB: no strategy fits; the nearest is' 'try --zero all' \
  'a larger tp'
checks=$((checks + 1))
[ "$(grep -c 'need more memory' err)" = 1 ] || fail 'every strategy is told of'
for json in '' --json; do
  # shellcheck disable=SC2086
  canzona compare --model qwen3-0.6b --mesh dp=2 --memory-cap 1MiB \
    --activations none --zero all $json
  exits 2
  prints 'no layout fits in'
  says 'no layout fits in'
done

# Activations count against the cap, unless they are left out.
refuses '--memory-cap' 'activations alone take' '--activations none' \
  -- plan --model qwen3-0.6b --mesh dp=2 --memory-cap 1GB
cap='plan --model qwen3-0.6b --mesh dp=2 --memory-cap'
# shellcheck disable=SC2086
canzona $cap 8GB
exits 2
says 'need more memory than the cap of' 'activations' \
  'try --zero auto, which shards gradients and parameters, --recompute'
# shellcheck disable=SC2086
canzona $cap 8GB --recompute
exits 0
prints 'activations' 'recomputed; activations=none' '4096 tokens' \
  'is within the cap of'
# shellcheck disable=SC2086
canzona $cap 8GB --tokens 0
exits 0
prints 'activations: not counted'
# shellcheck disable=SC2086
canzona $cap 20GB --tokens 1024 --activations fp32 --gradients bf16 --json
exits 0
is_json
member_is 'counted_memory gradients' bf16
member_is 'counted_memory activations tokens' 1024
member_is 'counted_memory activations dtype' fp32
member_is 'counted_memory cap_bytes' 20000000000
sum=0
for kind in parameters gradients master states buffers pools activations; do
  sum=$((sum + $(member "counted_memory fullest_rank $kind")))
done
member_is 'counted_memory fullest_rank total' "$sum"
canzona compare --model qwen3-0.6b --mesh dp=2 --json --quiet
exits 0
has_member 'strategies 0 counted_memory fullest_rank activations'
canzona compare --model qwen3-0.6b --mesh dp=2 --quiet
exits 0
prints 'activations: estimated for 4096 tokens' 'Memory of the fullest rank'
refuses '--gradients' "'fp8'" 'bf16' -- plan --model one.json --mesh dp=1 \
  --gradients fp8
refuses '--gradients' "'none': expected bf16 or fp32" -- plan \
  --model one.json --mesh dp=1 --gradients none
lacks err 'did you mean'
refuses '--activations' "'int4'" 'bf16, fp32 or none' -- plan \
  --model one.json --mesh dp=1 --activations int4
# Experts per token come from the model; weights alone do not say.
canzona plan --model mixtral-8x7b --mesh dp=8,ep=8 --json
exits 0
member_is 'counted_memory activations experts_per_token' 2
echo '[{"name": "layers.0.mlp.experts.0.up_proj.weight", "shape": [8, 8]},
  {"name": "layers.0.mlp.experts.1.up_proj.weight", "shape": [8, 8]}]' \
  >experts.json
canzona plan --model experts.json --mesh dp=1
exits 0
prints 'assumed'
# Activations are not stored in plans.
canzona plan --model qwen3-0.6b --mesh dp=2 -o with.json --quiet
canzona plan --model qwen3-0.6b --mesh dp=2 -o without.json --activations none \
  --quiet
checks=$((checks + 1))
cmp -s with.json without.json || fail 'activations changed the plan'

# Patterns: the later one wins.
canzona plan --model one.json --mesh dp=1 --adamw 'w' --matrix-rule 'w' --json
member_is num_matrices 1
canzona plan --model one.json --mesh dp=1 --matrix-rule 'w' --adamw 'w' --json
member_is num_matrices 0

# One thing is singular.
canzona plan --model qwen3-0.6b --layers 1 --mesh dp=2 --rule soap \
  --rule-option precondition_frequency=1 -o one.json
exits 0
canzona explain one.json --matrix model.layers.0.mlp.up_proj.weight
exits 0
prints 'every step, phase 0'

# A million ranks are planned, a million matrices on as many are refused at once.
cat >huge.json <<'END'
{"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 64,
 "num_hidden_layers": 1300, "vocab_size": 100, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 16, "num_experts": 256,
 "moe_intermediate_size": 32, "num_experts_per_tok": 2}
END
for verb in plan compare; do
  refuses '--mesh dp=1048576' '1003600 matrices' 'at most 4279 ranks' \
    '--layers 5' -- $verb --model huge.json --mesh dp=1048576
done
finish
