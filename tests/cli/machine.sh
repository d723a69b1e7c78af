# Tests the verbs about this machine: bench, calibrate, doctor.
. "$(dirname "$0")/words.sh"

# A build of the planner alone says so and stops here.
canzona doctor
if grep -q 'built to plan only' err; then
  refuses 'plan only' -- bench transform --shape 8x8
  refuses 'plan only' -- calibrate
  finish
fi
prints cpu sgemm bf16 copy cuda 'mpi ' 'nccl ' 'threads ' 'all-to-all of 2 ranks' \
  'free' 'written and synced' 'open files' 'locked memory' 'core file' stack \
  'sigpipe       ignored'
canzona doctor --json
is_json
has_member sgemm_gflops
has_member core
has_member text
has_member problems
has_member 'cuda built'
has_member 'cuda device'
has_member nccl
has_member gpus
has_member devices
has_member nccl_network
for member in folder free_bytes write_bytes_per_second commit_seconds; do
  has_member "disk $member"
done
has_member 'limits 0 soft'
has_member 'limits 3 hard'
member_is sigpipe ignored
member_is 'exchanges 0 transport' thread
has_member 'exchanges 0 seconds'
checks=$((checks + 1))
[ -z "$(ls -A | grep canzona-doctor)" ] || fail 'doctor left a file'

# A folder that cannot be written is a problem (root writes anywhere but here).
last='canzona doctor in /proc'
(cd /proc && "$program" doctor) >out 2>err
status=$?
exits 1
prints 'problem: the working folder cannot hold a run'

# One shape in every form and precision, and single ones.
canzona bench transform --shape 33x70 --rounds 1 --json
exits 0
is_json
for i in 0 1 2 3 4 5; do
  for member in algorithm precision seconds error_vs_fp64 floor_seconds; do
    has_member "results $i $member"
  done
done
has_member core
has_member sgemm_gflops
has_member precision
has_member precision_why
checks=$((checks + 1))
case $(member precision)/$(member algorithm) in
  bf16/symmetric_fp32 | fp32/symmetric) ;;
  *) fail "the rule runs $(member algorithm) in $(member precision)" ;;
esac
canzona bench transform --shape 64x16 --batch 3 --algorithm gram \
  --precision bf16 --threads 2 --rounds 1
exits 0
prints gram bf16 'of floor' 'rule muon runs symmetric' 'precision: '
canzona bench transform --shape 8x8 --rule-option coefficients=quintic \
  --algorithm symmetric --rounds 1 --json
exits 0
is_json
member_is 'results 0 algorithm' symmetric
refuses "'8'" 'ROWSxCOLS' -- bench transform --shape 8
refuses "'0'" -- bench transform --shape 0x8
refuses 'missing' -- bench transform
refuses "'transfrom'" "'transform'" -- bench transfrom --shape 8x8
refuses "'grma'" "'gram'" -- bench transform --shape 8x8 --algorithm grma
refuses "'fp8'" -- bench transform --shape 8x8 --precision fp8
refuses '--threads 0' -- bench transform --shape 8x8 --threads 0
refuses 'rows scaled' -- bench transform --shape 8x8 \
  --rule-option coefficients=aol

# The planner reads what calibrate wrote, for a plan, on two cores at once. If
# OpenBLAS does not fit the CPU, nothing is measured.
for options in 'muon --rule-option precision=fp32' soap; do
  rule="$options --rule-option device=cpu"
  # shellcheck disable=SC2086
  canzona plan --model qwen3-0.6b --scale 1/16 --layers 1 --mesh dp=2 \
    --rule $rule -o small.json
  exits 0
  canzona calibrate --rounds 1 --ranks 2 --for small.json -o cost.json --json
  if [ "$status" -eq 0 ]; then
    is_json
    checks=$((checks + 1))
    cmp -s out cost.json || fail 'cost.json is not what --json printed'
    # shellcheck disable=SC2086
    canzona plan --model qwen3-0.6b --mesh dp=2 --cost cost.json --rule $rule
    exits 0
    prints 'measured, cost table' '2 cores at once' 'element-wise'
  else
    exits 2
    says 'nothing is measured'
  fi
