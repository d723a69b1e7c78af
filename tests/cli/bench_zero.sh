# canzona bench zero measures iterations of training with every size of ZeRO.
. "$(dirname "$0")/words.sh"

computes bench zero
exits 2
says '--mesh is required'

quick="bench zero --set model.layers=2 --set model.hidden=32 --set model.ffn=48
  --set model.head_dim=8 --set model.heads=4 --set model.kv_heads=4
  --set model.length=16 --steps 1 --repeat 1"

# The JSON has all figures for every cell; dp=4 has 12 triples.
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --ranks-per-node 2 --zero all --json --quiet
exits 0
is_json
is_empty err
member_is model tiny
member_is 'mesh dp' 4
member_is rule muon
member_is micro_batches 1
member_is digests_agree ON
member_is device cpu
has_member compute
for name in gemm_flops_one_rank gemm_flops_all_ranks \
  copy_bytes_per_second_one_rank copy_bytes_per_second_all_ranks; do
  has_member "machine $name"
done
has_member link
digest=$(member 'cells 0 digest')
states=$(member 'cells 0 state_digest')
cells=$(grep -c '"overlap"' out)
checks=$((checks + 1))
[ "$cells" -gt 30 ] && [ $((cells % 3)) -eq 0 ] || fail "$cells cells"
i=0
while [ "$i" -lt "$cells" ]; do
  member_is "cells $i digest" "$digest"
  member_is "cells $i state_digest" "$states"
  member_is "cells $i slow_bytes_per_rank" \
    "$(member "cells $i slow_bytes_predicted")"
  member_is "cells $i bytes_per_rank" "$(member "cells $i bytes_predicted")"
  member_is "cells $i memory_bytes_max" \
    "$(member "cells $i memory_predicted_max")"
  i=$((i + 1))
done
for name in 'zero z1' 'zero z2' 'zero z3' overlap iteration_seconds \
  predicted_seconds hidden_fraction 'pool_high_water bytes' compute_seconds \
  waited_seconds busy_seconds edge_fraction iteration_seconds_spread; do
  has_member "cells $((cells - 1)) $name"
done
member_is "cells $((cells - 1)) overlap" background

# Sizes may be separated by ';' or given one by one; micro-batches, tensor
# parallelism and other rules work.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2,tp=2 --zero 'zero3;z1=2,z2=1,z3=2' --zero none \
  --overlap 'none;background' --micro-batches 3 --tokens 32 --rule soap \
  --rule-option precondition_frequency=2 --message parameter --prefetch 1 \
  --json --quiet
exits 0
is_json
member_is rule soap
member_is micro_batches 3
member_is tokens 32
member_is 'cells 0 zero z3' 2
member_is 'cells 2 zero z2' 1
member_is 'cells 4 zero z1' 1
member_is 'cells 5 bytes_per_rank' "$(member 'cells 5 bytes_predicted')"
member_is 'cells 0 memory_bytes_max' "$(member 'cells 0 memory_predicted_max')"

# With more ranks than the preset's batch has micro-batches, 24 times the bytes
# cross slow links if 16 divides all rows.
# shellcheck disable=SC2086
canzona $quick --mesh dp=16 --ranks-per-node 4 --zero 'zero3;hier:4' \
  --overlap background --micro-batches 4 --rule adamw --set model.hidden=64 \
  --set model.head_dim=16 --json --quiet
exits 0
member_is 'cells 0 slow_bytes_per_rank' \
  $((24 * $(member 'cells 1 slow_bytes_per_rank')))

# A modelled link; text, trace.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2 --zero zero3 --overlap all --comm-ratio 0.5 \
  --trace trace.json
exits 0
says 'wrote trace trace.json'
prints 'modelled link' 'GFLOP/s' 'z1,z2,z3' 'background' 'hidden' 'slow bytes' \
  'must have the same'
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'
for text in '"gather modules"' '"scatter modules"' '"compute"' \
  '"gather slots"' '"scatter slots"' '"ph":"s"'; do
  checks=$((checks + 1))
  grep -qF "$text" trace.json || fail "the trace lacks $text"
done

# Slices of ZeRO give homes several ranks: who shares a matrix is decided in
# each cell. Cells without such homes say why they are not run.
shared="bench zero --mesh dp=4 --rule soap --rule-option strips=8
  --rule-option max_preconditioner_dim=64 --set model.layers=1
  --set model.hidden=64 --set model.ffn=1024 --set model.head_dim=16
  --set model.length=16 --steps 1 --warmup 0 --repeat 1 --overlap background
  --link intra=9000TB/s,inter=9000TB/s,latency=0us --json --quiet"
# shellcheck disable=SC2086
canzona $shared --zero 'zero1;zero3' --teams 4
exits 0
is_json
member_is 'cells 0 zero z3' 1
checks=$((checks + 1))
member 'cells 0 error' | grep -q 'have a single rank' ||
  fail 'zero1 does not say that homes have a single rank'
member_is 'measured_first zero z3' 4
member_is 'cells 1 exchange' rounds
checks=$((checks + 1))
[ "$(member 'cells 1 teams 4')" -gt 0 ] || fail 'zero3 has no teams of 4'
# If no cell can be planned, nothing is measured, and the message names one.
refuses '--exchange strips' '(cell --zero zero1)' -- bench zero --mesh dp=2 \
  --zero 'zero1;zero3' --rule shampoo --exchange strips --steps 1000000

# Mistakes.
for list in ';' ';;' 'zero3;' ';zero3'; do
  refuses "--zero '$list'" "each side of ';'" -- bench zero --mesh dp=2 \
    --zero "$list"
done
refuses "--overlap ';'" "each side of ';'" -- bench zero --mesh dp=2 \
  --overlap ';'
refuses "'blackground'" "'background'" -- bench zero --mesh dp=2 \
  --overlap blackground
refuses 'z1 = 3' -- bench zero --mesh dp=4 --zero z1=3
refuses '--steps 0' -- bench zero --mesh dp=2 --steps 0
refuses '--split-gpu is only valid with --device cuda' -- bench zero --mesh dp=2 --split-gpu
refuses '--tokens 5' '64' -- bench zero --mesh dp=2 --tokens 5
refuses '--comm-ratio' -- bench zero --mesh dp=2 --comm-ratio x
refuses 'sends nothing' -- bench zero --mesh dp=1 --comm-ratio 1 --steps 1
refuses "--device 'gpu'" 'cpu or cuda' -- bench zero --mesh dp=2 --device gpu
refuses '--device cuda' -- bench zero --mesh dp=2 --compute products
refuses "are the model's own" -- bench zero --mesh dp=2 --compute 0.1

finish
