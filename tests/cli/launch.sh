# Checks what canzona launch restarts, on how many ranks, what it says and its
# exit status. The program that it starts here is a script; runs of `train` are
# in tests/reliability.
. "$(dirname "$0")/words.sh"
unset OMPI_COMM_WORLD_RANK PMI_RANK PMI_SIZE SLURM_STEP_ID TORCHELASTIC_RUN_ID

computes launch --ranks 2

# The program notes its words and ends as the next line of the file `ends` says.
cat >program <<'PROGRAM'
#!/bin/sh
echo "$*" >>calls
end=$(head -n 1 ends)
sed -i 1d ends
echo "speaking"
echo "error: rank 1 of world: all_reduce #3 'layers.3' given up: rank 2 gone" >&2
case $end in
  [0-9]*) exit "$end" ;;
  WAIT)
    trap 'echo saved; exit 143' TERM
    trap 'echo saved; exit 130' INT
    echo $$ >waiting
    while :; do sleep 0.05; done ;;
  FALL)
    trap 'kill -SEGV $$' TERM INT
    while :; do sleep 0.05; done ;;
  SAVE) cp -r saved/. run && kill -KILL $$ ;;
  CLEAR) rm -r run/ckpt/step_00000004 run/ckpt/latest && kill -KILL $$ ;;
  BEGIN) mkdir run && touch run/metrics.jsonl && kill -KILL $$ ;;
  REBUILD) rm mine && cp "$REBUILT" mine && exit 4 ;;
  FLOOD)
    trap 'exit 143' TERM
    head -c 1000000 /dev/zero | tr '\0' 'x' | fold -w 100 ;;
  *) kill -"$end" $$ ;;
esac
PROGRAM
chmod +x program

# ends_by <end>...: what the program does when it is started for the first time,
# the second, …
ends_by() {
  printf '%s\n' "$@" >ends
  rm -f calls out err
}
# launches <options> -- <command>: with the script, as one process.
launches() {
  canzona launch --program ./program "$@" --transport thread
}
# waits_for <file> <text>: until the file has it, a minute at most.
waits_for() {
  n=0
  while [ $n -lt 1200 ] && ! grep -q -e "$2" "$1" 2>/dev/null; do
    sleep 0.05
    n=$((n + 1))
  done
}
# started <times>
started() {
  checks=$((checks + 1))
  [ "$(wc -l <calls)" = "$1" ] || fail "started $(wc -l <calls) times, not $1"
}
# called <text>...: the last words.
called() {
  for text in "$@"; do
    checks=$((checks + 1))
    tail -n 1 calls | grep -qF -e "$text" || fail "not called with $text"
  done
}
not_called() {
  checks=$((checks + 1))
  ! tail -n 1 calls | grep -qF -e "$1" || fail "called with $1"
}

# --- R3: a lost rank and a process that was killed are worth a restart, as
# given if the run has left nothing to resume.
for end in 4 KILL SEGV ABRT; do
  ends_by $end 0
  launches --ranks 2 -- train --run run
  exits 0
  started 2
  called '--ranks 2'
  not_called auto
  says 'restart 1 of 3 as given' 'done · 1 restart'
done
says 'one process runs all 2 ranks as threads'
ends_by BEGIN 0
launches --ranks 2 -- train --run run
exits 0
started 2
called '--resume auto' '--ranks 2'
rm -r run

# --- Once this job has saved a checkpoint, a restart uses --resume auto instead
# of the given resume options; before that the command is repeated unchanged.
canzona train --run saved --mesh dp=2,tp=2 --steps 4 --save-every 2 --quiet
exits 0
ends_by KILL 0
launches --ranks 2 -- train --run run --resume saved/ckpt/step_00000002
exits 0
started 2
called '--run run --resume saved/ckpt/step_00000002 --transport'
not_called auto
says 'restart 1 of 3 as given'
ends_by BEGIN SAVE 0
launches --ranks 2 -- train --run run --resume saved/ckpt/step_00000002
exits 0
started 3
called '--run run --transport thread --resume auto'
not_called step_
checks=$((checks + 1))
sed -n 2p calls | grep -qF -e 'step_00000002 --transport thread --overwrite' ||
  fail 'remains of this job are in its way'
