# Standard output has the results and nothing else; all other output goes to
# standard error.
. "$(dirname "$0")/words.sh"

escape=$(printf '\033')
printf '%s' '[{"name": "layers.0.up", "shape": [64, 32], "tp": "rows"},
  {"name": "layers.1.up", "shape": [64, 32], "tp": "rows"},
  {"name": "norm", "shape": [32]}]' >small.json

# Help with examples, at every level.
canzona --help
exits 0
prints 'Usage: canzona VERB' 'Verbs:' 'Examples:'
is_empty err
for verb in plan compare explain validate models completion; do
  canzona "$verb" --help
  exits 0
  prints "Usage: canzona $verb" 'Examples:'
  is_empty err
done
# ... The matrix that is an example has its name in every plan of a decoder.
canzona explain --help
matrix=$(sed -n 's/.*--matrix \(model.layers[^ ]*\)$/\1/p' out)
for fused in '' --fused; do
  # shellcheck disable=SC2086
  canzona plan --model qwen3-0.6b $fused --mesh dp=2 -o whole.json
  exits 0
  canzona explain whole.json --matrix "$matrix"
  exits 0
done
# ... Layers that the trainer uses one after the other do not hide what follows.
canzona explain whole.json --rank 1
exits 0
prints 'the trainer uses embedding … ' 'reduce-scatter' 'gradients of'
lacks out 'the trainer uses layer 1 '
canzona plan --help
prints 'muon' 'shampoo' 'start_offset' '--newton-schulz'
canzona --version
exits 0
prints 'canzona ' 'commit ' 'build '

# JSON is pure.
for arguments in \
  'plan --model small.json --mesh dp=2,tp=2' \
  'plan --model small.json --mesh dp=2 --rule soap --phases 2' \
  'plan --model small.json --mesh dp=2 --rule adamw' \
  'compare --model small.json --mesh dp=2,tp=2' \
  'models' 'models qwen3-0.6b --fused' 'models small.json'; do
  # shellcheck disable=SC2086
  canzona $arguments --json --quiet
  exits 0
  is_json
  is_empty err
  lacks out "$escape"
done

# compare lists every strategy with its figures.
canzona compare --model qwen3-0.6b --fused --mesh dp=4,tp=2 --json --quiet
exits 0
member_is 'model' qwen3-0.6b
member_is 'mesh dp' 4
member_is 'mesh pp' 1
member_is 'world' 8
member_is 'num_matrices' 112
for key in dp tp tp_worst; do
  for figure in memory_max_over_mean shard_flops_max_over_mean \
    cost_max_over_mean; do
    prints "\"$figure\""
    [ -n "$(member "strategies 0 $key $figure")" ] || fail "no $key $figure"
  done
done
prints '"bucket_bytes_max_over_even"' '"j_dp"' '"j_comm"' \
  '"makespan_over_mean"' '"makespan_over_bound"' '"bound_over_mean"' \
  '"idle_ranks"' '"bytes_per_rank_max"' '"memory_per_rank_max"' \
  '"memory_per_rank_mean"' '"plan_seconds"'
for strategy in replicated layerwise start_offset contiguous megatron \
  balanced; do
  prints "\"name\": \"$strategy\""
done

# Text says what is nominal, and passes 100 columns only in tables: these are
# whole in a pipe, and fill a terminal that is wider.
canzona plan --model qwen3-0.6b --fused --mesh dp=4,tp=2
exits 0
prints 'nominal rate, no cost table' 'nominal:' 'predicted' '× bound' 'adamw' \
  'layers.*'
prints 'model.layers.*.post_attention_layernorm.weight'
fits_into() { # <columns>
  checks=$((checks + 1))
  [ "$(tr -d '\r' <out | LC_ALL=C.UTF-8 wc -L)" -le "$1" ] ||
    fail "a line is wider than $1 columns"
}
for arguments in 'plan --help' '--help'; do
  # shellcheck disable=SC2086
  canzona $arguments
  fits_into 100
done
if command -v script >/dev/null; then
  for columns in 80 140; do
    for arguments in 'plan --model qwen3-0.6b --mesh dp=32,tp=8' \
      'compare --model qwen3-0.6b --mesh dp=4,tp=2' 'models qwen3-30b-a3b' \
      models; do
      last="canzona $arguments, on a terminal of $columns columns"
      TERM=dumb script -qec \
        "stty cols $columns; $program $arguments --quiet" /dev/null >out
      fits_into $((columns < 100 ? 100 : columns))
    done
  done
fi

# Colours: none into a file, none with NO_COLOR, some when asked for.
canzona models
lacks out "$escape"
canzona models --color always
prints "$escape"
NO_COLOR=1 canzona models --color auto
lacks out "$escape"
canzona models --color never
lacks out "$escape"

# --quiet leaves results; without it, remarks go to standard error.
canzona plan --model small.json --mesh dp=2 -o plan.json
exits 0
says 'wrote plan plan.json'
canzona plan --model small.json --mesh dp=2 -o plan.json --quiet
exits 0
is_empty err
prints 'Balance'

# Output that cannot be written is exit status 6; a reader may leave early.
if [ -w /dev/full ]; then
  last='canzona models >/dev/full'
  "$program" models >/dev/full 2>err
  status=$?
  exits 6
  says 'cannot write'
  last='canzona plan -o /dev/full'
  "$program" plan --model small.json --mesh dp=2 -o /dev/full >out 2>err
  status=$?
  exits 6
fi
last='canzona models | head -1'
{
  "$program" models 2>err
  echo $? >code
} | head -1 >/dev/null
last='canzona compare into a closed pipe'
{
  sleep 0.1
  "$program" compare --model qwen3-0.6b --mesh dp=4 2>err
  echo $? >code
} | true
status=$(cat code)
exits 0
is_empty err

# Escape codes in files and arguments do not reach the terminal.
printf '[{"name": "a%sb", "shape": [4, 4]}]' '\u001b[31m' >foreign.json
canzona plan --model foreign.json --mesh dp=1
lacks out "$escape"
lacks err "$escape"
canzona plan --model "x${escape}[31m" --mesh dp=1
exits 2
lacks err "$escape"

finish
