# canzona train on processes of MPI. The third argument is mpirun.
. "$(dirname "$0")/words.sh"
mpirun=$3

quick="train --steps 3 --set model.hidden=32 --set model.ffn=48
  --set model.heads=4 --set model.kv_heads=4 --set model.head_dim=8
  --set model.length=16 --set eval.sequences=8"

# ranks <n> <arguments>: the program, started n times.
ranks() {
  n=$1
  shift
  last="mpirun -n $n canzona $*"
  "$mpirun" -n "$n" "$program" "$@" >out 2>err </dev/null
  status=$?
}

# The same bits as threads give; one process writes the run.
for mesh in dp=2,tp=2 pp=2 dp=4; do
  # shellcheck disable=SC2086
  canzona $quick --mesh $mesh --json --quiet
  exits 0
  digest=$(member digest)
  number=$(member ranks)
  # shellcheck disable=SC2086
  ranks "$number" $quick --mesh $mesh --run "mpi_$mesh" --json --quiet
  exits 0
  is_json
  member_is transport mpi
  member_is digest "$digest"
  checks=$((checks + 1))
  [ "$(wc -l <"mpi_$mesh/metrics.jsonl")" = 3 ] || fail 'not a line per step'
done

# Without a mesh the processes are data-parallel; a contradiction is refused.
# shellcheck disable=SC2086
ranks 2 $quick --json --quiet
exits 0
member_is mesh dp=2
# shellcheck disable=SC2086
ranks 2 $quick --mesh dp=4
exits 2

# However tensors are cut; processes measure and choose alike. Links are
# modelled between threads alone.
for zero in hier:2 zero3; do
  # shellcheck disable=SC2086
  canzona $quick --mesh dp=4 --zero $zero --json --quiet
  exits 0
  digest=$(member digest)
  # shellcheck disable=SC2086
  ranks 4 $quick --mesh dp=4 --zero $zero --json --quiet
  exits 0
  member_is digest "$digest"
done
# shellcheck disable=SC2086
ranks 4 $quick --mesh dp=4 --zero zero3 --collectives node --ranks-per-node 2 \
  --json --quiet
exits 0
member_is digest "$digest"
# shellcheck disable=SC2086
ranks 2 $quick --zero auto --memory-cap 1GB --json --quiet
exits 0
member_is mesh dp=2
# shellcheck disable=SC2086
ranks 2 $quick --zero zero3 --link intra=1GB/s,inter=1GB/s
exits 2
says 'links are modelled between threads only'

# A dry run is shown once, by the first process.
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --dry-run --color never
exits 0
mv out once
# shellcheck disable=SC2086
ranks 4 $quick --mesh dp=4 --dry-run --color never
exits 0
checks=$((checks + 1))
cmp -s out once || fail 'a dry run of 4 processes is not that of one'
# shellcheck disable=SC2086
ranks 2 $quick --dry-run --json
exits 0
is_json

finish