# From here on the folder holds a run of another job.
for words in '--resume 2' --overwrite ''; do
  ends_by KILL 0
  launches --ranks 2 -- train --run run $words
  exits 0
  started 2
  not_called auto
  called "--run run${words:+ $words} --transport"
done
# A checkpoint that --overwrite has not removed yet was not saved by this job.
ends_by CLEAR KILL 0
launches --ranks 2 -- train --run run --overwrite
exits 0
started 3
called --overwrite
not_called auto
rm -r run

# --- A restart uses as many ranks as saved the checkpoint unless another number
# is requested.
ends_by 0
launches -- train --run saved --resume auto
exits 0
called '--ranks 4'
says '4 ranks, as in the checkpoint' dp=2,tp=2
ends_by 0
launches -- train --run other --resume saved/ckpt/step_00000002
called '--ranks 4'
ends_by 0
launches -- train --run saved --resume auto --mesh dp=2
lacks err 'as in the checkpoint'
says 'all 2 ranks'
ends_by 0
launches --ranks 2 -- train --run saved --resume auto
called '--ranks 2'

# --- A program that is rebuilt meanwhile is found again.
cp "$program" mine
ends_by REBUILD 0
last='canzona launch of a program that is replaced'
env REBUILT="$program" ./mine launch --program ./program --ranks 1 -- train \
  --run run --transport tcp >out 2>err </dev/null
status=$?
exits 0
started 2

# --- Signals end the launcher even if nobody reads its output.
mkfifo unread
exec 7<>unread
last='canzona launch, whose output nobody reads'
ends_by FLOOD
"$program" launch --program ./program --ranks 2 --grace 100ms -- train \
  --run run --transport thread >unread 2>err &
process=$!
waits_for calls train
kill -TERM $process
n=0
while [ $n -lt 1200 ] && kill -0 $process 2>/dev/null; do
  sleep 0.05
  n=$((n + 1))
done
kill -KILL $process 2>/dev/null
wait $process
status=$?
exec 7<&-
exits 143

# --- The next start removes the folder of a launcher that was killed, but not
# that of one that is still running.
mkdir temporary
TMPDIR=$PWD/temporary
export TMPDIR
last='canzona launch, killed'
ends_by WAIT
rm -f waiting
"$program" launch --program ./program --ranks 1 -- train --run run \
  --transport tcp >out 2>err &
process=$!
waits_for waiting .
kill -KILL $process
wait $process
status=$?
while kill -0 "$(cat waiting)" 2>/dev/null; do sleep 0.05; done
left=$(ls temporary)
checks=$((checks + 1))
[ "$(echo "$left" | wc -w)" = 1 ] || fail "folders: $left"
there=$(echo "$left" | sed "s/-$process-/-$$-/")
checks=$((checks + 1))
[ "$there" != "$left" ] || fail "$left does not name process $process"
mkdir "temporary/$there"
mkfifo "temporary/$there/hold"
ends_by 0
launches --ranks 2 -- train --run run
exits 0
checks=$((checks + 1))
[ "$(ls temporary)" = "$there" ] || fail "left: $(ls temporary), not $there"
unset TMPDIR

# --- Failures that would recur are not retried.
for end in 1 2 3 5 6 130 143; do
  ends_by $end 0
  launches --ranks 2 -- train --run run
  exits $end
  started 1
  says "exit $end"
done

# --- The number of restarts is limited.
ends_by 4 4 4 0
launches --ranks 2 --max-restarts 2 -- train --run run
exits 4
started 3
says '--max-restarts 2 reached' "all_reduce 'layers.3'" 'exit 4'
ends_by 4 0
launches --ranks 2 --max-restarts 0 -- train --run run
exits 4
started 1
says 'run it again with --resume auto'

