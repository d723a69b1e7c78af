# A mistake is answered with the option, the value, what is allowed and the
# nearest known name; the exit status is 2.
. "$(dirname "$0")/words.sh"

small='[{"name": "layers.0.up", "shape": [64, 32], "tp": "rows"},
        {"name": "layers.0.down", "shape": [32, 64], "tp": "columns"},
        {"name": "norm", "shape": [32]}]'
printf '%s' "$small" >small.json

# Verbs and options.
refuses 'no verb' 'plan, compare' --
refuses "unknown verb 'plam'" "'plan'" -- plam
refuses "unknown verb 'plam'" "'plan'" -- plam --help
canzona plan --model small.json --mesh dp=2 -o one.json
exits 0
refuses '--rank 2: the plan has 2 ranks, numbered from 0' -- \
  explain one.json --rank 2
refuses "cannot write plan to '-'" '--json' -- plan --model qwen3-0.6b --mesh dp=2 -o -
refuses "unknown option '--modle'" "'--model'" -- plan --modle x
refuses "unknown option '--modle'" "'--model'" -- plan --modle=x --mesh dp=2
refuses "unknown option '--jsn'" "'--json'" -- validate plan.json --jsn
# Options of other programs get what this one has instead, which it accepts.
refuses "unknown option '--lr': --learning-rate RATE" rule.learning_rate \
  '--set adamw.learning_rate=RATE' -- train --lr 0.1
refuses '--set batch.global=N' '--set batch.micro=N' -- train --batch-size=8
refuses '--set batch.global=N' -- train --batch_size 8
refuses '--steps N' 'optimizer steps' -- train --epochs 3
refuses '--rule RULE' -- train --optimizer muon
refuses '--run DIR' -- train --output-dir x
for key in adamw.learning_rate batch.global batch.micro rule.weight_decay \
  adamw.weight_decay schedule.warmup model.length clip; do
  canzona config show --set $key=8
  exits 0
done
lacks err 'unknown'
refuses "unknown option '--lr'" -- plan --lr 0.1
lacks err 'learning-rate'
# An option is not the value of another, unless by =.
refuses '--resume needs a value, such as auto, but is followed by the option' \
  "'--run'" -- train --resume --run x
refuses '--resume needs a value' "'--run=x'" -- train --resume --run=x
refuses '--data needs a value' "'--quiet'" -- train --data --quiet
refuses "--resume '--run'" -- train --resume=--run
refuses "unexpected word 'again'" -- validate plan.json again
refuses '--model is required' -- plan --mesh dp=2
refuses '--mesh is required' -- plan --model small.json
refuses '--model' -- plan --mesh dp=2 --model
refuses '--color' "'sometimes'" -- models --color sometimes
refuses 'PLAN' -- validate
refuses "'tcsh'" bash zsh fish -- completion tcsh

# Models.
refuses "'qwen3-32'" 'qwen3-32b' -- plan --model qwen3-32 --mesh dp=2
refuses "'nowhere.json'" -- plan --model nowhere.json --mesh dp=2
refuses '--model' -- plan --model . --mesh dp=2
model() { printf '%s' "$1" >model.json; }
try() { refuses "$@" -- plan --model model.json --mesh dp=2,tp=2; }
model ''
try model.json
model '[]'
try model.json
model '{"name": '
try model.json
model '[{"name": "a", "shape": [0, 4]}]'
try "'a'"
model '[{"name": "a", "shape": [-4, 4]}]'
try "'a'"
model '[{"name": "a", "shape": [4, 4]}, {"name": "a", "shape": [4, 4]}]'
try "'a'"
model '[{"name": "a", "shape": [4, "4"]}]'
try "'a'"
model '[{"name": "a", "shape": [4, 4], "tp": "diagonal"}]'
try 'diagonal'
model '[{"name": "a", "shape": [1099511627776, 1099511627776]}]'
try "'a'"
model '[{"name": "a", "shape": [9223372036854775807, 4]}]'
try "'a'"

# Meshes.
mesh() { refuses '--mesh' "$@" -- plan --model qwen3-0.6b --mesh "$bad"; }
for bad in dp=0 dp=-1 dp=x dp=1.5 dp dp= =2 dp=2, dp=2,dp=2 dp=99999999999 \
  dp=1048576,tp=16; do
  mesh
done
bad=dq=2 mesh "'dq'" dp
bad=tp=3 mesh 'tp=3 does not divide'
bad=tp=32 mesh 'tp=32' '16'
bad=pp=5 mesh 'pp=5 does not divide the 28 layers'
bad=ep=2 mesh 'ep=2' experts
refuses 'does not divide' -- plan --model small.json --mesh tp=128

