# canzona simulate predicts an iteration on a described cluster.
. "$(dirname "$0")/words.sh"

model="--model qwen3-0.6b --layers 4"

# cluster LEVELS [MORE]
cluster() {
  printf '{"format": "canzona.cluster", "version": 1, "name": "two nodes",
    "card": {"name": "a card", "tflops": 100}, "levels": [%s]%s}' \
    "$1" "$2" >c.json
}
node='{"name": "node", "ranks": 4, "bytes_per_second": 1e11}'
all='{"name": "all", "ranks": 64, "bytes_per_second": 1e10,
      "latency_seconds": 1e-5, "oversubscription": 2}'
cluster "$node, $all" ', "spread": {"compute": 0.02, "length": 0.1}'

for mesh in dp=8 dp=4,tp=2 dp=2,pp=2,tp=2; do
  # shellcheck disable=SC2086
  canzona simulate $model --mesh $mesh --cluster c.json --html page.html
  exits 0
  prints 'two nodes' '(predicted)' 'Links' 'oversubscribed' 'the slowest of 8'
  grep -q '"report":"cluster"' page.html || fail 'the page has no report'
  # shellcheck disable=SC2086
  canzona simulate $model --mesh $mesh --cluster c.json --json --quiet
  exits 0
  is_json
  has_member 'predicted iteration_seconds'
  has_member 'predicted step_seconds'
  has_member 'predicted kinds 0 waited_step_seconds'
done

# Rules, strategies, sizes and ways of collectives.
for more in '--rule adamw' '--rule soap --strategy contiguous' \
  '--zero hier:4 --micro-batches 4' '--collectives node' '--collectives ring' \
  '--overlap none --tokens 1024' '--collectives auto'; do
  # shellcheck disable=SC2086
  canzona simulate $model --mesh dp=8 --cluster c.json $more --quiet
  exits 0
  prints '(predicted)'
done
# shellcheck disable=SC2086
canzona simulate $model --mesh dp=8 --cluster c.json --collectives ring --json
member_is 'cluster collectives' ring

# Mistakes.
bad() { # shellcheck disable=SC2086
  refuses "$@" -- simulate $model --mesh dp=8 --cluster c.json
}
cluster '{"name": "node", "ranks": 4, "bytes_per_second": 1e9},
         {"name": "all", "ranks": 10, "bytes_per_second": 1e9}'
bad "'all'" '10 ranks' 'not a multiple of the 4'
cluster '{"name": "node", "ranks": 8, "bytes_per_second": 0}'
bad 'levels[0]' 'bytes_per_second is 0'
cluster '{"name": "node", "ranks": 8, "bytes_per_second": -1}'
bad 'bytes_per_second is -1'
cluster '{"name": "node", "ranks": 8}'
bad 'levels[0]' 'bytes_per_second'
cluster '{"name": "node", "ranks": 8, "bytes_per_second": 1, "speed": 2}'
bad "'speed'"
cluster "$node" ', "extra": 1'
bad "'extra'"
cluster "$node"
bad '8 ranks' 'has 4'
printf 'no JSON' >c.json
bad 'c.json'
cluster "$node, $all"
# shellcheck disable=SC2086
{
  refuses "'nowhere.json'" -- simulate $model --mesh dp=8 --cluster nowhere.json
  refuses '--cluster is required' -- simulate $model --mesh dp=8
  refuses '8 to 16384' -- simulate $model --mesh dp=4 --cluster c.json
  refuses '--collectives' "'rings'" "'ring'" -- \
    simulate $model --mesh dp=8 --cluster c.json --collectives rings
  refuses '--zero auto' 'canzona plan' -- \
    simulate $model --mesh dp=8 --cluster c.json --zero auto
  refuses "--link cannot be combined with --cluster" -- \
    simulate $model --mesh dp=8 --cluster c.json --link intra=1GB/s
}
printf '{"format": "canzona.cluster", "version": 1, "name": "x", "card":
  {"name": "y", "tflops": 1, "cost_table": "gone.json"}, "levels": [%s]}' \
  "$node, $all" >c.json