done
refuses '--ranks 0' -- calibrate --ranks 0
refuses '--device' 'plan' -- calibrate --for small.json --device cpu
refuses 'nothere.json' -- calibrate --for nothere.json

# Help fits the page.
for verb in 'bench --help' 'calibrate --help' 'doctor --help'; do
  # shellcheck disable=SC2086
  canzona $verb
  exits 0
  checks=$((checks + 1))
  [ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
    fail 'a line is wider than 100 columns'
done
refuses "'fp8'" -- calibrate --precision fp8

# A whole step, of one small layer.
echo '[{"name": "a", "shape": [32, 48]}, {"name": "b", "shape": [32, 48]},
  {"name": "c", "shape": [24, 24]}]' >layer.json
canzona bench rule --model layer.json --rule muon --rounds 2 \
  --json
exits 0
is_json
for member in seconds host_seconds seconds_by_stage \
  refresh_seconds_by_stage algorithm_by_shape precision precision_why \
  floor_seconds peak_tflops; do
  has_member "$member"
done
has_member precision
canzona bench rule --model layer.json --rule soap --rounds 2
exits 0
prints 'the floor of' 'soap in fp32 on 3 tensors'
lacks out 'bf16 by'

# The precision acts, and the header says what ran.
canzona bench rule --model layer.json --rounds 2 --precision bf16
exits 0
prints 'muon in bf16 on 3 tensors' 'bf16 by'
canzona bench rule --model layer.json --rounds 2 --precision bf16 --json
member_is precision bf16
member_is precision_why --precision
canzona bench rule --model layer.json --rounds 2 --json \
  --rule-option precision=bf16
member_is precision_why --rule-option
canzona bench rule --model layer.json --rounds 2 --precision fp32
prints 'muon in fp32 on 3 tensors'
lacks out 'bf16 by'
refuses "--precision 'fp8'" 'expected auto' -- bench rule --model layer.json \
  --precision fp8
refuses "--precision 'all'" 'expected auto' -- bench rule --model layer.json \
  --precision all
refuses "--precision 'bf16'" soap -- bench rule --model layer.json --rule soap \
  --precision bf16
refuses contradicts -- bench rule --model layer.json --precision bf16 \
  --rule-option precision=fp32
refuses --threads transform -- bench rule --model layer.json --threads 2
refuses --model 'bench rule' -- bench transform --shape 8x8 --model layer.json
refuses '--model is missing' -- bench rule
refuses "'sopa'" "'soap'" -- bench rule --model qwen3-0.6b --layers 1 --rule sopa
refuses '--layers 99' 'has 28' -- bench rule --model qwen3-0.6b --layers 99
refuses "'gpu'" 'cpu' 'cuda' -- bench rule --model qwen3-0.6b --device gpu
refuses "'gpu'" -- calibrate --device gpu
canzona bench decoder --rounds 1 --json
exits 0
has_member forward_seconds

# Asked for a GPU, a build without CUDA says so, and so does a machine without
# one; where there is one, other tests look.
canzona doctor
why='this build has no CUDA'
grep -q 'there is no GPU' out && why='there is no GPU'
if grep -q "$why" out; then
  refuses "$why" -- bench rule --model qwen3-0.6b --device cuda
  refuses "$why" -- bench transform --shape 8x8 --device cuda
  refuses "$why" -- calibrate --device cuda
  refuses "$why" -- train --preset small --device cuda
  refuses "$why" -- bench decoder --preset small --device cuda
fi

# The table that was measured on an H200.
canzona plan --model qwen3-32b --mesh dp=32,tp=8 \
  --cost "$here/../../cost_tables/nvidia_h200.json"
exits 0
prints 'measured, cost table of NVIDIA H200'
finish