# Numbers and words.
number() { # option value
  refuses "$1" "$2" -- plan --model small.json --mesh dp=2 "$1" "$2"
}
number --alpha -1
number --alpha 1.5
number --alpha nan
number --bucket-elements 0
number --bucket-elements -5
number --bucket-elements 1e9x
number --capacity -1
number --capacity 12parsecs
number --memory-cap many
number --ranks-per-node 0
number --weight mass
number --strategy balancd
number --micro-groups sorte
number --parameters fp8
number --split qvk
number --rule moun
number --link fast
number --rule-option steps
refuses --rule-option "'stps'" "'steps'" -- plan --model small.json \
  --mesh dp=2 --rule-option stps=5
number --newton-schulz cubic
number --cost nowhere.json
number --matrix-rule 'no.such.*'
number --matrix-rule norm
refuses "'balanced'" -- plan --model small.json --mesh dp=2 --strategy balancd
refuses "'contiguous'" -- compare --model small.json --mesh dp=2 \
  --strategies balanced,contigous
refuses '--link inter' -- plan --model small.json --mesh dp=2 --link inter=0
refuses '--alpha' 'empty' -- plan --model small.json --mesh dp=2 --alpha= --json
refuses '--model' 'empty' -- plan --model '' --mesh dp=2

# A number beyond the range of its type is refused by its option's name, not
# clamped; 010 is ten.
huge=99999999999999999999
refuses_huge() { # option verb…
  option=$1
  shift
  for value in $huge -$huge 9223372036854775808 0x10 1e3 '' ' 1'; do
    refuses "$option" -- "$@" "$option" "$value"
  done
}
refuses_huge --tokens sample --run . --prompt x
refuses_huge --top-k sample --run . --prompt x
refuses_huge --seed sample --run . --prompt x
refuses_huge --step sample --run . --prompt x
refuses_huge --sequences eval --run .
refuses_huge --length eval --run .
refuses_huge --step eval --run .
refuses_huge --step ckpt inspect .
refuses_huge --step ckpt verify .
refuses_huge --step ckpt export . --hf new
refuses_huge --keep-last ckpt prune .
refuses_huge --rounds bench collectives
refuses_huge --rounds calibrate
refuses_huge --steps train
refuses_huge --seed train
refuses_huge --save-every train
refuses_huge --ranks-per-node plan --model small.json --mesh dp=2
for value in 1e999 -1e999 inf nan x; do
  refuses --temperature "'$value'" -- sample --run . --prompt x --temperature $value
done
refuses "--step: expected a whole number from -9223372036854775808 to 9223372036854775807, found '$huge'" \
  -- ckpt inspect . --step $huge
# If several options are wrong, the first one is named, with its value.
refuses '--top-k -1: expected 0 or more' -- sample --run . --prompt x --top-k -1 --seed -9
refuses '--seed -9: expected 0 or more' -- sample --run . --prompt x --seed -9
refuses '--keep-last 0: expected 1 or more' -- ckpt prune . --keep-last 0
refuses "'small.json': it is not a folder" -- sample --run small.json --prompt x
refuses '--step 10:' -- sample --run . --prompt x --step 010

# Replicas are included in the limits, because a plan that is written must be
# readable.
model '[{"name": "layers.0.up", "shape": [1099511627776, 1024]}]'
refuses '64-bit counts' '65536 ranks' -- plan --model model.json \
  --mesh dp=65536 --rule adamw --tokens 0 --zero z1=2,z2=1,z3=1

# Options of another rule.
refuses '--phases' 'muon' 'shampoo' -- plan --model small.json --mesh dp=2 \
  --phases 4
refuses '--newton-schulz' 'soap' 'muon' -- plan --model small.json \
  --mesh dp=2 --rule soap --newton-schulz gram
refuses '--phases' -- plan --model small.json --mesh dp=2 --rule soap \
  --phases 4 --rule-option phases=4

# Messages show names of files and tensors unchanged even if they look like
# options, and options of the library as flags.
refuses "cannot read plan 'json=on'" -- validate json=on
for file in color json=on; do
  echo '{' >"$file"
  refuses "error: $file: " -- validate "$file"
done
echo '{' >'teams 4.json'
refuses 'error: teams 4.json: ' -- plan --storage 'teams 4.json'
model '[{"name": "teams=4 b", "shape": [0, 4]}]'
refuses "'teams=4 b'" -- plan --model model.json --mesh dp=2
refuses '--teams 2: homes' '; --teams auto plans without teams' -- \
  plan --model small.json --mesh dp=2 --teams 2

# Files that cannot be written or read.
refuses 'nowhere/plan.json' -- plan --model small.json --mesh dp=2 \
  -o nowhere/plan.json
refuses "'.'" -- plan --model small.json --mesh dp=2 --html .

