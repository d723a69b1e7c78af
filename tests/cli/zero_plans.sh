# canzona plan --zero and compare --zero.
. "$(dirname "$0")/words.sh"

model="--model qwen3-0.6b --layers 4 --mesh dp=8 --ranks-per-node 4"

# A plan with slices and replicas is made, shown, validated and explained.
for zero in hier:4 replica:2 zero3 z1=8,z2=4,z3=2; do
  # shellcheck disable=SC2086
  canzona plan $model --zero $zero -o plan.json --html plan.html --quiet
  exits 0
  prints 'Hierarchical ZeRO' 'pools' 'gather parameters' 'scatter gradients'
  canzona validate plan.json
  exits 0
  prints sound
  canzona explain plan.json
  exits 0
  prints 'Hierarchical ZeRO'
  canzona explain plan.json --rank 5
  exits 0
  prints 'Rank 5 of 8' 'pools'
  grep -q 'modules gathered, per micro-batch' out && gathers=yes || gathers=no
  prints 'activations: estimated for 4096 tokens'
  canzona explain plan.json --rank 5 --json
  is_json
  member_is activations_counted ON
  has_member 'mean_memory total'
  has_member 'mean_memory parameters'
  has_member 'mean_memory staging'
  if [ $gathers = yes ]; then
    has_member 'bytes_per_micro_batch modules_gathered sent_intra'
    has_member 'bytes_per_micro_batch gradients received_inter'
  fi
  canzona explain plan.json --matrix model.layers.1.mlp.up_proj.weight
  exits 0
  prints 'What moves' 'stored on'
done
# shellcheck disable=SC2086
canzona plan $model --zero replica:2 --json --quiet
is_json
member_is 'zero sizes z1' 2
member_is 'zero replicas' 4
member_is 'zero z3_crosses_nodes' OFF
has_member 'zero operations gather sent_intra_max'
# shellcheck disable=SC2086
canzona plan $model --zero hier:8 --quiet
prints 'z3 groups of 8 cross nodes'
# shellcheck disable=SC2086
canzona plan $model --zero replica:4 --quiet
prints 'z3 groups of 4 lie inside a node' 'the step is computed 2 times'

# Nothing is said of ZeRO-1.
# shellcheck disable=SC2086
canzona plan $model --zero zero1 --quiet
exits 0
lacks out 'Hierarchical ZeRO'
cp out plain
# shellcheck disable=SC2086
canzona plan $model --quiet
cmp -s out plain || fail 'zero1 is not the usual plan'

# But of ZeRO-1 that sends once per node: in the plan, its views and its file.
# shellcheck disable=SC2086
canzona plan $model --collectives node -o plan.json --html plan.html --quiet
exits 0
prints 'once per node: sums inside groups of 4, then across 2 nodes'
canzona validate plan.json
exits 0
prints sound
canzona explain plan.json --rank 5
exits 0
prints '4 ranks: 4, 5 … 7, inside a node' 'ranks 1, 5, across nodes' \
  'reduce-scatter' 'all-gather' 'staging of sums'
canzona explain plan.json --rank 5 --json
is_json
checks=$((checks + 1))
grep -q '"level": "across"' out || fail 'no level of an entry'
grep -q 'once per node' plan.html || fail 'the report has no word of it'
# shellcheck disable=SC2086
canzona compare $model --collectives auto
exits 0
says 'collectives: once per node, on nodes of 4 ranks'
# shellcheck disable=SC2086
canzona compare $model --collectives auto --zero 'zero1,zero3' --json --quiet
exits 0
is_json
canzona plan --model qwen3-0.6b --layers 1 --mesh dp=7 --ranks-per-node 4 \
  --collectives auto
exits 0
says 'collectives: direct: the group of 7 data-parallel ranks from rank 0 to 6 has 4, 3 ranks'
refuses 'has 4, 3 ranks on its nodes of 4, not the same power of two' -- plan \
  --model qwen3-0.6b --layers 1 --mesh dp=7 --ranks-per-node 4 --collectives node
refuses 'expected direct, node or auto' -- plan --model qwen3-0.6b --mesh dp=8 \
  --collectives nodes