bad 'gone.json'

# Teams shorten a step in which one rank would compute large matrices alone.
shared="--model qwen3-32b --layers 4 --fused --mesh dp=2,tp=8 --cluster c.json
  --rule-option device=cpu --rule-option strips=8"
cluster '{"name": "node", "ranks": 8, "bytes_per_second": 4.5e11},
  {"name": "all", "ranks": 64, "bytes_per_second": 5e10}'
# shellcheck disable=SC2086
canzona simulate $shared --json --quiet
exits 0
whole=$(member 'predicted step_seconds')
# shellcheck disable=SC2086
canzona simulate $shared --teams auto --json --quiet
exits 0
is_json
has_member 'teams 8'
checks=$((checks + 1))
printf '%s\n' "$(member 'predicted step_seconds') $whole" |
  awk '{exit !($1 < 0.8 * $2)}' ||
  fail "a step of $(member 'predicted step_seconds') s with teams, $whole s without"
# shellcheck disable=SC2086
canzona simulate $shared --teams auto
exits 0
prints 'teams' 'matrices are shared'
# shellcheck disable=SC2086
canzona simulate $model --mesh dp=8 --cluster c.json --teams auto
exits 0
prints 'teams' 'none: homes on'
# shellcheck disable=SC2086
refuses '--teams 2' 'have a single rank' -- \
  simulate $model --mesh dp=8 --cluster c.json --teams 2

# A GPU by name gives rates, links, nodes and a memory cap.
# shellcheck disable=SC2086
for verb in plan compare simulate; do
  canzona $verb $model --mesh dp=16 --gpu h100-80
  exits 0
  prints 'inputs: h100-80: 989 Tflop/s × 0.5 in products' '450 and 50'
  canzona $verb $model --mesh dp=16 --gpu h100-80 --tflops 600 \
    --link inter=25GB/s --nodes 4 --json --quiet
  exits 0
  is_json
done
# shellcheck disable=SC2086
canzona plan $model --mesh dp=16 --gpu h100-80 --tflops 600 \
  --link inter=25GB/s --nodes 4 --json --quiet
member_is 'options ranks_per_node' 4
member_is inputs 'h100-80: 600 Tflop/s given, of 989; links 450 and 25 GB/s given; rules at 600 Tflop/s, not measured'
member_is 'counted_memory cap_bytes' $((75 * 1024 * 1024 * 1024))
# shellcheck disable=SC2086
canzona plan $model --mesh dp=16 --gpu h100-80 --memory-cap 0 --json --quiet
member_is 'counted_memory cap_bytes' 0
# shellcheck disable=SC2086
canzona plan $model --mesh pp=2,cp=2,dp=4 --rule soap --gpu b200
prints 'known to be off: soap:' 'known to be off: cp:' 'known to be off: pp:'
canzona plan --help
prints 'h100-80 ' 'mi300x '

for verb in plan compare simulate; do
  # shellcheck disable=SC2086
  refuses "--gpu 'h100'" "did you mean 'h100-80'?" -- \
    $verb $model --mesh dp=16 --gpu h100
  # shellcheck disable=SC2086
  refuses '--nodes 3' 'dp=16' '16 ranks' -- \
    $verb $model --mesh dp=16 --gpu h200 --nodes 3
  # shellcheck disable=SC2086
  refuses '--nodes 4 of --ranks-per-node 8 have 32 ranks' 'dp=16' -- \
    $verb $model --mesh dp=16 --gpu h200 --nodes 4 --ranks-per-node 8
done
# shellcheck disable=SC2086
refuses '--gpu cannot be combined with --cluster' -- \
  simulate $model --mesh dp=16 --gpu h200 --cluster c.json
finish