# A plan on a described cluster keeps to the memory cap.
cat >cluster.json <<'EOF'
{"format": "canzona.cluster", "version": 1, "name": "one level",
 "card": {"name": "x", "tflops": 400},
 "levels": [{"name": "node", "ranks": 8, "bytes_per_second": 450e9,
             "latency_seconds": 3e-6}]}
EOF
canzona simulate --model qwen3-0.6b --mesh dp=8 --cluster cluster.json
exits 0
refuses '--memory-cap 4.00 GiB' 'needs more' -- simulate --model qwen3-0.6b \
  --mesh dp=8 --cluster cluster.json --memory-cap 4GiB

# Missing values, values of switches, options given twice, verbs of verbs.
refuses '--strategy needs a value, such as ' 'balanced' -- \
  plan --model small.json --mesh dp=2 --strategy
refuses '--mesh needs a value; see' -- plan --model small.json --mesh
refuses '--model is given 2 times; expected once' -- \
  plan --model small.json --model small.json --mesh dp=2
refuses '--json takes no value' -- models --json=x
canzona models --json=true
exits 0

# A message about a wrong word lists those that the verb takes.
refuses "'x'" ', any' -- plan --model small.json --mesh dp=2 --strategy x
refuses '--prefetch' 'auto or a whole number from 0 to 65536' -- \
  plan --model small.json --mesh dp=2 --zero zero3 --prefetch x
refuses "--zero 'auto'" 'hier:Z, all or z1=' -- \
  compare --model small.json --mesh dp=2 --zero auto
refuses "--zero-experts 'auto'" 'hier:Z, all or z1=' -- \
  compare --model small.json --mesh dp=2 --zero all --zero-experts auto
refuses "--zero 'x'" 'hier:Z, auto or z1=' -- \
  plan --model small.json --mesh dp=2 --zero x
refuses "--zero 'x'" 'hier:Z or z1=' -- simulate --model qwen3-0.6b \
  --mesh dp=8 --cluster cluster.json --zero x
refuses "--rule-option 'steps=6': steps is given twice" -- plan \
  --model small.json --mesh dp=2 --rule-option steps=5 --rule-option steps=6

# Verbs that compute.
canzona train --help
if grep -q 'not in this build' out; then finish; fi

refuses "unknown option '--precision'" \
  -- bench step --model small.json --mesh dp=2 --precision bf16
refuses "unknown option '--no-graph'" -- \
  bench step --model small.json --mesh dp=2 --no-graph
refuses "unexpected word 'foo'" -- bench step --model small.json --mesh dp=2 foo
refuses "unknown option '-1'" -- bench step --model small.json --mesh dp=2 -- -1
refuses 'expected step, collectives or decoder' -- bench zero
refuses 'expected a bandwidth of 1B/s to 1e30B/s' -- plan --model qwen3-0.6b \
  --mesh tp=2 --link intra=1e31B/s,inter=1GB/s,latency=1us
refuses "unknown option '--layers'" -- \
  bench collectives --layers 3
refuses 'canzona bench collectives takes --json only after the word collectives' \
  -- bench --json collectives
refuses "unexpected word 'b.so'" -- rules muon -- b.so
refuses 'canzona config show takes --json only after the word show' -- \
  config --json show
refuses "canzona config 'shwo': expected show or keys (did you mean 'show'?)" \
  -- config shwo
refuses "canzona ckpt 'lst'" "(did you mean 'ls'?)" -- ckpt lst
refuses 'canzona ckpt: expected ls, ' -- ckpt
refuses '--preset needs a value, such as tiny, small or moe-tiny' -- \
  config show --preset
refuses '--steps needs a value' -- train --steps

# Mistakes are reported before anything is measured.
refuses '-o: ' 'nodir/x' -- calibrate -o nodir/x
refuses '--trace: ' 'nodir/x' -- bench step --model small.json --mesh dp=2 \
  --strategy balanced --trace nodir/x
for value in abc nan -1; do
  refuses '--deadline' "'$value'" -- train --dry-run --deadline $value
done
canzona train --dry-run --deadline 10min
exits 0
refuses 'zero.prefetch (--prefetch)' "'abc'" -- config show --prefetch abc
refuses "zero.sizes (--zero) 'abc': expected none" ', auto or z1=' -- \
  config show --zero abc
refuses 'links.model (--link)' "'abc'" -- config show --link abc
refuses '--ranks-per-node 2' 'ranks_per_node=1' -- config show \
  --link intra=1GB/s,inter=1GB/s,ranks_per_node=1 --ranks-per-node 2
refuses 'mesh (--mesh): unknown axis' -- config show --mesh dq=2
refuses "plan.memory_cap (--memory-cap) is 'x'" -- config show --memory-cap x
refuses '--tokens: expected 1 to 1000000' "'$huge'" -- \
  sample --run . --prompt x --tokens $huge
