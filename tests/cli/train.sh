# canzona train: a small run from end to end, and what it refuses.
. "$(dirname "$0")/words.sh"

computes train --dry-run
exits 0
prints 'memory of rank'
prints 'predicted optimizer step'

# A text to learn, long enough for a few steps.
i=0
while [ $i -lt 400 ]; do
  echo "line $i of a text in which every line says its number, as line $i does"
  i=$((i + 1))
done >text.txt
quick="train --data text.txt --steps 4 --set model.hidden=32 --set model.ffn=48
  --set model.heads=4 --set model.kv_heads=4 --set model.head_dim=8
  --set model.length=16 --set eval.sequences=8"

# A run leaves its files, and the summary says what it was.
# shellcheck disable=SC2086
canzona $quick --ranks 4 --mesh dp=2,tp=2 --run one --json
exits 0
is_json
member_is steps 4
member_is tokens 1024
member_is mesh dp=2,tp=2
member_is transport thread
member_is 'config rule name' muon
has_member final_loss
has_member eval_loss
has_member digest
has_member seconds
digest=$(member digest)
precision=$(member precision)
member_is 'config rule option precision' "$precision"
checks=$((checks + 1))
case $precision/$(member precision_why) in
  'bf16/auto: A'* | 'fp32/auto: no fast bf16') ;;
  *) fail "precision $precision because of $(member precision_why)" ;;
esac
for file in metrics.jsonl summary.json report.html model.safetensors config.json
do
  checks=$((checks + 1))
  [ -s "one/$file" ] || fail "no one/$file"
done
checks=$((checks + 1))
ls one/events.out.tfevents.* >ls.out 2>&1 || fail 'no events for TensorBoard'
checks=$((checks + 1))
[ "$(wc -l <one/metrics.jsonl)" = 4 ] || fail 'not one line for each step'
for name in step loss grad_norm lr tokens_per_second optimizer_ms comm_ms \
  hidden_fraction memory_bytes; do
  checks=$((checks + 1))
  [ "$(grep -c "\"$name\"" one/metrics.jsonl)" = 4 ] || fail "no $name"
done
canzona plan --model one --mesh dp=1 --rule muon --quiet
exits 0

# The same bits with every strategy, another seed and rule are other runs.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2,tp=2 --strategy layerwise --json --quiet
exits 0
member_is digest "$digest"
# shellcheck disable=SC2086
canzona $quick --mesh dp=2,tp=2 --seed 2 --json --quiet
exits 0
checks=$((checks + 1))
[ "$(member digest)" != "$digest" ] || fail 'a seed changes nothing'