# The table: memory falls with the sizes, the cap drops, auto takes the first.
# shellcheck disable=SC2086
canzona compare $model --zero all --memory-cap 3GB --html zero.html
exits 0
prints '8,8,8' 'over the cap' 'between them' 'of the cap'
checks=$((checks + 1))
[ -s zero.html ] || fail 'no page'
# shellcheck disable=SC2086
canzona compare $model --zero all --memory-cap 3GB --json --quiet
is_json
z1=$(member 'choice z1') z2=$(member 'choice z2') z3=$(member 'choice z3')
member_is 'sizes 0 zero z1' "$z1"
member_is 'sizes 0 fits' ON
has_member 'sizes 0 memory pools'
has_member 'sizes 29 words'
has_member 'sizes 0 tokens_per_second'
member_is global_batch_tokens 4194304
member_is 'activations tokens' 4096
member_is 'sizes 0 memory activations' "$(member 'activations bytes')"
# shellcheck disable=SC2086
canzona plan $model --zero auto --memory-cap 3GB --json
exits 0
says "zero: z1=$z1,z2=$z2,z3=$z3"
member_is 'zero sizes z3' "$z3"
# shellcheck disable=SC2086
canzona compare $model --zero 'zero1,hier:4;z1=8,z2=2,z3=4'
exits 0
prints '8,1,1' '8,4,4' '8,2,4'

# What `plan` prints as a rank's total is what `explain --rank` prints, with the
# same options.
for how in '' '--recompute --gradients bf16'; do
  # shellcheck disable=SC2086
  canzona plan $model --zero hier:4 -o plan.json --json --quiet $how
  total=$(member 'counted_memory fullest_rank total')
  most=0
  for rank in 0 1 2 3 4 5 6 7; do
    # shellcheck disable=SC2086
    canzona explain plan.json --rank $rank --json $how
    own=$(member counted_total)
    [ "$own" -le "$most" ] || most=$own
  done
  checks=$((checks + 1))
  [ "$most" = "$total" ] || fail "explain counts $most, plan $total"
done

# One global batch, whatever the mesh: more ranks have fewer micro-batches.
for mesh in dp=8 dp=2,tp=4 dp=4,pp=2; do
  canzona compare --model qwen3-0.6b --layers 4 --mesh $mesh --zero zero1 \
    --global-batch 65536 --json
  exits 0
  member_is global_batch_tokens 65536
done
# shellcheck disable=SC2086
canzona compare $model --zero zero1 --global-batch 65536 --tokens 3000
exits 0
prints '3 micro-batches of 2731 tokens' 'tokens/s'
# shellcheck disable=SC2086
canzona compare $model --zero zero1 --micro-batches 2
exits 0
prints '2 micro-batches of 4096 tokens' '65.5K tokens on all ranks'
# shellcheck disable=SC2086
refuses '--global-batch 7' 'at least 8' -- compare $model --zero zero1 --global-batch 7
# shellcheck disable=SC2086
refuses '--global-batch 65536' 'leave one out' -- plan $model \
  --global-batch 65536 --tokens 4096 --micro-batches 2

# Sizes are weighed on all cores, and progress is told on standard error alone.
# shellcheck disable=SC2086
canzona compare $model --zero all
says 'sizes of ZeRO: 1 of 30'
prints 'states over 8, gradients and parameters over 4'
# shellcheck disable=SC2086
canzona compare $model --zero all --quiet --json
is_empty err
if command -v taskset >/dev/null; then
  checks=$((checks + 1))
  # shellcheck disable=SC2086
  taskset -c 0 "$program" compare $model --zero all --quiet --json >one_core
  cmp -s out one_core || fail 'one core finds something else'
fi

# Sizes that cannot fit are not planned; where nothing fits, a cure is named
# that was tried.
# shellcheck disable=SC2086
canzona compare $model --zero 'none,zero1' --memory-cap 1GB --activations none
prints '≥ ' 'at least'
# shellcheck disable=SC2086
refuses 'no layout fits in 1.86 GiB' 'the nearest is dp=8 zero3' \
  'try recomputing activations' -- plan $model --zero auto --memory-cap 2GB
