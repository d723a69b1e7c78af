# A run that goes on from an earlier checkpoint than its newest, evaluations
# that a signal cut off, and weights that no run can go on from.
. "$(dirname "$0")/words.sh"

computes train --dry-run

small="train $(small_model) --set model.layers=1 --set eval.sequences=4
  --set batch.micro=8 --mesh dp=1"

# steps_are <file> <numbers>: those of its lines
steps_are() {
  checks=$((checks + 1))
  steps=$(sed 's/^{"step":\([0-9]*\),.*/\1/' "$1" | tr '\n' ' ')
  [ "$steps" = "$2 " ] || fail "the steps of $1 are $steps"
}
# metrics without what depends on the clock
results_of() {
  sed 's/^\({"step":[0-9]*,"loss":[^,]*\),.*\(,"eval_loss":[^,}]*\).*/\1\2/
    t
    s/^\({"step":[0-9]*,"loss":[^,]*\),.*/\1/' "$1/metrics.jsonl"
}
same_results() {
  checks=$((checks + 1))
  results_of "$1" >first
  results_of "$2" >second
  cmp -s first second || fail "$1 and $2 differ: $(diff first second | head -4)"
}

# --- Back to step 3 of 12, and killed before anything new is saved: the run
# goes on from there, not from what it had left.
# shellcheck disable=SC2086
canzona $small --steps 12 --run whole --set eval.every=4
exits 0
# shellcheck disable=SC2086
canzona $small --steps 12 --run one --save-every 3 --keep-last 0 --set eval.every=4
exits 0
same_results one whole
canzona train --run one --resume 3 --steps 5 --save-every 0
exits 0
says 'the run resumes from step 3' 'later steps (6, 9, 12) are set aside in one/ckpt'
steps_are one/metrics.jsonl '1 2 3 4 5'
checks=$((checks + 1))
[ "$(cat one/ckpt/latest)" = step_00000003 ] || fail "latest is $(cat one/ckpt/latest)"
canzona ckpt ls one
exits 0
prints latest 'set aside, no longer part of the run' "$(basename one/ckpt/step_00000012.left-*)" \
  'canzona train --resume one/ckpt/NAME --run NEW_FOLDER' 'canzona ckpt prune one/ckpt'
canzona ckpt ls one --json
exits 0
member_is 'checkpoints 0 step' 3
member_is 'set_aside 2 step' 12
member_is 'set_aside 2 sound' ON
member_is 'set_aside 2 name' "$(basename one/ckpt/step_00000012.left-*)"
canzona train --run one --resume 12
exits 3
says 'no checkpoint of this step' 'those of steps 3'
canzona train --run one --resume auto --steps 12 --save-every 3
exits 0
says 'step 3 of 12 is done'
steps_are one/metrics.jsonl '1 2 3 4 5 6 7 8 9 10 11 12'
same_results one whole

# --- What was set aside is a checkpoint still, of no run but one that begins
# with it; it goes when others have taken its place.
aside=$(echo one/ckpt/step_00000009.left-*)
there "$aside/manifest.json"
canzona ckpt verify "$aside"
exits 0
canzona train --resume "$aside" --run other --steps 12
exits 0
says 'step 9 of 12 is done'
steps_are other/metrics.jsonl '10 11 12'
refuses "lies in the folder of --run 'one'" -- train --resume "$aside" --run one
canzona ckpt prune one --keep-last 9
exits 0
there "$aside"
canzona ckpt prune one --keep-last 2 --dry-run
exits 0
prints "${aside#one/ckpt/}"
there "$aside"
canzona ckpt prune one --keep-last 2
exits 0
checks=$((checks + 1))
[ "$(ls one/ckpt | tr '\n' ' ')" = 'latest step_00000009 step_00000012 ' ] ||
  fail "one/ckpt holds $(ls one/ckpt | tr '\n' ' ')"
# ... A run prunes by itself; replacing it leaves nothing.
canzona train --run one --resume 9 --steps 14 --save-every 1 --keep-last 2
exits 0
says 'later steps (12) are set aside'
checks=$((checks + 1))
[ "$(ls one/ckpt | tr '\n' ' ')" = 'latest step_00000013 step_00000014 ' ] ||
  fail "one/ckpt holds $(ls one/ckpt | tr '\n' ' ')"
canzona train --run one --resume 13 --steps 13
exits 0
# shellcheck disable=SC2086
canzona $small --steps 1 --run one --overwrite
exits 0
not_there one/ckpt

# --- A checkpoint that lies elsewhere, by a link, is gone on from as well.
# shellcheck disable=SC2086
canzona $small --steps 6 --run far --save-every 2 --keep-last 0
exits 0
mv far/ckpt/step_00000004 away
ln -s ../../away far/ckpt/step_00000004
canzona train --run far --resume 4
exits 0
says 'later steps (6) are set aside'
steps_are far/metrics.jsonl '1 2 3 4 5 6'

# --- A resume that is refused sets nothing aside.
# shellcheck disable=SC2086
canzona $small --steps 4 --run two --save-every 2 --keep-last 0
exits 0
ls two/ckpt >before
sed 's/line/LINE/' text.txt >changed.txt
canzona train --run two --resume 2 --data changed.txt
exits 3
checks=$((checks + 1))
ls two/ckpt | cmp -s - before || fail 'two/ckpt has changed'

# --- An evaluation that was cut off is made up for.
# shellcheck disable=SC2086
canzona $small --steps 12 --run cut --save-every 4 --keep-last 0 --set eval.every=4
exits 0
sed '8s/,"eval_loss":.*/}/' cut/metrics.jsonl >s
checks=$((checks + 1))
! cmp -s s cut/metrics.jsonl || fail 'step 8 has no evaluation'
mv s cut/metrics.jsonl
canzona train --run cut --resume 8
exits 0
prints 'step:  8  eval_loss'
same_results cut whole
# ... and not repeated where it is there.
canzona train --run cut --resume 8
exits 0
lacks out 'step:  8  eval_loss'
same_results cut whole
# ... A signal that comes during any step skips the evaluation after it.
# shellcheck disable=SC2086
"$program" $small --steps 1000000 --run ended --save-every 1 --set eval.every=1 \
  --set log.every=1000000 >out 2>err </dev/null &
process=$!
last='canzona train, ended by a signal'
while [ ! -s ended/ckpt/latest ] && kill -0 "$process" 2>/dev/null; do sleep 0.05; done
kill -TERM "$process"
wait "$process"
status=$?
exits 143
steps=$(tail -n 1 ended/metrics.jsonl | sed 's/^{"step":\([0-9]*\),.*/\1/')
canzona train --run ended --resume auto --steps $((steps + 2)) --set log.every=1
exits 0
checks=$((checks + 1))
[ "$(grep -c eval_loss ended/metrics.jsonl)" = "$((steps + 2))" ] ||
  fail "$(grep -c eval_loss ended/metrics.jsonl) of $((steps + 2)) steps have an evaluation"

# --- What a run begins with is not what it replaces.
# shellcheck disable=SC2086
canzona $small --steps 4 --run own --save-every 2 --keep-last 0
exits 0
for from in own own/ckpt/step_00000002; do
  refuses "--init '$from' lies in the folder of --run" 'nothing was changed' -- \
    train --init $from --data text.txt --steps 1 --mesh dp=1 --run own --overwrite
done
canzona train --run own --resume 2 --steps 3
exits 0
aside=$(echo own/ckpt/step_00000004.left-*)
canzona ckpt ls "$aside" --json
exits 0
member_is 'checkpoints 0 step' 4
refuses "--resume '$aside' lies in the folder of --run" -- \
  train --run own --resume "$aside" --overwrite
rm -r own/ckpt/step_0000000? own/ckpt/latest
refuses 'set aside' "$aside" -- train --run own --resume auto --overwrite
checks=$((checks + 1))
[ -f "$aside/manifest.json" ] || fail 'what was set aside is gone'

# --- Weights of --init are not looked for when the run has its own.
cp -r whole starts
# shellcheck disable=SC2086
canzona train --init starts --data text.txt --steps 2 --mesh dp=1 --run began --save-every 1
exits 0
mv starts gone
canzona train --init starts --data text.txt --steps 3 --mesh dp=1 --run began --resume auto
exits 0

# --- Weights that are not finite leave nothing of a run.
cp -r gone broken
rm broken/summary.json
size=$(wc -c <broken/model.safetensors)
printf '\0\0\300\177' | dd of=broken/model.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2>dd.log
canzona train --init broken --data text.txt --steps 1 --mesh dp=1 --run fresh
exits 3
not_there fresh
# ... nor of the folders above it, whoever refuses it.
canzona train --init broken --data text.txt --steps 1 --mesh dp=2 --run new/er/fresh
exits 3
not_there new
canzona train --resume broken --run new/fresh
exits 2
not_there new

# --- What a run begins with is read before what it replaces is removed.
# contents <folder>: names and sums of its files
contents() {
  find "$1" -type f | sort | while read -r file; do cksum "$file"; done
}
unchanged() {
  checks=$((checks + 1))
  contents kept | cmp -s - before || fail "$1: the former run has changed"
}
# shellcheck disable=SC2086
canzona $small --steps 4 --run kept --save-every 2 --keep-last 0
exits 0
contents kept >before
canzona train --init broken --data text.txt --steps 1 --mesh dp=2 --run kept --overwrite
exits 3
says 'the run in kept was not replaced'
unchanged 'weights that are not finite'
cp -r kept torn
for file in torn/ckpt/step_*/rank_00000.safetensors; do
  printf x | dd of="$file" bs=1 seek=3000 conv=notrunc 2>dd.log
done
canzona train --resume torn --run kept --overwrite
exits 3
says 'the run in kept was not replaced'
unchanged 'a checkpoint that is damaged'
cp -r gone torn_init
head -c 5000 gone/model.safetensors >torn_init/model.safetensors
canzona train --init torn_init --data text.txt --steps 1 --mesh dp=1 --run kept --overwrite
exits 3
unchanged 'weights that are cut off'
if command -v flock >flock.log; then
  flock --no-fork kept/ckpt/canzona.lock sleep 60 &
  holder=$!
  while [ ! -e kept/ckpt/canzona.lock ] && kill -0 $holder 2>flock.log; do sleep 0.05; done
  sleep 0.2
  # shellcheck disable=SC2086
  canzona $small --steps 1 --run kept --overwrite
  exits 2
  says 'are in use by'
  kill $holder
  wait $holder 2>flock.log
  rm -f kept/ckpt/canzona.lock
  unchanged 'checkpoints that somebody else writes'
  # A run that was not told to replace anything does not speak of --overwrite.
  mkdir -p shared/ckpt
  flock --no-fork shared/ckpt/canzona.lock sleep 60 &
  holder=$!
  while flock -n shared/ckpt/canzona.lock true 2>flock.log; do sleep 0.05; done
  # shellcheck disable=SC2086
  refuses "--run: the checkpoints in 'shared/ckpt' are in use" -- \
    $small --steps 1 --run shared
  lacks err --overwrite
  kill $holder
  wait $holder 2>flock.log
fi
mkdir small_disk
if mount -t tmpfs -o size=2m tmpfs small_disk 2>mount.log; then
  cp -r kept small_disk/kept
  # shellcheck disable=SC2086
  canzona $small --set model.hidden=128 --set model.ffn=512 --steps 1 --save-every 1 \
    --run small_disk/kept --overwrite
  exits 6
  says 'nothing was changed'
  checks=$((checks + 1))
  diff -r kept small_disk/kept || fail 'a full disk: the former run has changed'
  umount small_disk
fi
# shellcheck disable=SC2086
canzona $small --steps 1 --run kept --overwrite
exits 0
not_there kept/ckpt
steps_are kept/metrics.jsonl 1

# --- Every step has one line, also where a file had two of some.
# shellcheck disable=SC2086
canzona $small --steps 6 --run twice --save-every 2 --keep-last 0
exits 0
(sed -n 1,4p twice/metrics.jsonl && sed -n 3,6p twice/metrics.jsonl) >s
mv s twice/metrics.jsonl
canzona train --run twice --resume 6 --steps 8
exits 0
steps_are twice/metrics.jsonl '1 2 3 4 5 6 7 8'

# --- Starts are counted, whatever they go on from.
holds twice/summary.json '"starts": 2'
canzona train --run twice --resume 2 --steps 3 --save-every 0
exits 0
says 'start 3 of this run'
canzona train --run twice --resume auto --steps 4
exits 0
says 'start 4 of this run'
holds twice/summary.json '"starts": 4'

# --- A run that went on and was killed: the newest checkpoint is its weights,
# not those of its former end.
# shellcheck disable=SC2086
canzona $small --steps 2 --run stale --save-every 1 --keep-last 0
exits 0
last='canzona train, killed'
"$program" train --run stale --resume auto --steps 1000000 >out 2>err </dev/null &
process=$!
while [ "$(cat stale/ckpt/latest)" = step_00000002 ] && kill -0 "$process" 2>/dev/null; do
  sleep 0.05
done
kill -KILL "$process"
wait "$process" 2>/dev/null
newest=$(basename "$(ls -d stale/ckpt/step_???????? | tail -n 1)")
step=$(echo "${newest#step_}" | sed 's/^0*//')
canzona ckpt export stale --hf newest
exits 0
canzona train --init stale --data text.txt --set model.length=16 --steps 0 --mesh dp=1 \
  --run followed
exits 0
says "starts from the weights in stale/ckpt/$newest"
checks=$((checks + 1))
cmp -s newest/model.safetensors followed/model.safetensors ||
  fail 'a run begins with weights that are not the newest'
for verb in 'sample --prompt line --tokens 1' 'eval --data text.txt'; do
  # shellcheck disable=SC2086
  canzona $verb --run stale
  exits 0
  says "stale, step $step"
done
# ... One that is damaged is skipped, which is told.
rm "stale/ckpt/$newest/rank_00000.safetensors"
canzona train --init stale --data text.txt --set model.length=16 --steps 0 --mesh dp=1 \
  --run followed --overwrite
exits 0
says "stale/ckpt/$newest is skipped" "starts from the weights in stale/ckpt/step_"
# ... A step that was saved by a run which was killed before `latest` could name
# it is not computed again.
# shellcheck disable=SC2086
canzona $small --steps 6 --run unnamed --save-every 3 --keep-last 0
exits 0
echo step_00000003 >unnamed/ckpt/latest
canzona train --run unnamed --resume auto --steps 7
exits 0
says 'step_00000006'
lacks err 'set aside'
checks=$((checks + 1))
[ "$(ls unnamed/ckpt | tr '\n' ' ')" = 'latest step_00000003 step_00000006 step_00000007 ' ] ||
  fail "left in unnamed/ckpt: $(ls unnamed/ckpt)"
# ... Weights of an end that came after the last checkpoint are newer than that.
# shellcheck disable=SC2086
canzona $small --steps 2 --run later --save-every 1
exits 0
canzona train --run later --resume auto --steps 3 --save-every 0
exits 0
canzona train --init later --data text.txt --set model.length=16 --steps 0 --mesh dp=1 \
  --run followed --overwrite
exits 0
checks=$((checks + 1))
cmp -s later/model.safetensors followed/model.safetensors ||
  fail 'a run begins with weights before those of the end'

# --- Weights that are not finite are not saved: exit status 5, as for all
# numbers that are not.
# shellcheck disable=SC2086
canzona $small --steps 1 --run blown --save-every 1 --set schedule.kind=constant \
  --set schedule.warmup=0 --set rule.learning_rate=1e300 --set adamw.learning_rate=1e300
exits 5
says 'the last save, of step 1, failed' 'are not finite'

finish