# With AdamW for everything, rule.* governs matrices and adamw.* all else: each
# decay makes another run, and a rate of 0 is the same as freezing.
baseline() {
  # shellcheck disable=SC2086
  canzona $quick --rule adamw --set clip=0 --json --quiet "$@"
  [ "$status" -eq 0 ] && member digest || echo "no run: $*"
}
all_ran() {
  checks=$((checks + 1))
  case $* in *'no run'*) fail "$*" ;; esac
}
differ() {
  all_ran "$@"
  [ "$(printf '%s\n' "$@" | sort -u | wc -l)" = $# ] || fail "not $# runs: $*"
}
equal() {
  all_ran "$@"
  [ "$1" = "$2" ] || fail "two runs: $1 and $2"
}
for key in adamw rule; do
  differ "$(baseline --set $key.weight_decay=0)" \
    "$(baseline --set $key.weight_decay=0.1)" \
    "$(baseline --set $key.weight_decay=5)"
done
differ "$(baseline)" "$(baseline --set adamw.learning_rate=0.1)" \
  "$(baseline --set rule.learning_rate=0.1)" "$(baseline --learning-rate 0.2)" \
  "$(baseline --set adamw.beta2=0.9)" "$(baseline --rule-option beta2=0.9)" \
  "$(baseline --rule-option preset=keller)"
equal "$(baseline --set adamw.learning_rate=0)" \
  "$(baseline --set 'freeze=*embed*,*head*,*norm*')"
equal "$(baseline --set rule.learning_rate=0)" \
  "$(baseline --set 'freeze=*_proj*')"
differ "$(baseline --set adamw.learning_rate=0)" \
  "$(baseline --set rule.learning_rate=0)" \
  "$(baseline --set rule.learning_rate=0 --set adamw.learning_rate=0)"

# The stored configuration says the word, and the line before the first step
# what it is and why.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2,tp=2 --rule-option precision=$precision --json
exits 0
member_is digest "$digest"
member_is precision_why --rule-option
says "muon in $precision (--rule-option)"
canzona train --dry-run
exits 0
prints "precision: $precision (auto: "
canzona train --dry-run --rule soap --json
exits 0
member_is precision ''

# A folder is not overwritten unless it is asked for; nothing else is removed.
# shellcheck disable=SC2086
canzona $quick --run one
exits 2
says "--run 'one' is not empty"
says '--overwrite'
echo mine >one/notes.txt
# shellcheck disable=SC2086
canzona $quick --run one --overwrite
exits 0
prints 'report: one/report.html'
checks=$((checks + 1))
[ -s one/notes.txt ] || fail 'a file of the user is gone'

# A summary repeats its run; settings of the command line win.
canzona train --config one/summary.json --json --quiet
exits 0
member_is 'config run' ''
repeated=$(member digest)
# shellcheck disable=SC2086
canzona $quick --json --quiet
exits 0
member_is digest "$repeated"
canzona train --config one/summary.json --steps 2 --mesh dp=1 --json --quiet
exits 0
member_is steps 2
member_is mesh dp=1

# Every stage of a pipeline reserves what was predicted for it, to the byte; the
# first has more micro-batches in flight than the last.
# shellcheck disable=SC2086
canzona $quick --mesh pp=2 --json --quiet
exits 0
for rank in 0 1; do
  member_is "per_rank $rank predicted_bytes" \
    "$(member "per_rank $rank reserved_bytes")"
done
checks=$((checks + 1))
[ "$(member 'per_rank 0 reserved_bytes')" != \
  "$(member 'per_rank 1 reserved_bytes')" ] || fail 'the stages are alike'

# Presets fit meshes of up to eight ranks; without a mesh all cores are taken,
# and a run says so. With one mesh, the same bits.
for mesh in dp=2 dp=8 dp=2,tp=2,pp=2 pp=6; do
  canzona train --preset small --mesh $mesh --dry-run --json
  exits 0
  member_is mesh $mesh
done
for mesh in ep=8 dp=2,tp=2,ep=2; do
  canzona train --preset moe-tiny --mesh $mesh --dry-run --json
  exits 0
done
# shellcheck disable=SC2086
canzona $quick --json
exits 0
says ' core'
mesh=$(member mesh)
digest=$(member digest)
# shellcheck disable=SC2086
canzona $quick --mesh "$mesh" --json --quiet
member_is digest "$digest"

# An architecture of others: Qwen3's is trained, what the decoder lacks named.
canzona train --model one/config.json --data text.txt --steps 2 \
  --set eval.sequences=4 --json --quiet
exits 0
member_is model one
member_is 'config model hidden' 32
member_is 'config model name' one
sed 's/"attention_bias": false/"attention_bias": true/' one/config.json >biased.json
refuses biased.json attention_bias true -- train --model biased.json
printf '{"model_type": "gpt2"}' >gpt2.json
refuses gpt2.json model_type "'gpt2'" qwen3 -- train --model gpt2.json
refuses "'qwen3-0.5b'" "'qwen3-0.6b'" -- train --model qwen3-0.5b
canzona config show --model one --json
exits 0
member_is 'origins model.hidden' one/config.json

# A dry run opens the data and counts its tokens, and predicts by what this
# machine was measured to do.
canzona train --data text.txt --dry-run --json
exits 0
member_is data_tokens "$(wc -c <text.txt | tr -d ' ')"
has_member flops_per_second
canzona train --data text.txt --dry-run
prints "($(wc -c <text.txt | tr -d ' ')), tokens per step: " 'measured here'
lacks out nominal

# What fits on a GPU is told without one.
canzona train --model qwen3-0.6b --device cuda --micro-batch auto --dry-run \
  --memory-cap 16GiB --set batch.global=8 --set model.length=4096 --ranks 1
prints 'at once: 1 of 4096 tokens (auto: the most that fit in 16.00 GiB'
prints '  masters ' '2.22 GiB'
refuses '--micro-batch' '--memory-cap' -- train --model qwen3-0.6b \
  --device cuda --micro-batch auto --dry-run
refuses missing.txt -- train --data missing.txt --dry-run

# A new user may try these.
refuses '--data text.txt' -- train text.txt
refuses "--preset 'qwen3-8b'" '--model qwen3-8b' -- train --preset qwen3-8b
refuses 'a multiple of 3' 'batch.global=18' -- train --mesh dp=3
canzona train --help
exits 0
checks=$((checks + 1))
sed -n '/^Training/,$p' out | sed -n 2p | grep -q -e --data ||
  fail '--data is not the first option'

# Refused before anything is allocated.
# shellcheck disable=SC2086
canzona $quick --ranks 3 --mesh dp=2
exits 2
# shellcheck disable=SC2086
canzona $quick --mesh dp=3
exits 2
says 'data-parallel ranks'
# shellcheck disable=SC2086
canzona $quick --mesh cp=2
exits 2
says 'cp'
# shellcheck disable=SC2086
canzona $quick --mesh tp=8
exits 2
says 'tp'
# shellcheck disable=SC2086
canzona $quick --set batch.glob=3
exits 2
says 'batch.global'
canzona train --data missing.txt
exits 2
says 'missing.txt'
# shellcheck disable=SC2086
canzona $quick --set model.vocab=100
exits 2
says 'vocab'
canzona train --set model.hidden=32768 --set model.heads=512 \
  --set model.kv_heads=512 --set model.head_dim=64 --set model.ffn=65536 \
  --set model.layers=8
exits 2
says 'but this machine has'

finish