# shellcheck disable=SC2086
canzona compare $model --zero 'none,zero1' --memory-cap 1.8GB --recompute
exits 2
says 'no layout fits in' 'such as dp=4,tp=2'
# shellcheck disable=SC2086
refuses 'no layout fits in' 'try --memory-cap ' \
  -- plan $model --zero auto --memory-cap 600MB --tokens 512

# Few large tensors on many ranks: given buckets are warned of, and named as
# the reason; the planner's own are larger.
large='--model llama-3-70b --layers 16 --mesh dp=64 --recompute'
# shellcheck disable=SC2086
canzona plan $large --bucket-elements 400000000
exits 0
says 'warning: uneven buckets' '32.000 × its even share'
prints 'waiting for collectives' 'predicted step alone'
# shellcheck disable=SC2086
canzona plan $large -o large.json --json
exits 0
lacks err 'uneven'
checks=$((checks + 1))
case $(member 'dp bucket_bytes_max_over_even') in
1 | 1.*) ;;
*) fail 'uneven buckets that could be avoided' ;;
esac
canzona validate large.json
exits 0
# shellcheck disable=SC2086
canzona compare $large --zero 'zero1,zero2' --bucket-elements 400000000
exits 0
prints 'uneven buckets: one rank has 32x its share'

# Experts over ranks of their own.
moe='--model qwen3-30b-a3b --layers 2 --mesh dp=2,ep=4 --ranks-per-node 4'
# shellcheck disable=SC2086
canzona plan $moe --zero hier:4 --zero-experts zero3 -o moe.json --json
exits 0
is_json
canzona validate moe.json
exits 0
canzona explain moe.json --rank 5 --json
exits 0
is_json
canzona explain moe.json --rank 5
exits 0
prints 'dense tensors: 1 of 4 in group 1' 'experts of ep 1: 1 of 2 in group 0'
canzona explain moe.json --matrix model.layers.1.mlp.experts.100.down_proj.weight
exits 0
prints 'experts of ep 3' 'ranks 3, 7'
# shellcheck disable=SC2086
canzona plan $moe --zero auto --zero-experts auto --memory-cap 20GB
exits 0
says 'zero: z1=8'
# shellcheck disable=SC2086
canzona compare $moe --zero 'zero3,hier:4' --zero-experts all
exits 0
prints '8,8,8' '8,4,4' '2,2,2' 'the fastest of'

# Strategies beside sizes.
# shellcheck disable=SC2086
canzona compare $model --zero 'zero1,zero3' --strategies balanced,layerwise
exits 0
prints '8,1,1 balanced' '8,8,8 layerwise' 'the fastest of 4'
# shellcheck disable=SC2086
canzona plan $model --zero auto --strategy any
exits 0
says 'the fastest of'

# Refused.
# shellcheck disable=SC2086
refuses 'z1 = 3 does not divide' -- plan $model --zero z1=3
# shellcheck disable=SC2086
refuses 'no layout fits in' 'the nearest is' \
  -- plan $model --zero auto --memory-cap 100MB --activations none
# shellcheck disable=SC2086
refuses 'activations alone take' \
  -- plan $model --zero auto --memory-cap 100MB
# shellcheck disable=SC2086
refuses '--strategy any' 'requires --zero auto' -- plan $model --strategy any
# shellcheck disable=SC2086
refuses '--tokens' -- compare $model --zero all --tokens none
# shellcheck disable=SC2086
refuses '--message' -- plan $model --zero zero3 --message byte
# shellcheck disable=SC2086
refuses '--zero-experts' 'has no experts' \
  -- plan $model --zero zero3 --zero-experts zero3
# shellcheck disable=SC2086
refuses '--zero-experts auto' 'has no experts' \
  -- plan $model --zero auto --zero-experts auto
# shellcheck disable=SC2086
refuses '--zero-experts requires --zero' \
  -- compare $model --zero-experts zero3
refuses '--zero-experts: z1 = 4 does not divide the 2 data-parallel ranks' \
  -- plan --model qwen3-30b-a3b --mesh dp=2,ep=4 --zero-experts replica:4
finish
