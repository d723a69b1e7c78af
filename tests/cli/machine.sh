# Tests the verbs about this machine: calibrate, doctor.
. "$(dirname "$0")/words.sh"

# A build of the planner alone says so and stops here.
canzona doctor
if grep -q 'built to plan only' err; then
  refuses 'plan only' -- calibrate
  finish
fi
prints cpu sgemm bf16 copy cuda 'mpi ' 'nccl ' \
  'free' 'written and synced'
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
for member in folder free_bytes write_bytes_per_second; do
  has_member "disk $member"
done
checks=$((checks + 1))
[ -z "$(ls -A | grep canzona-doctor)" ] || fail 'doctor left a file'

# A folder that cannot be written is a problem (root writes anywhere but here).
last='canzona doctor in /proc'
(cd /proc && "$program" doctor) >out 2>err
status=$?
exits 1
prints 'problem: the working folder cannot hold a run'

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
canzona plan --model qwen3-0.6b --scale 1/16 --mesh dp=2 -o gpu.json --quiet
exits 0
[ -e /dev/nvidia0 ] || refuses '--for: the plan is for a GPU' 'device=cpu' -- \
  calibrate --for gpu.json

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
