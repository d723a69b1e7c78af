#!/bin/sh
# step_faults.sh <mpirun> <canzona> <deadline in ms> <grace in ms>
#                plain|zero|teams|helpers <seed> <trials>
#
# Runs steps of a plan (zero: training with slices; teams: of a plan whose
# matrices are shared; helpers: of one whose owners have helpers) on four
# processes and, at a random moment, kills, stops or ends one of them from
# outside. Where matrices are shared, a rank may also throw, stop or be killed in
# one of its collectives. The others have to end by themselves, with exit status
# 4 and words that name it, and the matrix and who shares it if they wait for
# such a rank, within the deadline and the grace.
# Prints how many trials there were and how long the slowest rank took.
set -u
mpirun=$1
canzona=$2
deadline_ms=$3
limit_ms=$((deadline_ms + $4))
kind=$5
state=$6
trials=$7

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
slowest=0
num_with_teams=0  # trials in which a rank waited for a team
# What errors say of a shared matrix; empty where none is.
case $kind in
  teams) sharers='team ([0-9, ]*)' ;;
  helpers) sharers='owner [0-9]*, helper [0-9]*' ;;
  *) sharers='' ;;
esac

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
if [ "$rank" = "$VICTIM" ] && [ -n "$FAULT" ]; then
  export CANZONA_TEST_FAULT="$FAULT"
fi
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

# The first rank says something once all have met.
wait_for_steps() {
  for _ in $(seq 1200); do
    [ -s "$OUT/0.out" ] && return 0
    sleep 0.05
  done
  complain "no step in 60 s: $(cat "$OUT"/*.err)"
  return 1
}

# A fault that a rank was asked for leaves a file.
wait_for_fault() {
  for _ in $(seq 1200); do
    if [ -e "$OUT/happened" ]; then
      fault=$(date -r "$OUT/happened" +%s%3N)
      return
    fi
    sleep 0.05
  done
  complain "no fault in 60 s: $(cat "$OUT"/*.err)"
}

names_victim() {  # <file>...
  cat "$@" | grep -q -e "rank $victim\>" -e "ranks .*\<$victim\>"
}

# A rank that waits for a stopped one through a third may name that one alone.
check_words() {
  for rank in 0 1 2 3; do
    [ $rank = "$victim" ] || others="$others $OUT/$rank.err"
  done
  # shellcheck disable=SC2086
  names_victim $others || complain "no word of rank $victim: $(cat $others)"
}

check_rank() {  # <rank>
  status=$(cat "$OUT/$1.status" 2>/dev/null || echo none)
  [ "$status" = 4 ] ||
    complain "rank $1: status $status, expected 4: $(cat "$OUT/$1.err")"
  case "$kind $signal" in
    'zero STOP' | 'teams STOP' | 'teams stop') ;;
    'helpers STOP' | 'helpers stop') ;;
    *)
      names_victim "$OUT/$1.err" ||
        complain "rank $1: no word of rank $victim: $(cat "$OUT/$1.err")"
      ;;
  esac
  # On a slow machine a fault may come while groups are founded.
  grep -q -e "#[0-9]* '" -e "split #" -e "to create" -e "creating" \
    "$OUT/$1.err" || complain "rank $1: no operation: $(cat "$OUT/$1.err")"
  took=$(($(cat "$OUT/$1.ended") - fault))
  [ "$took" -le $limit_ms ] || complain "rank $1: ended after $took ms"
  [ "$took" -le $slowest ] || slowest=$took
}

# Whoever waits for ranks that share a matrix says for whom and which it is.
check_teams() {
  # shellcheck disable=SC2086
  grep -h 'of teams [0-9]*: .*#[0-9]* ' $others >"$folder/told" || return
  num_with_teams=$((num_with_teams + 1))
  unnamed=$(grep -v "#[0-9]* 'layers\.0\.[a-z]*, $sharers'" \
    "$folder/told") && complain "no matrix and who shares it: $unnamed"
}

plain_arguments() {
  echo bench step --model qwen3-0.6b --scale 1/16 --layers 2 --warmup 0 \
    --iterations 0 --compute 0 --bucket-elements 100000 --audit
}
# Matrices of which one is too large for one rank, and a table of costs with
# which sharing always pays.
printf '%s' '[{"name": "layers.0.large", "shape": [4096, 128], "tp": "rows"},
  {"name": "layers.0.up", "shape": [1024, 128], "tp": "rows"},
  {"name": "layers.0.down", "shape": [128, 1024], "tp": "columns"},
  {"name": "layers.0.q", "shape": [128, 128], "tp": "rows"},
  {"name": "norm", "shape": [32]}]' >"$folder/shared.json"
printf '%s' '{"format": "canzona.cost_table", "version": 1, "kind": "cpu",
  "device": "a slow one", "precision": "fp32", "date": "2026-01-01",
  "measurements": [{"rule": "muon", "algorithm": "gram",
    "options": {"newton_schulz": "gram"},
    "entries": [{"rows": 64, "cols": 256, "seconds": 1}]}]}' \
  >"$folder/slow.json"
shared_arguments() {  # <model> <costs>
  echo bench step --model "$folder/$1.json" --cost "$folder/$2.json" \
    --teams auto $options --warmup 0 --iterations 0 --compute 0 --audit
}
# Matrices with two factors, and a table with which helpers pay.
printf '%s' '[{"name": "layers.0.large", "shape": [224, 160], "tp": "rows"},
  {"name": "layers.0.q", "shape": [160, 160], "tp": "rows"},
  {"name": "layers.0.k", "shape": [64, 32], "tp": "columns"},
  {"name": "norm", "shape": [32]}]' >"$folder/helped.json"
