# canzona train on processes of MPI. The third argument is mpirun.
. "$(dirname "$0")/words.sh"
mpirun=$3

quick="train --set steps=3 --set model.hidden=32 --set model.ffn=48
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

# D2: ranks that were not asked to do the same are refused before the first step,
# with both hashes.
last='mpirun -n 1 canzona … --seed 1 : -n 1 canzona … --seed 2'
# shellcheck disable=SC2086
"$mpirun" -n 1 "$program" $quick --mesh dp=2 --seed 1 : \
  -n 1 "$program" $quick --mesh dp=2 --seed 2 >out 2>err </dev/null
status=$?
exits 2
says 'have different configurations' 'rank 0 has' 'rank 1 has'
lacks out step:
checks=$((checks + 1))
[ "$(grep -o '[0-9a-f]\{64\}' err | sort -u | wc -l)" = 2 ] ||
  fail 'not two hashes'

# Ranks that compute in different precisions are refused at the start, with both
# names.
last='mpirun -n 1 canzona … : -n 1 canzona …'
# shellcheck disable=SC2086
"$mpirun" -n 1 "$program" $quick --mesh dp=2 --rule-option precision=fp32 : \
  -n 1 "$program" $quick --mesh dp=2 --rule-option precision=bf16 \
  >out 2>err </dev/null
status=$?
exits 2
says 'rank 0 on' 'has fp32 (--rule-option)' 'rank 1 on' \
  'has bf16 (--rule-option)' 'precision=fp32'

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
canzona $quick --mesh dp=4 --json --quiet
exits 0
digest=$(member digest)
# shellcheck disable=SC2086
ranks 4 $quick --mesh dp=4 --collectives node --ranks-per-node 2 --json --quiet
exits 0
member_is digest "$digest"
# shellcheck disable=SC2086
ranks 2 $quick --zero auto --memory-cap 1GB --json --quiet
exits 0
member_is mesh dp=2
# shellcheck disable=SC2086
ranks 2 $quick --zero zero3 --link intra=1GB/s,inter=1GB/s
exits 2
says 'only valid with --transport thread'

# --- How a run ends.
long="$quick --mesh dp=2 --run run --set data.held_out=0.9"

# begins <arguments>: mpirun in the background, until the file $until holds
# $text; its number is in $process.
begins() {
  rm -rf run
  last="mpirun canzona $*"
  OMPI_MCA_odls_base_sigkill_timeout=5 "$mpirun" -n 2 "$program" "$@" \
    >out 2>err </dev/null &
  process=$!
  while ! grep -qF -e "$text" "$until" 2>/dev/null &&
    kill -0 "$process" 2>/dev/null; do
    sleep 0.1
  done
}
# The ranks that mpirun has started, as numbers of processes.
ranks_of() {
  for stat in /proc/[0-9]*/stat; do
    sed "s/(.*)//" "$stat" 2>/dev/null
  done | awk -v parent="$1" '$3 == parent { print $1 }'
}

# Ctrl-C at mpirun, or SIGTERM, is a SIGTERM for the ranks. (A shell's background
# process ignores SIGINT.)
until=run/metrics.jsonl text='"step":1,'
# shellcheck disable=SC2086
begins $long --steps 1000000
kill -TERM "$process"
wait "$process"
status=$?
checks=$((checks + 1))
[ $status -ne 0 ] || fail 'mpirun ended as if all was done'
there run/model.safetensors
there run/report.html
checks=$((checks + 1))
grep -qF '"state": "stopped"' run/summary.json || fail 'no summary of the end'

# A rank that is lost during the last evaluation: weights and summary were in
# their place before.
until=run/summary.json text='"state": "finished"'
# shellcheck disable=SC2086
begins $long --set eval.sequences=all
there run/model.safetensors
kill -KILL "$(ranks_of "$process" | tail -n 1)"
wait "$process"
status=$?
checks=$((checks + 1))
[ $status -ne 0 ] || fail 'mpirun ended as if all was done'
there run/model.safetensors
checks=$((checks + 1))
grep -qF '"steps": 3' run/summary.json || fail 'no summary of the end'

# --- A run goes on, on as many processes, on threads or on others.
# shellcheck disable=SC2086
canzona $quick --mesh dp=2 --steps 6 --json --quiet
exits 0
digest=$(member digest)
# shellcheck disable=SC2086
ranks 2 $quick --mesh dp=2 --steps 6 --run kept --save-every 3 --keep-last 0 \
  --json --quiet
exits 0
member_is digest "$digest"
member_is saved_step 6
ranks 2 train --run kept --resume 3 --json --quiet
exits 0
member_is digest "$digest"
member_is start_step 3
canzona train --run kept --resume 3 --json --quiet
exits 0
member_is digest "$digest"
ranks 4 train --run kept --resume 3 --json --quiet
exits 0
member_is mesh dp=4
member_is steps 6

# R12, R13: a signal to one rank alone; all save and end after the same step.
until=run/ckpt/latest text=step
# shellcheck disable=SC2086
begins $long --steps 1000000 --save-every 2 --set log.every=1000000
kill -USR1 "$(ranks_of "$process" | tail -n 1)"
sleep 0.5
kill -TERM "$(ranks_of "$process" | tail -n 1)"
wait "$process"
status=$?
checks=$((checks + 1))
[ $status -ne 0 ] || fail 'mpirun ended as if all was done'
steps=$(sed -n 's/^ *"steps": \([0-9]*\),$/\1/p' run/summary.json | head -1)
there "run/ckpt/$(printf 'step_%08d' "$steps")/manifest.json"
canzona ckpt verify run
exits 0
ranks 2 train --run run --resume auto --steps $((steps + 1)) --json --quiet
exits 0
member_is start_step "$steps"

# The time that Open MPI's mpirun gives is told where it is short.
# shellcheck disable=SC2086
ranks 2 $quick --run told
exits 0
if "$mpirun" --version | grep -q 'Open MPI\|OpenRTE'; then
  says 'mpirun gives its ranks 1 s' 'odls_base_sigkill_timeout 10'
fi

# A dry run is shown once, by the first process.
# shellcheck disable=SC2086
canzona $quick --mesh dp=4 --dry-run --color never
exits 0
mv out once
# shellcheck disable=SC2086
ranks 4 $quick --mesh dp=4 --dry-run --color never
exits 0
checks=$((checks + 1))
[ "$(wc -l <out)" -eq "$(wc -l <once)" ] ||
  fail 'a dry run of 4 processes is not as long as that of one'
# shellcheck disable=SC2086
ranks 2 $quick --dry-run --json
exits 0
is_json

finish
