#!/bin/sh
# step_faults.sh <mpirun> <canzona> <seed> <trials> <seconds>
#
# Runs steps of a plan on four processes and, at a random moment, kills, stops or
# ends one of them from outside. The others have to end by themselves, with exit
# status 4 and words that name it, within the deadline and so many seconds.
# Prints how many trials there were and how long the slowest rank took.
set -u
mpirun=$1
canzona=$2
state=$3
trials=$4

deadline_ms=1000
limit_ms=$((deadline_ms + 1000 * $5))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
slowest=0

complain() {
  echo "trial $trial ($what): $1" >&2
  failures=$((failures + 1))
}

# The same numbers everywhere for the same seed.
draw() {  # <below>: into $drawn
  state=$(((state * 1103515245 + 12345) % 2147483648))
  drawn=$((state / 65536 % $1))
}

now_ms() {
  date +%s%3N
}

# mpirun ends all ranks soon after the first has gone: each has a shell that
# stays until all have ended. One that was stopped is killed then.
cat >"$folder/rank.sh" <<'RANK'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}
num_ended() {
  find "$OUT" -name '*.status' | wc -l
}
"$@" >"$OUT/$rank.out" 2>"$OUT/$rank.err" &
child=$!
echo $child >"$OUT/$rank.pid"
{
  while [ "$(num_ended)" -lt 3 ]; do sleep 0.05; done
  sleep 1
  kill -KILL $child
} 2>/dev/null &
watcher=$!
wait $child
status=$?
date +%s%3N >"$OUT/$rank.ended"
kill $watcher
echo $status >"$OUT/$rank.status"
while [ "$(num_ended)" -lt 4 ]; do sleep 0.05; done
exit 0
RANK

# The first rank shows an audit once all have met.
wait_for_audit() {
  for _ in $(seq 400); do
    [ -s "$OUT/0.out" ] && return 0
    sleep 0.05
  done
  complain "no step in 20 s: $(cat "$OUT"/*.err)"
  return 1
}

check_rank() {  # <rank>
  status=$(cat "$OUT/$1.status" 2>/dev/null || echo none)
  [ "$status" = 4 ] ||
    complain "rank $1: status $status, expected 4: $(cat "$OUT/$1.err")"
  grep -q "rank $victim\>" "$OUT/$1.err" ||
    grep -q "ranks .*\<$victim\>" "$OUT/$1.err" ||
    complain "rank $1: no word of rank $victim: $(cat "$OUT/$1.err")"
  took=$(($(cat "$OUT/$1.ended") - fault))
  [ "$took" -le $limit_ms ] || complain "rank $1: ended after $took ms"
  [ "$took" -le $slowest ] || slowest=$took
}

run_trial() {
  OUT=$folder/out
  export OUT
  rm -rf "$OUT"
  mkdir "$OUT"
  timeout -k 5 60 "$mpirun" -n 4 sh "$folder/rank.sh" "$canzona" bench step \
    --model qwen3-0.6b --scale 1/16 --layers 2 --mesh "$mesh" --rule "$rule" \
    --strategy "$strategy" --steps 1000000 --warmup 0 --iterations 0 \
    --compute 0 --bucket-elements 100000 --audit \
    --deadline ${deadline_ms}ms >"$OUT/mpirun" 2>&1 &
  launched=$!
  if wait_for_audit; then
    sleep "$delay"
    fault=$(now_ms)
    kill "-$signal" "$(cat "$OUT/$victim.pid")"
  fi
  wait $launched
  [ $? -ne 124 ] || complain "not over after 60 s"
  [ -z "${fault:-}" ] && return
  for rank in 0 1 2 3; do
    [ $rank = "$victim" ] || check_rank $rank
  done
}

pick() {  # <word>...: into $picked
  draw $#
  shift "$drawn"
  picked=$1
}

for trial in $(seq "$trials"); do
  fault=
  pick KILL STOP TERM && signal=$picked
  pick dp=4 dp=2,tp=2 tp=4 && mesh=$picked
  pick muon soap adamw && rule=$picked
  pick balanced layerwise replicated && strategy=$picked
  draw 4 && victim=$drawn
  draw 1000 && delay=$(printf '0.%03d' "$drawn")
  what="$signal to rank $victim after $delay s, $mesh $rule $strategy"
  run_trial
done
echo "$trials trials, the last rank ended $slowest ms after a fault"
[ $failures -eq 0 ]