refuses '--steps: expected 1 to 1000000' -- bench step --model small.json \
  --mesh dp=2 --steps 3000000000

# Messages do not name flags that were not given.
canzona train --set model.experts=65536 --set model.expert_ffn=16777216 \
  --set model.layers=10000 --dry-run
exits 2
lacks err '--model'
refuses "rule muon has no option 'a'" 'momentum' -- \
  config show --rule-option a=b
lacks err 'learning_rate'
lacks err '--rule muon'
echo '{"mesh": "dp=2", "ranks": 3}' >c.json
refuses 'error: mesh dp=2 (c.json) has 2 ranks' -- config show --config c.json
refuses "--overlap 'x': expected none, main, background or all" -- \
  bench step --model small.json --mesh dp=2 --overlap x
refuses "--zero 'auto'" 'hier:Z, all or z1=' -- bench step --model small.json \
  --mesh dp=2 --zero auto
for verb in 'config show' 'plan --model small.json --mesh dp=2'; do
  # shellcheck disable=SC2086
  refuses 'steps is given twice' -- $verb --rule-option steps=5 \
    --rule-option steps=6
done
refuses 'use bf16 or fp32' -- config show --rule-option precision=fp16
refuses '--overwrite: expected --run' -- train --overwrite --dry-run
refuses "--resume '.': the folder has no checkpoint" -- train --resume .
refuses '--rendezvous: ranks that communicate by thread do not use it' -- \
  bench collectives --ranks 2 --rendezvous host:1

# --- `help VERB` is the verb's help.
canzona help bench step
exits 0
prints 'Usage: canzona bench step' '--transport'
canzona help
exits 0
prints 'Usage: canzona VERB'
prints '3 a checkpoint or data was'
for early in '--color never' --color=never --quiet; do
  # shellcheck disable=SC2086
  canzona $early help train
  exits 0
  prints 'Usage: canzona train'
done
# Words that no verb knows are refused, beside --help too; an unknown option is
# not, because help lists the known ones.
refuses "canzona bench 'foo': expected step, collectives or" -- \
  bench foo --help
refuses "canzona ckpt 'foo': expected ls, inspect, verify, prune" -- \
  ckpt foo --help
refuses "canzona rules 'foo': expected muon, " -- rules foo --help
refuses "canzona completion 'foo': expected bash, zsh or fish" -- \
  completion foo --help
refuses "unexpected word 'extra'" 'canzona plan --help' -- help plan extra
refuses "unexpected word 'extra'" 'canzona bench step --help' -- \
  bench step extra --help
canzona plan --modle x --help
exits 0
canzona rules muon --help
exits 0
canzona models config.json --help
exits 0

# --- What is a file cannot be the folder of a run, which is said before
# anything else.
echo text >afile
refuses "run 'afile': it is a file; expected the folder of a run" -- report afile
for wish in '' '--resume auto' --dry-run '--resume auto --dry-run'; do
  # shellcheck disable=SC2086
  refuses "--run 'afile': it is a file; expected a folder" -- \
    train --run afile $wish
  lacks err 'nothing to resume'
done
# A mistyped folder does not begin another run on the built-in language.
for more in '' --overwrite --dry-run; do
  # shellcheck disable=SC2086
  refuses "--run 'typo' holds no run to resume" 'check the name' '--data PATH' -- \
    train --run typo --resume auto $more
  lacks err 'nothing to resume from'
  [ ! -e typo ] || fail 'the folder was made'
done
canzona train --run typo --resume auto --data synthetic --dry-run
exits 0
says 'starts from the beginning'

refuses 'axis dp' -- train --run new --resume auto --mesh dp=0
lacks err 'nothing to resume'
refuses "--resume 'afile': it is a file" -- train --resume afile --run new
refuses '--warmup 5: expected 0 to 4' -- bench step --model small.json \
  --mesh dp=2 --warmup 5 --steps 5
lacks err 'beginning'
refuses '--model is required' -- bench step --mesh dp=2
lacks err 'beginning'

# --- Words of a device, of a key and of a file as they are given.
refuses 'device (--device)' 'expected cpu, cuda' "'CUDA'" -- \
  train --device CUDA --dry-run
refuses 'links.model (--set)' "'garbage'" -- \
  train --set links.model=garbage --dry-run
mkdir -p described
sed 's|"cost_table": *"[^"]*"|"cost_table": "none/there.json"|' \
  "$here/../../examples/clusters/h200_nvlink.json" >described/cluster.json
if grep -q 'none/there.json' described/cluster.json; then
  refuses "--cluster 'described/cluster.json'" "'none/there.json'" \
    'No such file' -- simulate --cluster described/cluster.json \
    --model qwen3-0.6b --mesh dp=8
fi

finish
