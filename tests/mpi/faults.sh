#!/bin/sh
# faults.sh <mpirun> <program> <deadline in ms> <grace in ms>
#           <fault,operation,victim>...
#
# Runs four ranks of fault_rank or zero_fault_rank of which one fails, once for
# each trial, and checks that the others end by themselves, within the deadline
# and the grace, with exit status 4 and words that name it.
#
# mpirun ends ranks soon after the first has gone. So that we see what they do
# by themselves, each has a shell that stays until all have ended. Then the same
# again without: mpirun has to end, with a status that tells of the failure,
# and lets the others speak. Their words go to files, because mpirun does not
# always pass on what was written last.
set -u
mpirun=$1
program=$2
deadline_ms=$3
grace_ms=$4
shift 4

# MPICH's launcher kills the other ranks at once, before they can report.
num_heard=3
"$mpirun" --version 2>&1 | grep -q HYDRA && num_heard=0
# The limit covers the start and two pauses of a second in mpirun, on a busy
# machine.
limit_s=$((20 + (deadline_ms + grace_ms) / 1000))
PATIENCE=$((1 + (deadline_ms + grace_ms) / 1000))
export PATIENCE
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
slowest=0

complain() {
  echo "$trial: $1" >&2
  failures=$((failures + 1))
}

cat >"$folder/plain.sh" <<'RANK'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}
exec "$@" >"$OUT/$rank.words" 2>"$OUT/$rank.errors"
RANK

# A rank that has stopped never ends: it is killed once all others have. Any
# other has the time that it is promised.
cat >"$folder/rank.sh" <<'RANK'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}
"$@" >"$OUT/$rank.words" 2>"$OUT/$rank.errors" &
child=$!
num_ended() {
  find "$OUT" -name '*.status' | wc -l
}
{
  while [ "$(num_ended)" -lt 3 ]; do sleep 0.02; done
  if [ "$rank" = "$4" ]; then sleep 1; else sleep "$PATIENCE"; fi
  kill -KILL $child
} 2>/dev/null &
watcher=$!
wait $child
status=$?
kill $watcher
echo $status >"$OUT/$rank.status"
while [ "$(num_ended)" -lt 4 ]; do sleep 0.02; done
exit 0
RANK

run_once() {  # <script that runs a rank>
  rm -rf "$folder/out"
  mkdir "$folder/out"
  OUT=$folder/out
  export OUT
  timeout -k 5 $limit_s "$mpirun" -n 4 sh "$1" "$program" "$fault" \
    "$operation" "$victim" $deadline_ms >"$OUT/mpirun" 2>&1
  mpirun_status=$?
}

num_speakers() {
  cat "$OUT"/*.words "$OUT"/*.errors | grep -c -e "$words"
}

# Open MPI's mpirun sometimes stays although its ranks have ended. That is no
# fault of the ranks if the others have spoken, so the trial is repeated, twice
# at most; a rank that hangs has not spoken.
run_trial() {  # <script that runs a rank>
  for attempt in 1 2 3; do
    run_once "$1"
    [ $mpirun_status -eq 124 ] || return 0
    [ "$(num_speakers)" -ge 3 ] || break
    echo "$trial: mpirun stayed after its ranks, run $attempt of 3" >&2
  done
  complain "not over after $limit_s s"
}

# expect <rank> <statuses> <words>: checks how the rank ended and what it said.
expect() {
  status=$(cat "$OUT/$1.status" 2>/dev/null || echo none)
  case " $2 " in
    *" $status "*) ;;
    *) complain "rank $1: status $status, expected $2" ;;
  esac
  cat "$OUT/$1.words" "$OUT/$1.errors" | grep -q -e "$3" ||
    complain "rank $1: '$3' is not in: $(cat "$OUT/$1.words" \
      "$OUT/$1.errors")"
}

# Prints what the others say of the victim. A rank that waits for it through a
# third may first miss that one; whoever meets it knows better: words_of_peer.
words_of_others() {
  case $fault,$operation in
    stop,end) echo "error: rank .*MPI did not end .*rank $victim is stopped" ;;
    *) words_of_survivors ;;
  esac
}
words_of_survivors() {
  case $fault in
    none | pause) echo "all done" ;;
    longer | shorter) echo "rank $victim sent" ;;
    stuck) echo "\(MPI has not returned from a call\|lost\).*rank $victim\
 has ended" ;;
    throw) echo "lost: .*rank $victim .*no more paper" ;;
    leave) echo "lost: .*rank $victim \(has left\|did not arrive\)" ;;
    stop)
      case $operation in
        *.*) echo "lost: .*did not \(arrive\|complete\)" ;;
        *) echo "lost: .*rank $victim did not \(arrive\|complete\)" ;;
      esac ;;
    *) echo "lost: .*rank $victim has ended without notice" ;;
  esac
}

# With slices: finds who meets the victim in the operation, and what it says of
# it. In the background it may hear of it in another operation.
find_peer() {
  peer=
  case $operation in
    gather.none) said=all_gather_v distance=1 ;;
    scatter.none) said=reduce_scatter_v distance=1 ;;
    sum.none) said=reduce_scatter_v distance=2 ;;
    replicas.none) said=all_reduce distance=2 ;;
    publish.none | experts_gather.none) said=all_gather_v distance=2 ;;
    experts_scatter.none) said=reduce_scatter_v distance=2 ;;
    *) return ;;
  esac
  peer=$((victim ^ distance))
}
words_of_peer() {
  echo "lost: rank $peer of [a-z: 0-9]*: $said #[0-9]* 'layer 1[^']*'.*rank $victim "
}

check_time() {
  for time in $(sed -n 's/^after \([0-9]*\) ms$/\1/p' "$OUT"/*.words); do
    [ "$time" -le $((deadline_ms + grace_ms)) ] ||
      complain "lost after $time ms"
    [ "$time" -le $slowest ] || slowest=$time
  done
}

check_ranks() {
  for rank in 0 1 2 3; do
    case $fault in
      none | pause) expect $rank 0 "$words" ;;
      longer | shorter)
        [ $rank = "$victim" ] || expect $rank "2 4" "$words" ;;
      *)
        [ $rank = "$victim" ] || expect $rank 4 "$words"
        [ $rank != "$peer" ] || expect $rank 4 "$(words_of_peer)" ;;
    esac
  done
  check_time
  # R6: with its own status and reason, whichever thread it was.
  [ "$fault" != throw ] || expect "$victim" 1 "failed: no more paper"
}

is_mpirun_right() {
  num=$(num_speakers)
  case $fault in
    none | pause) [ "$num" -eq 4 ] && [ $mpirun_status -eq 0 ] ;;
    stuck)  # who is stuck may be ended by mpirun first
      [ $((num + 1)) -ge $num_heard ] && [ $mpirun_status -ne 0 ] ;;
    *) [ "$num" -ge $num_heard ] && [ $mpirun_status -ne 0 ] ;;
  esac
}

# mpirun gives the others a second, which may be too short for a rank to speak
# on a busy machine, so one run of three is enough.
check_mpirun() {
  for run in 1 2 3; do
    run_trial "$folder/plain.sh"
    is_mpirun_right && return
  done
  complain "mpirun: status $mpirun_status, $(cat "$OUT"/*)"
}

for trial in "$@"; do
  fault=${trial%%,*}
  victim=${trial##*,}
  operation=${trial#*,}
  operation=${operation%,*}
  words=$(words_of_others)
  find_peer
  run_trial "$folder/rank.sh"
  check_ranks
  check_mpirun
done
echo "$# trials, the last rank ended $slowest ms after its operation began"
[ $failures -eq 0 ]