# --- Nothing is restarted if there is nothing to resume from or no run at all.
ends_by 4 0
launches --ranks 2 -- train
exits 4
started 1
says 'without --run there is nothing to resume from'

# --- With --json, standard output is one JSON object; output of ranks goes
# elsewhere.
ends_by KILL 0
launches --ranks 2 --json -- train --run run
exits 0
is_json
member_is restarts 1
member_is exit 0
member_is transport thread
member_is 'attempts 0 ends 0 signal' SIGKILL
member_is 'attempts 0 cause' 'the run lost (SIGKILL)'
says speaking

# signalled <signal> <what it does then>: the run is sent it while it speaks, and
# is not started again.
signalled() {
  ends_by "$2" 0
  last="canzona launch, then $1 ($2)"
  "$program" launch --program ./program --ranks 2 -- train --run run \
    --transport thread >out 2>err &
  process=$!
  waits_for out speaking
  kill "-$1" $process
  wait $process
  status=$?
}

# --- R12, R13: signals are passed on; the run is not started again. One that
# crashes while it ends has still ended as it was asked to.
for signal in TERM:143 INT:130; do
  signalled "${signal%:*}" WAIT
  exits "${signal#*:}"
  started 1
  prints saved
  signalled "${signal%:*}" FALL
  exits "${signal#*:}"
  started 1
  says "the run lost (SIGSEGV" "· after SIG${signal%:*} ·" "exit ${signal#*:}"
done

# --- Shells start background processes with SIGINT ignored; and a pause between
# attempts ends at a signal.
ends_by 4 0
last='canzona launch, then TERM in its pause'
"$program" launch --program ./program --ranks 2 -- train --run run \
  --transport thread >out 2>err &
process=$!
waits_for err 'restart 1 of 3'
kill -TERM $process
wait $process
status=$?
exits 143
started 1
says "lost another (exit status 4) in all_reduce" '· after SIGTERM ·'

# --- With --elastic the mesh must be adaptable and the numbers consistent.
refuses '--elastic 2:4' 'dp=2,tp=2' '--mesh' -- launch --elastic 2:4 -- train \
  --run run --mesh dp=2,tp=2
echo '{"mesh": "dp=4"}' >fixed.json
refuses '--elastic 2:4' 'dp=4' 'fixed.json' -- launch --elastic 2:4 -- train \
  --run run --config fixed.json
refuses "--elastic '4:2'" -- launch --elastic 4:2 -- train --run run
refuses "--elastic '4'" 'MIN:MAX' -- launch --elastic 4 -- train --run run
refuses '--ranks 8' '2:4' -- launch --ranks 8 --elastic 2:4 -- train --run run
refuses 'only train' -- launch --elastic 2:4 -- bench step
# The fewest ranks have to suit the batch, ZeRO sizes and teams: launch would
# learn otherwise only when a rank is lost.
for sizes in hier:4 replica:4 z1=4,z2=2,z3=4; do
  refuses '--elastic 2:4' 'continue on 2 ranks' 'zero.sizes (--zero)' \
    'does not divide' -- launch --elastic 2:4 -- train --run run --zero $sizes
done
refuses '--elastic 2:4' 'continue on 2 ranks' '--teams 4' -- launch \
  --elastic 2:4 -- train --run run --zero zero3 --teams 4
refuses '--elastic 3:4' 'continue on 3 ranks' 'batch.global 16' -- launch \
  --elastic 3:4 -- train --run run
# Sizes of the command that suit them, and what a checkpoint says of the batch.
ends_by 0
launches --elastic 2:4 -- train --run other --zero hier:2
exits 0
canzona train --run twelve --mesh dp=4 --steps 2 --save-every 2 --quiet \
  --set batch.global=12
ends_by 0
launches --elastic 3:4 -- train --run twelve --resume auto
exits 0

