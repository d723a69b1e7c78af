# canzona bench step on processes of MPI. The third argument is mpirun.
. "$(dirname "$0")/words.sh"
mpirun=$3

printf '%s' '[{"name": "layers.0.up", "shape": [64, 32], "tp": "rows"},
  {"name": "layers.0.down", "shape": [32, 64], "tp": "columns"},
  {"name": "norm", "shape": [32]}]' >small.json
small="bench step --model small.json --steps 2 --compute 0.001"

# ranks <n> <arguments>: the program, started n times.
ranks() {
  n=$1
  shift
  last="mpirun -n $n canzona $*"
  "$mpirun" -n "$n" "$program" "$@" >out 2>err </dev/null
  status=$?
}

# The same digests as threads give; one process prints.
# shellcheck disable=SC2086
canzona $small --mesh dp=2,tp=2 --strategy balanced --json
digest=$(member 'strategies 0 digest')
states=$(member 'strategies 0 state_digest')
# shellcheck disable=SC2086
ranks 4 $small --mesh dp=2,tp=2 --json --check-collectives
exits 0
is_json
member_is transport mpi
member_is digests_agree ON
member_is 'strategies 5 digest' "$digest"
member_is 'strategies 5 state_digest' "$states"
member_is 'strategies 5 bytes_sent_max' \
  "$(member 'strategies 5 bytes_predicted_max')"
# shellcheck disable=SC2086
canzona $small --mesh dp=4 --gradients random --strategy balanced --json
digest=$(member 'strategies 0 digest')
# shellcheck disable=SC2086
ranks 4 $small --mesh dp=4 --gradients random --json --ranks-per-node 2 \
  --collectives node
exits 0
member_is digests_agree ON
for i in 0 1 2 3 4 5; do
  member_is "strategies $i digest" "$digest"
  member_is "strategies $i collectives" node
  member_is "strategies $i slow_bytes_sent_max" \
    "$(member "strategies $i slow_bytes_predicted_max")"
done
# shellcheck disable=SC2086
ranks 2 $small --mesh dp=2 --strategy balanced --trace t.json
exits 0
checks=$((checks + 1))
[ -s t.0.json ] && [ -s t.1.json ] || fail 'no trace of each process'

# Every operation between ranks.
ranks 2 bench collectives --ranks 2 --bytes 1MB --rounds 1 --json --quiet
exits 0
is_json
member_is transport mpi
member_is 'collectives 2 operation' reduce_scatter_v

# Ranks and meshes that do not fit are refused.
# shellcheck disable=SC2086
ranks 2 $small --mesh dp=4
exits 2
says 'mpirun -n 4'
# shellcheck disable=SC2086
ranks 2 $small --mesh dp=2 --link intra=1GB/s,inter=1GB/s
exits 2
says 'only valid with --transport thread'
# shellcheck disable=SC2086
ranks 2 $small --mesh dp=2 --transport thread
exits 2
says 'several processes'
finish
