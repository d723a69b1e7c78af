# Piped output has no escape codes: standard output and standard error of every
# verb, each by itself; --color always colours, NO_COLOR and never do not.
. "$(dirname "$0")/words.sh"
escape=$(printf '\033')

# One command for every verb; those that compute are small.
printf '%s' '[{"name": "layers.0.up", "shape": [64, 32], "tp": "rows"},
  {"name": "layers.1.up", "shape": [32, 64], "tp": "rows"},
  {"name": "norm", "shape": [32]}]' >small.json
mkdir ckpt
quick='--set model.layers=2 --set model.hidden=32 --set model.ffn=48
  --set model.head_dim=8 --set model.heads=4 --set model.kv_heads=4
  --set model.length=16 --set eval.sequences=4'
cat >commands <<EOF
plan --model small.json --mesh dp=2 -o plan.json
compare --model small.json --mesh dp=2,tp=2
compare --model small.json --mesh dp=4 --zero all
simulate --model small.json --mesh dp=8 --cluster $here/../../examples/clusters/h200_nvlink.json
explain plan.json
explain plan.json --rank 1
validate plan.json
models
models qwen3-0.6b
rules
rules muon
completion bash
completion zsh
completion fish
EOF
canzona doctor
if ! grep -q 'built to plan only' err; then
  cat >>commands <<EOF
config show
config keys
train --dry-run
train $(echo $quick) --steps 2 --run run
train $(echo $quick) --steps 2 --json
report run
sample --run run --prompt the --tokens 4
eval --run run
ckpt ls $here/../data/checkpoints/v1
ckpt inspect $here/../data/checkpoints/v1
ckpt verify $here/../data/checkpoints/v1
ckpt prune ckpt --keep-last 1
doctor
bench collectives --ranks 2 --bytes 1MB --rounds 1
bench step --model small.json --mesh dp=2 --steps 2 --compute 0
bench step --model small.json --mesh dp=2 --zero all --overlap all --strategy balanced --steps 2 --compute 0
calibrate --rounds 1 --for plan.json -o cost.json
EOF
fi

# Every verb of --help is among them.
canzona --help
for verb in $(sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p' out); do
  checks=$((checks + 1))
  last="canzona $verb"
  grep -q "^$verb\( \|\$\)" commands || "$program" "$verb" --help </dev/null |
    grep -q 'not in this build' || fail 'no command here runs this verb'
done

while IFS= read -r arguments; do
  # shellcheck disable=SC2086
  canzona $arguments
  lacks out "$escape"
  lacks err "$escape"
done <commands
for arguments in --help 'train --help' 'bench step --help'; do
  # shellcheck disable=SC2086
  canzona $arguments
  lacks out "$escape"
  lacks err "$escape"
done

# Asked for, colours go where the text goes, and nowhere else.
canzona models --color always
prints "$escape"
lacks err "$escape"
canzona plan --model nothing --mesh dp=1 --color always
exits 2
says "$escape"
lacks out "$escape"
NO_COLOR=1 canzona models
lacks out "$escape"
canzona plan --model nothing --mesh dp=1 --color never
lacks err "$escape"

# Progress: plain lines of standard error, none with --quiet, never in JSON.
if ! grep -q 'built to plan only' err && grep -q '^bench step' commands; then
  canzona bench step --model small.json --mesh dp=2 --steps 2 --compute 0 --json
  exits 0
  is_json
  says 'beginning: '
  canzona bench step --model small.json --mesh dp=2 --steps 2 --compute 0 --json \
    --quiet
  exits 0
  is_empty err
fi

# Names of models and folders reach the terminal without their escapes.
canzona train --set "model.name=${escape}[31mX" --mesh dp=1 --steps 1 \
  --run "run${escape}[1m"
if ! grep -q 'built to plan only' err; then
  exits 0
  says '?[31mX: 4 layers' '1 step of '
  lacks err "$escape"
  lacks out "$escape"
  canzona sample --run "run${escape}[1m" --prompt x --tokens 1
  exits 0
  says 'run?[1m: '
  lacks err "$escape"
fi
finish
