# A training run ends whole, stopped, killed, diverged, on a full disk, or on
# data that is cut short. Its results are there, and the exit status says which.
. "$(dirname "$0")/words.sh"

computes train --dry-run

small="train $(small_model)"

# begins <arguments>: the program in the background, until its first step is in
# the folder `run`; its number is in $process.
begins() {
  last="canzona $*"
  "$program" "$@" >out 2>err </dev/null &
  process=$!
  while [ ! -s run/metrics.jsonl ] && kill -0 "$process" 2>/dev/null; do
    sleep 0.1
  done
}
ends() {
  wait "$process"
  status=$?
}

# --- A path that cannot be written is refused before the run, not after it.
# shellcheck disable=SC2086
canzona $small --steps 2 --run traced --trace no/such/folder/trace.json
exits 2
says 'no/such/folder/trace.json'
not_there traced
# shellcheck disable=SC2086
canzona $small --steps 2 --run traced --trace traced/trace.json
exits 0
there traced/trace.json
there traced/model.safetensors
# A trace must not overwrite what is trained on, or the run's own files.
cp text.txt trained_on.txt
canzona train --data trained_on.txt --trace ./trained_on.txt
exits 2
says "--trace './trained_on.txt': belongs to --data 'trained_on.txt'"
checks=$((checks + 1))
cmp -s text.txt trained_on.txt || fail 'the data was overwritten'
for file in own own/model.safetensors own/metrics.jsonl; do
  # shellcheck disable=SC2086
  canzona $small --steps 2 --run own --trace $file
  exits 2
  says "--trace '$file'"
  not_there own
done

# --- If the reader of its output closes the pipe, the run continues and writes
# its folder.
last='canzona train … | head'
# shellcheck disable=SC2086
{
  "$program" $small --steps 30 --set log.every=1 --run heard 2>err </dev/null
  echo $? >heard_status
} | head -n 1 >out
status=$(cat heard_status)
exits 0
there heard/model.safetensors
holds heard/summary.json '"state": "finished"'

# ... If the reader only stalls, a signal still ends the run.
mkfifo pipe
sleep 60 <pipe &
reader=$!
# shellcheck disable=SC2086
"$program" $small --steps 1000000 --set log.every=1 --run stalled >pipe 2>err \
  </dev/null &
process=$!
while [ ! -s stalled/metrics.jsonl ] && kill -0 "$process" 2>/dev/null; do
  sleep 0.1
done
sleep 1
kill -TERM "$process"
ends
kill "$reader" 2>/dev/null
exits 143
there stalled/model.safetensors

# --- --overwrite replaces only folders that hold a run.
mkdir mine
echo precious >mine/model.safetensors
# shellcheck disable=SC2086
canzona $small --steps 2 --run mine --overwrite
exits 2
says "'model.safetensors'" 'may not be a run'
holds mine/model.safetensors precious

# --- Leftovers of a process of the same number: in a container it is always
# the same. The shell that becomes the program knows its number before.
mkdir left
for name in model.safetensors summary.json report.html config.json; do
  for n in 0 1 2 3; do echo left >"template.$name.$n"; done
