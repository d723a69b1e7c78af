# canzona train --zero gives the same bits however states, gradients and
# parameters are cut, and measures the bytes and memory that were predicted.
. "$(dirname "$0")/words.sh"

computes train --dry-run

# One micro-batch a rank: then z2 changes no sum either.
quick="train --steps 3 --seed 7 --set model.layers=2 --set model.hidden=32
  --set model.ffn=48 --set model.heads=4 --set model.kv_heads=4
  --set model.head_dim=8 --set model.length=16 --set eval.sequences=8
  --set batch.global=4 --set batch.micro=1 --ranks-per-node 2"

# trains <digest, or "" for the first> <arguments>
trains() {
  expected=$1
  shift
  # shellcheck disable=SC2086
  canzona $quick --json --quiet "$@"
  exits 0
  is_json
  [ -z "$expected" ] || member_is digest "$expected"
}

# most <member of per_rank>: the largest of four ranks.
most() {
  for rank in 0 1 2 3; do member "per_rank $rank $1"; done | sort -n | tail -1
}

# counts: bytes as --dry-run says, memory as predicted.
counts() {
  fast=$(most fast_bytes_per_step)
  slow=$(most slow_bytes_per_step)
  for rank in 0 1 2 3; do
    member_is "per_rank $rank reserved_bytes" \
      "$(member "per_rank $rank predicted_bytes")"
  done
  # shellcheck disable=SC2086
  canzona $quick --json --quiet --dry-run "$@"
  exits 0
  member_is fast_bytes_per_step "$fast"
  member_is slow_bytes_per_step "$slow"
}

trains '' --mesh dp=4
digest=$(member digest)
states=$(member state_digest)
member_is zero z1=4,z2=1,z3=1
member_is overlap background
counts --mesh dp=4

for zero in none zero2 zero3 replica:2 hier:2 z1=4,z2=1,z3=4 z1=4,z2=4,z3=2 \
  z1=2,z2=1,z3=2; do
  trains "$digest" --mesh dp=4 --zero $zero
  member_is state_digest "$states"
  counts --mesh dp=4 --zero $zero
done
for way in '--overlap none' '--overlap main' '--message parameter' \
  '--prefetch 0' '--prefetch 5' '--replica-sum allreduce' \
  '--link intra=4GB/s,inter=1GB/s,latency=5us' '--strategy layerwise' \
  '--set model.recompute=on'; do
  # shellcheck disable=SC2086
  trains "$digest" --mesh dp=4 --zero hier:2 $way
done
for zero in zero1 zero3 zero2 z1=4,z2=2,z3=4; do
  trains "$digest" --mesh dp=4 --zero $zero --collectives node
  member_is state_digest "$states"
  counts --mesh dp=4 --zero $zero --collectives node
done
refuses 'does not have the same number of ranks on every node of 3' -- train \
  --mesh dp=4 --zero zero3 --collectives node --ranks-per-node 3
for strategy in layerwise replicated; do
  trains "$digest" --mesh dp=4 --collectives auto --strategy $strategy
  counts --mesh dp=4 --collectives auto --strategy $strategy
done
refuses 'has 3, 1 ranks on its nodes of 3, not the same power of two' -- \
  train --mesh dp=4 --collectives node --ranks-per-node 3
# shellcheck disable=SC2086
canzona ${quick%--ranks-per-node*} --mesh dp=4 --collectives auto --ranks-per-node 3 --dry-run
exits 0
prints 'direct: the group of 4 data-parallel ranks' '3, 1 ranks on its nodes'
trains '' --mesh dp=4 --set model.tied=on
trains "$(member digest)" --mesh dp=4 --zero hier:2 --set model.tied=on
counts --mesh dp=4 --zero hier:2 --set model.tied=on

# Frozen tensors are gathered like all else and never change.
frozen="--mesh dp=4 --set freeze=*embed*,*layers.0.*"
# shellcheck disable=SC2086
trains '' $frozen
for zero in zero3 hier:2 zero2; do
  # shellcheck disable=SC2086
  trains "$(member digest)" $frozen --zero $zero
done
refuses 'freezes no tensor' -- train --set freeze=nothing

# With tp and pp, and neighbours of a pipeline that share their gathers.
# shellcheck disable=SC2086
for zero in zero3 none z3=2; do
  trains '' --mesh dp=2,tp=2 --set batch.global=2
  trains "$(member digest)" --mesh dp=2,tp=2 --set batch.global=2 --zero $zero
