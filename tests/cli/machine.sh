# What this machine can do: bench, calibrate, doctor.
. "$(dirname "$0")/words.sh"

# A build of the planner alone says so and stops here.
canzona doctor
if grep -q 'built to plan only' err; then
  refuses 'plan only' -- bench transform --shape 8x8
  refuses 'plan only' -- calibrate
  finish
fi
prints cpu sgemm bf16 copy cuda
canzona doctor --json
is_json
has_member sgemm_gflops
has_member core
has_member problems
has_member 'cuda built'
has_member 'cuda device'

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
canzona bench transform --shape 64x16 --batch 3 --algorithm gram \
  --precision bf16 --threads 2 --rounds 1
exits 0
prints gram bf16 'of floor'
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

# The planner reads what calibrate wrote. Where OpenBLAS does not fit the CPU,
# nothing is measured.
canzona calibrate --rounds 1 -o cost.json
if [ "$status" -eq 0 ]; then
  canzona plan --model qwen3-0.6b --mesh dp=2 --cost cost.json \
    --rule-option device=cpu
  exits 0
  prints 'measured, cost table'
  canzona plan --model qwen3-0.6b --mesh dp=2 --cost cost.json --rule soap
  exits 0
  prints 'measured, cost table'
else
  exits 2
  says 'nothing is measured'
fi

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
finish