done
# shellcheck disable=SC2016,SC2086
sh -c 'for f in template.*; do
    n=${f##*.}; name=${f#template.}; name=${name%.*}
    cp "$f" "left/$name.$$.$n.tmp"
  done
  exec "$@"' sh "$program" $small --steps 2 --run left --overwrite \
  >out 2>err </dev/null
status=$?
last='canzona train over leftovers'
exits 0
there left/model.safetensors
checks=$((checks + 1))
[ -z "$(ls left | grep tmp)" ] || fail "leftovers stay: $(ls left)"

# --- A summary of what is running, from the first step on; a live run is not
# overwritten; a killed one says so, with rule and mesh, and can be.
# shellcheck disable=SC2086
begins $small --steps 1000000 --mesh dp=2 --run run
holds run/summary.json '"state": "running"'
holds run/summary.json '"rule": "muon"'
holds run/summary.json '"mesh": "dp=2"'
holds run/summary.json "\"pid\": $process"
holds run/summary.json '"started": "20'
holds run/summary.json '"learning_rate"'
mv out out.run && mv err err.run
for way in --overwrite ''; do
  # shellcheck disable=SC2086
  canzona $small --steps 2 --run run $way
  exits 2
  says 'is in use by process' "$process" 'choose another folder'
done
there run/metrics.jsonl
kill -KILL "$process"
wait "$process" 2>/dev/null
canzona report run
exits 0
prints 'did not finish' 'muon' 'dp=2' "process $process"
canzona report run --json
is_json
member_is 'runs 0 complete' OFF
member_is 'runs 0 state' running
member_is 'runs 0 mesh' dp=2
# shellcheck disable=SC2086
canzona $small --steps 2 --run run
exits 2
says 'is not empty'
# shellcheck disable=SC2086
canzona $small --steps 2 --run run --overwrite
exits 0
holds run/summary.json '"state": "finished"'
not_there run/canzona.lock

# --- INT and TERM: weights, summary, report, and their own exit status.
for signal in INT:130 TERM:143; do
  rm -rf run
  # shellcheck disable=SC2086
  begins $small --steps 1000000 --run run
  kill -"${signal%:*}" "$process"
  ends
  exits "${signal#*:}"
  says 'ending after this step'
  prints 'ended early, as requested'
  holds run/summary.json '"state": "stopped"'
  for file in model.safetensors config.json report.html; do there run/$file; done
done

# --- The last evaluation stands behind weights and summary, ends at the first
# signal, and is bounded unless it is asked for all: here of 230,000 sequences.
rm -rf run
# shellcheck disable=SC2086
begins $small --data synthetic --steps 2 --set eval.sequences=all \
  --set data.held_out=0.9 --run run
while ! grep -q '"state": "finished"' run/summary.json &&
  kill -0 "$process" 2>/dev/null; do
  sleep 0.1
done
holds run/summary.json '"eval_loss": null'
there run/model.safetensors
checks=$((checks + 1))
[ "$(wc -l <run/metrics.jsonl)" = 2 ] || fail 'the last step has no line'
kill -INT "$process"
ends
exits 130
holds run/summary.json '"steps": 2'
holds run/summary.json '"eval_loss": null'
# shellcheck disable=SC2086
canzona $small --steps 20 --json --quiet --run run --overwrite
exits 0
member_is eval_sequences 32
has_member perplexity
has_member tokens_per_second
member_is skipped_steps 0
checks=$((checks + 1))
tail -n 1 run/metrics.jsonl | grep -q '"eval_loss":.*"perplexity":' ||
  fail 'the last step has no evaluation'
# shellcheck disable=SC2086
canzona $small --steps 20 --mfu
exits 0
prints 'perplexity' 'tokens/s; MFU' 'measured in fp32 products' 'mfu:'
# shellcheck disable=SC2086
canzona $small --steps 2
exits 0
prints 'MFU not known'

# --- No steps, no loss.
# shellcheck disable=SC2086
canzona $small --steps 0 --json --quiet --run none
exits 0
member_is final_loss ''
member_is eval_loss ''
# shellcheck disable=SC2086
canzona $small --steps 0
exits 0
prints 'no loss was measured'
lacks out 'loss 0.0000'

# --- A run that diverges says so, and ends.
wild="--set adamw.learning_rate=3e38 --set clip=0 --set schedule.warmup=0"
# shellcheck disable=SC2086
canzona $small $wild --steps 8 --run wild
exits 0
prints '7 of 8 steps were skipped' 'skipped: the gradient of model.' \
  'loss not finite, evaluation loss not finite (12 sequences)'
lacks out nan,
holds wild/summary.json '"skipped_steps": 7'
holds wild/summary.json '"nonfinite_tensor": "model.'
checks=$((checks + 1))
[ "$(grep -c '"nonfinite_tensor":"model.' wild/metrics.jsonl)" = 7 ] ||
  fail 'metrics.jsonl does not name the tensor'
holds wild/report.html '7 of 8 steps were skipped'
# shellcheck disable=SC2086
canzona $small $wild --steps 50 --run wild --overwrite --mesh dp=2
exits 5
says 'the run diverged' '--max-skipped 0' 'on rank'
prints '10 of 11 steps were skipped'
holds wild/summary.json '"state": "diverged"'
there wild/model.safetensors
# shellcheck disable=SC2086
canzona $small $wild --steps 6 --max-skipped 3
exits 5
# shellcheck disable=SC2086
canzona $small $wild --steps 14 --max-skipped 0
exits 0
prints '13 of 14 steps were skipped'
canzona report wild
prints 'diverged' '10 of 11 steps were skipped'

# --- D8: a loss spike is reported. Step 74 meets the only line that is not like
# the others.
{
  line=0
  while [ "$line" -lt 240 ]; do
    echo aaaaaaaaaaaaaaa
    line=$((line + 1))
    [ "$line" -ne 120 ] || echo 'Q7x#Zp!2Kd?v9Wm'
  done
} >spike.txt
odd="$small --data spike.txt --set batch.global=2 --set batch.micro=1
  --set schedule.warmup=0 --mesh dp=2"
# shellcheck disable=SC2086
canzona $odd --steps 100 --save-every 30 --keep-last 0 --run spike
exits 0
says 'note: the loss of step 74 was' 'times the median of those before it' '(spike.factor 10)'
prints '1 of 100 steps had a loss spike; the loss of step 74'
holds spike/summary.json '"spikes": 1'
holds spike/summary.json '"spike_step": 74'
holds spike/summary.json '"1 of 100 steps had a loss spike'
holds spike/report.html 'had a loss spike'
# spikes_of <run>: its steps and losses, and what they stood out from
spikes_of() {
  sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*"spike_over":\([^,}]*\).*/\1 \2 \3/p' \
    "$1/metrics.jsonl"
}
spikes_of spike >spikes
checks=$((checks + 1))
{ [ "$(wc -l <spikes)" = 1 ] && grep -q '^74 4\.[0-9]* 0\.2' spikes; } ||
  fail "metrics.jsonl has the spikes $(cat spikes)"
grep -E '"(digest|spike_loss|spike_over)":' spike/summary.json >whole
# ... A run that goes on decides the same; one with other numbers, otherwise.
# shellcheck disable=SC2086
canzona train --run spike --resume 60
exits 0
says 'note: the loss of step 74 was'
grep -E '"(digest|spike_loss|spike_over)":' spike/summary.json >again
spikes_of spike >spikes_again
checks=$((checks + 1))
{ cmp -s whole again && cmp -s spikes spikes_again; } ||
  fail "a resumed run has the spikes $(cat again spikes_again)"
# shellcheck disable=SC2086
canzona $odd --steps 80 --set spike.factor=0 --json --quiet
exits 0
member_is spikes 0
member_is spike_step -1
# shellcheck disable=SC2086
canzona $odd --steps 80 --set spike.factor=100 --json --quiet
member_is spikes 0
# ... It ends the run where that is asked for; the checkpoint before it stays.
# shellcheck disable=SC2086
canzona $odd --steps 100 --save-every 30 --set spike.stop=on --run spike --overwrite
exits 5
says 'error: the run diverged: the loss of step 74 was' 'rule.learning_rate' \
  'spike.stop=off' 'newest checkpoint is of step 60' '--resume auto'
holds spike/summary.json '"state": "diverged"'
holds spike/summary.json '"steps": 74'
there spike/model.safetensors
not_there spike/ckpt/step_00000074
canzona report spike
prints 'diverged: the loss of step 74'
canzona report spike --json
is_json
member_is 'runs 0 spikes' 1
member_is 'runs 0 spike_step' 74
canzona train --run spike --resume auto --set spike.stop=off
exits 0
holds spike/summary.json '"state": "finished"'
refuses 'spike.factor 0.5 (--set)' 'above 1' -- train --set spike.factor=0.5 --dry-run
refuses 'spike.stop on (--set)' 'spike.factor' -- \
  train --set spike.factor=0 --set spike.stop=on --dry-run

# --- A disk that is full while weights are written. Files of the process end at
# 40 kB, as on a full disk; the weights need 140.
(
  ulimit -f 80 2>/dev/null || exit 99 # blocks of 512 bytes
  # shellcheck disable=SC2086
  exec "$program" $small --steps 2 --run full --mesh dp=2
) >out 2>err </dev/null
status=$?
last='canzona train on a full disk'
if [ $status -eq 99 ]; then
  echo 'skipped: this shell sets no limit on the size of files'
else
  exits 6
  says 'model.safetensors'
  not_there full/model.safetensors
  there full/metrics.jsonl
fi

# --- A disk that is full at the start: nothing of the run is left, so that the
# same command works once there is room.
mkdir disk
cat >on_full_disk <<'SCRIPT'
mount -t tmpfs -o size=16k none disk || exit 99
head -c 1000000 /dev/zero >disk/filler 2>/dev/null
"$@" --run disk/run
status=$?
[ "$(ls disk)" = filler ] || { echo left: && ls -R disk; exit 98; }
rm disk/filler
exit $status
SCRIPT
# shellcheck disable=SC2086
unshare -m sh on_full_disk "$program" $small --steps 2 --mesh dp=2 \
  >out 2>err </dev/null
status=$?
last='canzona train on a disk that is full at the start'
if grep -q 'mount:\|unshare:' err || [ $status -eq 99 ]; then
  echo 'skipped: no small disk can be mounted here'
else
  exits 6
  says 'No space left on device' 'disk/run'
  lacks err 'left:'
  lacks out 'left:'
fi

# --- Data that is cut short during the run.
cp text.txt cut.txt
size=$(wc -c <cut.txt)
rm -rf run
# shellcheck disable=SC2086
begins $small --data cut.txt --steps 1000000 --mesh dp=2 --run run
# In place: the same file, as truncate does.
dd if=/dev/null of=cut.txt bs=1 seek=1000 count=0 2>/dev/null
ends
exits 3
says 'cut.txt' "expected $size bytes" 'found 1000'

# --- A warning says if weights are written without config.json.
# shellcheck disable=SC2086
canzona $small --steps 1 --set model.experts=4 --set model.expert_ffn=16 \
  --set model.shared_experts=1 --run shared
exits 0
says 'config.json is not written' 'model.shared_experts'
there shared/model.safetensors
not_there shared/config.json
holds shared/summary.json 'config.json is not written'

# --- TensorBoard's times have fractions; that of the first event is 13 bytes in.
events=$(ls run/events.out.tfevents.*)
checks=$((checks + 1))
od -An -t f8 -j 13 -N 8 "$events" | awk '{ exit !($1 > 1e9 && $1 != int($1)) }' ||
  fail "the time of the first event is whole: $(od -An -t f8 -j 13 -N 8 "$events")"

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
refuses "'flown/metrics.jsonl': belongs to --run 'flown'" -- \
  train --steps 1 --run flown --overwrite --flight-record flown/metrics.jsonl

finish