# --- It refuses to run under other launchers.
last='canzona launch under other launchers'
for variables in 'TORCHELASTIC_RUN_ID=none torchrun' \
  'OMPI_COMM_WORLD_RANK=0 mpirun'; do
  env "${variables% *}" "$program" launch --ranks 2 -- train >out 2>err
  status=$?
  exits 2
  says 'not needed' "${variables#* }"
done
env SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 "$program" launch \
  --ranks 2 -- train >out 2>err
status=$?
exits 2
says 'not needed' srun

# --- A rank that a signal ended has done its step; another was in the next one.
canzona train --steps 2 --run measured --mesh dp=1 --set model.layers=1 --set model.hidden=32
exits 0
for end in 143:2 130:2 4:3; do
  ends_by "${end%:*}"
  launches --ranks 2 --max-restarts 0 -- train --run measured --resume auto
  says "(exit status ${end%:*}) at step ${end#*:}"
done

# --- Mistakes.
refuses 'nothing to start' -- launch --ranks 4
for ranks in 0 1000 -2; do
  refuses '--ranks' 'from 1 to 256' "'$ranks'" -- launch --ranks $ranks -- train
done
refuses '--max-restarts' "'x'" -- launch --ranks 2 --max-restarts x -- train
refuses '--ranks' 'from 1 to 256' "'99999999999'" -- launch --ranks 99999999999 -- train
refuses '--max-restarts' -- launch --ranks 2 --max-restarts -1 -- train
refuses "unknown option '--rnks'" "'--ranks'" -- launch --rnks 2 -- train
refuses 'give --ranks' -- launch -- bench step
refuses '--ranks 4' 'leave out the latter' -- launch --ranks 2 -- train --ranks 4
refuses "'/no/such'" -- launch --ranks 2 --program /no/such -- train --run run \
  --transport thread
refuses "'no'" tiny -- launch --ranks 2 -- train --preset no

# --- An injected fault that makes no sense is refused.
last='CANZONA_TEST_FAULT'
for fault in rank=x,at=forward,kind=kill at=lunch,kind=kill at=forward,kind=no \
  rank=1,where=forward; do
  env CANZONA_TEST_FAULT="$fault" "$program" train --steps 1 >out 2>err
  status=$?
  exits 2
  says expected
done
# Ranks that are threads throw as one process.
env CANZONA_TEST_FAULT=rank=1,step=2,at=backward,kind=throw "$program" train \
  --ranks 2 --steps 3 >out 2>err
status=$?
exits 1
says 'a fault that a test asked for, at backward'

# The last operations of ranks are in a file, if that is asked for.
env CANZONA_TEST_FAULT=rank=1,step=2,at=collective,kind=throw "$program" train \
  --ranks 2 --steps 3 --check-collectives --flight-record flights >out 2>err
status=$?
exits 1
says 'a fault that a test asked for, at collective'
checks=$((checks + 1))
grep -q all_ flights || fail 'no record of operations'
refuses "--flight-record: cannot write 'no/such/flights'" -- train --ranks 2 --steps 1 \
  --flight-record no/such/flights
mkdir flights.d
refuses '--flight-record' 'is a folder' -- train --steps 1 --flight-record flights.d
# ... which may lie in the folder that the run is about to make.
canzona train --ranks 1 --steps 1 --run flown --flight-record flown/flights
exits 0
refuses "'flown/metrics.jsonl' is a file that the run itself writes" -- \
  train --steps 1 --run flown --overwrite --flight-record flown/metrics.jsonl

# Help fits the page.
canzona launch --help
exits 0
prints '[r2]' '--resume auto' '--elastic 2:4' srun torchrun
lacks out --as-rank
lacks out --program
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'

# --transport=KIND is the same as two words: one process runs all ranks.
ends_by 0
canzona launch --program ./program --ranks 2 -- bench step --transport=thread
exits 0
started 1
finish