done
two="--mesh dp=2,pp=2 --set batch.global=8"
# shellcheck disable=SC2086
trains '' $two --zero z1=2,z2=1,z3=2
# shellcheck disable=SC2086
trains "$(member digest)" $two --zero z1=2,z2=1,z3=2 --reuse
# shellcheck disable=SC2086
trains '' $two --zero zero3 --rule soap --reuse
# A tied embedding is gathered once more, for the head's stage.
for way in '' '--reuse'; do
  # shellcheck disable=SC2086
  trains '' $two --zero zero3 --set model.tied=on $way
  # shellcheck disable=SC2086
  counts $two --zero zero3 --set model.tied=on $way
done

# auto chooses the fastest sizes that fit, or says what the nearest ones lack.
trains "$digest" --mesh dp=4 --zero auto --memory-cap 1GB
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --zero auto --memory-cap 1GB --dry-run
exits 0
prints 'Ranking' 'activations' 'of the cap' '4,1,1' 'the fastest of'
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --zero auto --dry-run --json --quiet
is_json
has_member 'ranking sizes 0 predicted_iteration_seconds'
# shellcheck disable=SC2086
refuses 'sizes of ZeRO: no layout fits in 341.80 KiB' 'lacks' \
  -- $quick --mesh dp=4 --zero auto --memory-cap 350kB

# The command of the tour, as it stands there.
try='--preset small --ranks 8 --set batch.global=64 --zero auto --memory-cap 2GB'
# shellcheck disable=SC2086
canzona train $try --dry-run
exits 0
prints 'the fastest of' 'of the cap'
for page in docs/tour.md docs/zero.md cli/train.cc; do
  checks=$((checks + 1))
  grep -qF -e "$try" "$(dirname "$0")/../../$page" || fail "$page has another"
done

# Experts over ranks of their own.
experts='--mesh dp=2,ep=2 --set model.experts=4 --set model.expert_ffn=16'
# shellcheck disable=SC2086
trains '' $experts
digest=$(member digest)
for sizes in zero3 'hier:2 --zero-experts zero3' 'none --zero-experts zero2'; do
  # shellcheck disable=SC2086
  trains "$digest" $experts --zero $sizes
  # shellcheck disable=SC2086
  counts $experts --zero $sizes
done
# shellcheck disable=SC2086
canzona $quick $experts --zero auto --zero-experts auto --dry-run
exits 0
prints 'Ranking' 'the fastest of'

# The user sees the sizes and the bytes.
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --zero hier:2 --run run
exits 0
says 'zero: z1=4,z2=2,z3=2, background, 3 modules ahead; a rank sends'
prints 'digest'
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --zero hier:2 --dry-run
exits 0
prints 'pools' 'zero: z1=4,z2=2,z3=2'
canzona report run
exits 0
canzona config show --zero hier:2 --mesh dp=4 --overlap main
exits 0
prints 'zero.sizes' 'hier:2' '--zero' 'zero.overlap' 'links.ranks_per_node'
canzona config keys
prints 'zero.prefetch' 'zero.reuse' 'plan.memory_cap' 'links.model'

# Refused, with the reason.
refuses 'z1 = 3 does not divide the 4 data-parallel ranks' \
  -- train --mesh dp=4 --zero z1=3
refuses 'z2 = 3 does not divide z1 = 4' -- train --mesh dp=4 --zero z2=3
refuses 'neither of z2 = 2 and z3 = 3 divides the other' \
  -- train --mesh dp=6 --zero z2=2,z3=3 --set batch.global=12
refuses 'z3 = 8 does not divide z1 = 4' -- train --mesh dp=4 --zero z3=8
refuses 'z1 = 2 does not divide the 1 data-parallel ranks' \
  -- train --mesh dp=1 --zero replica:2
refuses '(--zero-experts): z1 = 4 does not divide the 2 data-parallel ranks' \
  -- train --preset moe-tiny --mesh dp=2,ep=2 --zero-experts replica:4
refuses 'zero.experts (--zero-experts)' 'hier:Z' \
  -- train --preset moe-tiny --mesh dp=2,ep=2 --zero-experts her:2
refuses '--zero-experts' 'has no experts' \
  -- train --mesh dp=4 --zero-experts zero3
refuses '--zero' 'hier:Z' -- train --mesh dp=4 --zero her:4
refuses 'zero.sizes (--set)' -- train --mesh dp=4 --set zero.sizes=z9=1
refuses 'zero.overlap (--overlap)' 'none, main, background' \
  -- train --mesh dp=4 --overlap all
refuses 'zero.message' -- train --mesh dp=4 --message tensor
refuses 'zero.prefetch (--prefetch)' -- train --mesh dp=4 --prefetch many
refuses 'link' -- train --mesh dp=4 --link intra=1GB/s
refuses 'plan.memory_cap' -- train --mesh dp=4 --memory-cap much
refuses 'too much' -- train --mesh dp=4 --memory-cap 8MB
refuses 'activations alone' -- train --mesh dp=4 --memory-cap 1kB
finish