printf '%s' '{"format": "canzona.cost_table", "version": 1, "kind": "cpu",
  "device": "a slow one", "precision": "fp32", "date": "2026-01-01",
  "measurements": [
    {"rule": "soap", "algorithm": "cholesky_qr", "entries": [
      {"rows": 64, "cols": 64, "seconds": 0.001, "refresh_seconds": 10}]},
    {"rule": "shampoo", "algorithm": "newton", "entries": [
      {"rows": 64, "cols": 64, "seconds": 0.001, "refresh_seconds": 10}]}]}' \
  >"$folder/slow_refreshes.json"
teams_arguments() {
  shared_arguments shared slow
}
helpers_arguments() {
  shared_arguments helped slow_refreshes
}
zero_arguments() {
  echo train --set model.hidden=32 --set model.ffn=48 --set model.heads=4 \
    --set model.kv_heads=4 --set model.head_dim=8 --set model.length=16 \
    --set eval.sequences=8 --zero "$sizes" --overlap "$overlap" \
    --message "$message"
}

run_trial() {
  OUT=$folder/out VICTIM=$victim FAULT=''
  case $signal in
    [a-z]*)
      FAULT="rank=$victim,at=collective,number=$number,kind=$signal"
      FAULT="$FAULT,group=$group,once=$OUT/happened"
      ;;
  esac
  export OUT VICTIM FAULT
  rm -rf "$OUT"
  mkdir "$OUT"
  # shellcheck disable=SC2046
  timeout -k 5 120 "$mpirun" -n 4 sh "$folder/rank.sh" "$canzona" \
    $(${kind}_arguments) --steps 1000000 --mesh "$mesh" --rule "$rule" \
    --strategy "$strategy" --deadline ${deadline_ms}ms >"$OUT/mpirun" 2>&1 &
  launched=$!
  if [ -n "$FAULT" ]; then
    wait_for_fault
  elif wait_for_steps; then
    sleep "$delay"
    fault=$(now_ms)
    kill "-$signal" "$(cat "$OUT/$victim.pid")"
  fi
  wait $launched
  [ $? -ne 124 ] || complain "not over after 120 s"
  [ -z "${fault:-}" ] && return
  check_words
  [ -z "$sharers" ] || check_teams
  for rank in 0 1 2 3; do
    [ $rank = "$victim" ] || check_rank $rank
  done
}

pick() {  # <word>...: into $picked
  draw $#
  shift "$drawn"
  picked=$1
}

pick_plain() {
  pick KILL STOP TERM && signal=$picked
  pick dp=4 dp=2,tp=2 tp=4 && mesh=$picked
  pick muon soap adamw && rule=$picked
  pick balanced layerwise replicated && strategy=$picked
  what="$mesh $rule $strategy"
}
# A step has about twenty collectives.
pick_shared() {
  pick KILL STOP TERM kill stop throw && signal=$picked
  pick tp=4 dp=2,tp=2 && mesh=$picked
  draw 200 && number=$((drawn + 60)) group=''
  strategy=balanced
}
# Muon's teams share strips; blocks of the others have owners of their own.
pick_teams() {
  pick_shared
  pick muon muon shampoo soap && rule=$picked
  case $rule in
    muon) options='--rule-option strips=8 --rule-option newton_schulz=gram' ;;
    soap) options='--rule-option long_sides=cut' ;;
    *) options='' ;;
  esac
  [ $rule = muon ] ||
    options="$options --rule-option max_preconditioner_dim=64"
  what="$mesh $rule, collective $number"
}
# Helpers have something to do in refreshes alone.
pick_helpers() {
  pick_shared
  pick soap shampoo && rule=$picked
  pick 1 3 && every=$picked
  options="--rule-option precondition_frequency=$every"
  # Half of the faults in collectives are in exchanges with helpers; with dp=2 a
  # home may have none.
  [ $mesh = tp=4 ] && pick '' teams && group=$picked
  [ -z "$group" ] || number=$((number / 10))
  what="$mesh $rule, refresh every $every, collective $number${group:+ of $group}"
}
# Training heeds TERM: all ranks end in good order.
pick_zero() {
  pick KILL STOP USR2 && signal=$picked
  pick dp=4 dp=4 dp=2,tp=2 && mesh=$picked
  pick zero3 zero2 replica:2 hier:2 z2=2 z3=2 && sizes=$picked
  pick none main background && overlap=$picked
  pick module parameter && message=$picked
  pick muon soap adamw && rule=$picked
  strategy=balanced
  what="$mesh $sizes overlap $overlap message $message $rule"
}

for trial in $(seq "$trials"); do
  fault='' others=''
  "pick_$kind"
  draw 4 && victim=$drawn
  draw 1000 && delay=$(printf '0.%03d' "$drawn")
  what="$signal to rank $victim after $delay s, $what"
  run_trial
done
echo "$trials trials, the last rank ended $slowest ms after a fault"
if [ -n "$sharers" ]; then
  echo "in $num_with_teams of them ranks waited for one that shares a matrix"
  [ "$trials" -lt 50 ] || [ $num_with_teams -gt 0 ] || complain 'no team'
fi
[ $failures -eq 0 ]
