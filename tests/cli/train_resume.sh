# A run that was killed goes on: what it saves, how it is resumed, on which
# ranks, with which settings, and what is refused.
. "$(dirname "$0")/words.sh"

computes train --dry-run

small="train $(small_model) --set eval.sequences=4 --set batch.micro=8"

# digest_of <folder>: of all parameters, then of all states.
digest_of() {
  sed -n 's/^ *"\(state_\)*digest": "\([0-9a-f]*\)",*$/\2/p' "$1/summary.json" |
    head -2 | tr '\n' ' '
}
# same_run <folder> <folder>
same_run() {
  checks=$((checks + 1))
  [ "$(digest_of "$1")" = "$(digest_of "$2")" ] ||
    fail "$1 ended with $(digest_of "$1"), $2 with $(digest_of "$2")"
}
# steps_of <file>: the numbers of its lines
steps_of() {
  sed 's/^{"step":\([0-9]*\),.*/\1/' "$1" | tr '\n' ' '
}
# begins <folder> <arguments>: the program in the background, until the folder
# has a checkpoint; its number is in $process.
begins() {
  folder=$1
  shift
  last="canzona $*"
  "$program" "$@" >out 2>err </dev/null &
  process=$!
  while [ ! -s "$folder/ckpt/latest" ] && kill -0 "$process" 2>/dev/null; do
    sleep 0.05
  done
}
ends() {
  wait "$process"
  status=$?
}

# --- The run that nobody interrupts; it saves nothing.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 24 --run whole
exits 0
not_there whole/ckpt

# --- Half of it, with checkpoints: the last two are kept, and one of the end.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 24 --run half --save-every 5 \
  --set schedule.kind=constant
exits 0
prints 'step:  5  saved' ', paused for' 'saved 5 checkpoints, the last one of step 24'
checks=$((checks + 1))
[ "$(ls half/ckpt | tr '\n' ' ')" = 'latest step_00000020 step_00000024 ' ] ||
  fail "half/ckpt holds $(ls half/ckpt | tr '\n' ' ')"
for file in config.json plan.json rng.json data.json run.json manifest.json; do
  there half/ckpt/step_00000024/$file
done
holds half/ckpt/step_00000024/data.json '"sequences": 384'
holds half/ckpt/step_00000024/data.json '"tokens": 6144'
canzona ckpt verify half
exits 0

# --- Killed, and resumed with nothing but its folder: the bits of the run that
# was never killed, and one line for every step.
# shellcheck disable=SC2086
begins killed $small --mesh dp=2 --steps 24 --run killed --save-every 3 \
  --set log.every=100
kill -KILL "$process"
wait "$process" 2>/dev/null
canzona train --run killed --resume auto
exits 0
says 'resumed from killed/ckpt/step_0000' 'of 24 is done, start 2 of this run'
resumed=$(sed -n 's|.*resumed from killed/ckpt/step_0*\([0-9]*\).*|\1|p' err)
same_run killed whole
checks=$((checks + 1))
[ "$(steps_of killed/metrics.jsonl)" = "$(steps_of whole/metrics.jsonl)" ] ||
  fail "the steps of killed are $(steps_of killed/metrics.jsonl)"
holds killed/summary.json '"starts": 2'
holds killed/summary.json '"steps": 24'
checks=$((checks + 1))
[ "$(ls killed/events.out.tfevents.* | wc -l)" = 2 ] ||
  fail 'TensorBoard has no second file'
# ... which supersedes the later steps of the first: step, session log, START.
checks=$((checks + 1))
od -An -v -tx1 "$(ls killed/events.out.tfevents.* | tail -n 1)" | tr -d ' \n' |
  grep -q "10$(printf %02x $((resumed + 1)))3a020801" ||
  fail "TensorBoard's second file does not begin after step $resumed"
canzona report killed
exits 0
# A run that is whole has nothing left to do, and can be made longer.
canzona train --run killed --resume auto
exits 0
same_run killed whole
canzona train --run killed --resume auto --steps 26 --json
exits 0
member_is steps 26
member_is starts 4
member_is start_step 24
is_json

# --- From a step, on other ranks, with another strategy: the rest is done again.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 24 --run moved --save-every 6 --keep-last 0
exits 0
same_run moved whole
canzona train --run moved --resume 12 --strategy layerwise --zero zero3 \
  --save sync
exits 0
says 'ckpt/step_00000012: step 12 of 24'
same_run moved whole
# ... or into a folder of its own, from another run.
canzona train --resume moved/ckpt/step_00000012 --run fork --mesh dp=2
exits 0
same_run fork whole
checks=$((checks + 1))
[ "$(steps_of fork/metrics.jsonl | cut -c 1-6)" = '13 14 ' ] ||
  fail "the steps of fork are $(steps_of fork/metrics.jsonl)"
canzona train --resume moved --run fork2 --mesh dp=2
exits 0
says 'step 24 of 24'
# ... on another mesh.
canzona train --run moved --resume 6 --mesh tp=2
exits 0
holds moved/summary.json '"mesh": "tp=2"'
canzona train --run moved --resume moved/ckpt/step_00000018 --ranks 1
exits 0
says 'step 18 of 24'

# --- A resumed run clips logits as the one that was saved, on other ranks, too.
# shellcheck disable=SC2086
clips="$small --steps 8 --set model.qk_norm=off --set qk_clip.tau=0.25"
# shellcheck disable=SC2086
canzona $clips --mesh dp=2 --run clipped --save-every 4
exits 0
says 'QK-clip scaled'
canzona train --resume clipped/ckpt/step_00000004 --run clips --mesh dp=2
exits 0
says 'QK-clip scaled'
same_run clips clipped
canzona train --resume clipped/ckpt/step_00000004 --run clips_tp --mesh tp=2
exits 0
says 'QK-clip scaled'
canzona train --resume clipped/ckpt/step_00000004 --run plain --mesh dp=2 \
  --set qk_clip.tau=0
exits 0
checks=$((checks + 1))
! grep -q 'QK-clip scaled' err || fail 'a run without a bound clips'

# --- What a run keeps: both values are named, and nothing has changed.
cp moved/metrics.jsonl before.jsonl
for change in seed=2 model.layers=4 model.length=8 rule.name=soap preset=small \
  data.held_out=0.2 plan.split=head rule.option.momentum_form=heavy_ball; do
  canzona train --run moved --resume 12 --set $change
  exits 2
  says "${change%=*} is " 'in the checkpoint of step 12' \
    "and ${change#*=} now (--set)" 'instead of resuming'
done
# ... States that were not saved begin only if asked, on any mesh.
canzona train --run moved --resume 12 --set rule.option.second_moment=normuon
exits 2
says 'rule.option.second_moment is none' 'and normuon now (--set)' \
  'add --missing init'
canzona train --resume moved/ckpt/step_00000012 --run begun --mesh tp=2 \
  --set rule.option.second_moment=normuon --missing init
exits 0
says 'step 12 of 24' "has no states 'second_moment': they begin anew"
canzona train --run begun --resume auto --steps 25
exits 0
# ... A preset counts as the options that it sets.
canzona train --resume moved/ckpt/step_00000012 --run named --missing init \
  --set rule.option.preset=nanochat
exits 0
canzona train --resume moved/ckpt/step_00000012 --run unlike --missing init \
  --set rule.option.preset=normuon
exits 2
says 'rule.option.momentum_form is ema' 'and heavy_ball now'
canzona train --resume begun --run back --missing init \
  --set rule.option.second_moment=none
exits 3
says 'the checkpoint of step 25 does not fit' 'that only the checkpoint has'
canzona train --run nowhere --missing init
exits 2
says '--missing init: expected --resume as well'
canzona train --run moved --resume 12 --missing zero
exits 2
says '--missing' 'zero'
sed 's/line/LINE/' text.txt >other.txt
canzona train --run moved --resume 12 --data other.txt
exits 3
says 'the data differs from what moved/ckpt/step_00000012 was saved with'
lacks err 'resuming from it'
cp text.txt same.txt
cp -r moved shorter
canzona train --run shorter --resume 12 --data same.txt --steps 12
exits 0

# --- What is not there, and what is damaged.
canzona train --run moved --resume 13
exits 3
says '--resume 13' "no checkpoint of this step in 'moved/ckpt'" '6, 12, 18, 24'
canzona train --run moved --resume 1000000000000000
exits 2
says '--resume 1000000000000000' 'at most 999999999999999'
refuses '--resume 99999999999999999999' 'at most 999999999999999' -- \
  train --run half --resume 99999999999999999999
canzona train --run moved --resume no/such
exits 2
says "--resume 'no/such'" 'no such folder'
canzona train --resume auto
exits 2
says '--resume auto' 'expected --run'
canzona train --run moved --resume 12 --steps 11
exits 2
says 'has done 12 steps' 'should have 11'
printf x | dd of=moved/ckpt/step_00000024/rank_00000.safetensors bs=1 \
  seek=3000 conv=notrunc 2>/dev/null
canzona train --run moved --resume 24
exits 3
says 'step_00000024' 'rank_00000.safetensors'
checks=$((checks + 1))
cmp -s before.jsonl moved/metrics.jsonl || fail 'moved/metrics.jsonl has changed'
canzona train --run moved --resume auto --mesh dp=2
exits 0
says 'note: ' 'step_00000024' 'step 18 of 24'

# --- A second run into a folder that has one.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 2 --run half
exits 2
says "--run 'half' is not empty" '--resume auto' '--overwrite'
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 2 --run half --overwrite
exits 0
not_there half/ckpt
# ... is not wiped by a resume that finds nothing,
canzona train --run half --resume auto
exits 2
says 'holds a finished run' 'finished after 2 steps' '--overwrite'
# ... unless it was killed before its first checkpoint, or is not there yet.
sed 's/"state": "finished"/"state": "running"/' half/summary.json >s
mv s half/summary.json
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 3 --run half --resume auto
exits 0
says 'nothing to resume from in half/ckpt: the run starts from the beginning'
holds half/summary.json '"steps": 3'
# ... Then its settings need not be given again; what is given wins, even what
# a checkpoint would not let change.
# An older program may have saved how matrices are exchanged.
sed 's/"state": "finished"/"state": "running"/
  s/"teams": "off"/&, "exchange": "strips"/' half/summary.json >s
mv s half/summary.json
canzona train --run half --resume auto --seed 7
exits 0
says 'note: plan.exchange strips (unfinished run half) is no longer supported'
says 'the run starts from the beginning, with the settings of the unfinished run in half/summary.json' \
  '2 layers' 'data: text, 148K tokens' 'on dp=2 (unfinished run half)'
holds half/summary.json '"steps": 3'
holds half/summary.json '"seed": 7'
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 2 --run fresh --resume auto --save-every 1
exits 0
says 'nothing to resume from in fresh/ckpt'
# ... and a live run is nobody else's.
# shellcheck disable=SC2086
begins live $small --mesh dp=2 --steps 1000000 --run live --save-every 2 \
  --set log.every=1000000
mv out out.live && mv err err.live
for way in '--resume auto' --overwrite ''; do
  # shellcheck disable=SC2086
  canzona $small --mesh dp=2 --steps 2 --run live $way
  exits 2
  says 'is in use by process' "$process"
done

# --- R13: SIGUSR1 saves after the step; the run goes on.
mv out.live out && mv err.live err
kill -USR1 "$process"
while ! grep -q 'saving after this step' err && kill -0 "$process"; do
  sleep 0.05
done
# --- R12: SIGTERM ends it after its step, saved; and it goes on.
kill -TERM "$process"
ends
exits 143
says 'ending after this step with checkpoint, weights and summary'
holds live/summary.json '"state": "stopped"'
steps=$(sed -n 's/^ *"steps": \([0-9]*\),$/\1/p' live/summary.json | head -1)
there "live/ckpt/$(printf 'step_%08d' "$steps")"
canzona ckpt verify live
exits 0
canzona train --run live --resume auto --steps $((steps + 2))
exits 0
says "step $steps of $((steps + 2)) is done"

# --- R13: SIGINT, once and twice. The second ends at once.
# shellcheck disable=SC2086
begins once $small --steps 1000000 --run once --save-every 2 --set log.every=1000000
kill -INT "$process"
ends
exits 130
holds once/summary.json '"state": "stopped"'
CANZONA_TEST_SLEEP=0:3000 "$program" $small --steps 1000000 --run twice \
  --save-every 1 >out 2>err </dev/null &
process=$!
last='canzona train, ended twice'
while [ ! -s twice/metrics.jsonl ] && kill -0 "$process"; do sleep 0.05; done
kill -INT "$process"
while ! grep -q 'ending after this step' err && kill -0 "$process"; do
  sleep 0.05
done
kill -INT "$process"
ends
exits 130
holds twice/summary.json '"state": "running"'
canzona train --run twice --resume auto --steps 3
exits 0

# --- Without checkpoints SIGUSR1 says so and ends nothing.
# shellcheck disable=SC2086
"$program" $small --steps 1000000 --run none --set log.every=1000000 >out 2>err \
  </dev/null &
process=$!
while [ ! -s none/metrics.jsonl ] && kill -0 "$process"; do sleep 0.05; done
kill -USR1 "$process"
while ! grep -q 'keeps no checkpoints' err && kill -0 "$process"; do
  sleep 0.05
done
kill -INT "$process"
ends
exits 130
not_there none/ckpt

# --- C3: a disk without room. Files of the process end at 250 kB: the weights
# fit, a checkpoint does not. Every save is tried, none leaves anything.
(
  ulimit -f 500 2>/dev/null || exit 99 # blocks of 512 bytes
  # shellcheck disable=SC2086
  exec "$program" $small --steps 6 --run full --mesh dp=1 --save-every 2
) >out 2>err </dev/null
status=$?
last='canzona train, whose checkpoints do not fit'
if [ $status -eq 99 ]; then
  echo 'skipped: this shell sets no limit on the size of files'
else
  exits 6
  says 'step 2 could not be saved' 'step 4 could not be saved' \
    'the run continues' 'the last save, of step 6, failed'
  holds full/summary.json '"state": "finished"'
  there full/model.safetensors
  checks=$((checks + 1))
  [ -z "$(ls full/ckpt | grep step)" ] || fail "full/ckpt holds $(ls full/ckpt)"
fi
mkdir tiny_disk
if mount -t tmpfs -o size=1m tmpfs tiny_disk 2>/dev/null; then
  # shellcheck disable=SC2086
  canzona $small --steps 6 --mesh dp=1 --save-every 2 --run tiny_disk/run
  exits 6
  says 'tiny_disk/run/ckpt' 'free'
  # ... It can be asked again: what was refused is no run.
  mkdir -p tiny_disk/run/ckpt
  # shellcheck disable=SC2086
  canzona $small --steps 6 --mesh dp=1 --save-every 2 --run tiny_disk/run
  umount tiny_disk
  exits 6
  says 'tiny_disk/run/ckpt' 'free'
  lacks out 'step:  1'
else
  echo 'skipped: no file system can be mounted here'
fi

# ... Nor does it end the run where a step has no room in metrics.jsonl, whose
# beginning is made long enough here: two further lines fit, or one.
# shellcheck disable=SC2086
canzona $small --steps 2 --run crowded --mesh dp=1 --save-every 2
exits 0
line=$(tail -n 1 crowded/metrics.jsonl | wc -c)
blanks=$((256000 - $(wc -c <crowded/metrics.jsonl) - 2 * line))
(printf "%${blanks}s" '' | tr ' ' '\n' && cat crowded/metrics.jsonl) >s
mv s crowded/metrics.jsonl
(
  ulimit -f 500 2>/dev/null || exit 99
  exec "$program" train --run crowded --resume auto --steps 8 --save-every 0
) >out 2>err </dev/null
status=$?
last='canzona train, whose metrics do not fit'
if [ $status -ne 99 ]; then
  exits 6
  says 'could not be recorded: crowded/metrics.jsonl cannot be written: File too large' \
    'the run continues' 'records of steps and evaluations, the first of step'
  checks=$((checks + 1))
  [ "$(grep -c 'could not be recorded' err)" = 1 ] || fail 'it is told again'
  holds crowded/summary.json '"state": "finished"'
  holds crowded/summary.json 'could not be written'
  checks=$((checks + 1))
  grep . crowded/metrics.jsonl >lines
  case "$(steps_of lines)" in
    '1 2 3 ' | '1 2 3 4 ') ;;
    *) fail "crowded/metrics.jsonl ends with $(tail -c 300 crowded/metrics.jsonl)" ;;
  esac
  canzona report crowded
  exits 0
fi

# --- A line of metrics.jsonl that makes no sense takes later ones with it.
# shellcheck disable=SC2086
canzona $small --steps 6 --run garbled --mesh dp=1 --save-every 5
exits 0
sed -i '3s/.*/{"step":/' garbled/metrics.jsonl
canzona train --run garbled --resume 5
exits 0
says 'garbled/metrics.jsonl: line 3 is not a valid record; 3 lines'

# --- A resume that is refused changes nothing, and is not recommended again.
cp "$here/../data/tokenizers/qwen.json" mine.json
# shellcheck disable=SC2086
canzona $small --tokenizer mine.json --set model.vocab=700 --mesh dp=1 \
  --steps 2 --run worded --save-every 2
exits 0
(cat mine.json && echo) >longer.json
canzona train --run worded --resume auto --data other.txt --tokenizer longer.json
exits 3
checks=$((checks + 1))
cmp -s mine.json worded/tokenizer.json || fail 'worded/tokenizer.json has changed'
rm worded/tokenizer.json
canzona train --run worded --resume auto
exits 0
there worded/tokenizer.json
mv mine.json moved.json
for wish in auto worded/ckpt/step_00000002; do
  refuses 'data.tokenizer (checkpoint of step 2)' "no such file: 'mine.json'" \
    '--tokenizer worded/tokenizer.json' -- train --run worded --resume $wish
done
canzona train --run worded --resume auto --tokenizer worded/tokenizer.json
exits 0
for file in garbled/ckpt/step_*/rank_00000.safetensors; do
  printf x | dd of="$file" bs=1 seek=3000 conv=notrunc 2>/dev/null
done
canzona train --run garbled --resume auto
exits 3
lacks err 'resumes from it'
# ... nor does it leave a folder that would be refused the next time.
canzona train --run elsewhere --resume garbled
exits 3
not_there elsewhere/summary.json

# --- --overwrite where the checkpoints lie elsewhere: they go, the link stays.
# shellcheck disable=SC2086
canzona $small --steps 2 --run linked --mesh dp=1 --save-every 1
exits 0
mv linked/ckpt big_disk
ln -s ../big_disk linked/ckpt
# shellcheck disable=SC2086
canzona $small --steps 1 --run linked --mesh dp=1 --overwrite
exits 0
not_there big_disk/step_00000002
not_there big_disk/latest
checks=$((checks + 1))
[ -L linked/ckpt ] || fail 'the link is gone'
# ... A link to an empty folder is no run.
mkdir unused
ln -s ../big_disk unused/ckpt
# shellcheck disable=SC2086
canzona $small --steps 2 --run unused --mesh dp=1 --save-every 1
exits 0
there big_disk/step_00000002

# --- Ranks that are processes: what one finds, all must find. Rank 1 looks for
# the run in a folder of its own.
mkdir away
cat >ranks <<PROGRAM
#!/bin/sh
[ "\$CANZONA_RANK" = 0 ] || cd away
[ "\$CANZONA_RANK" = 0 ] || [ ! -e ../wait ] ||
  while [ ! -e ../go ]; do sleep 0.05; done
exec "$program" "\$@"
PROGRAM
chmod +x ranks
cp text.txt away
# shellcheck disable=SC2086
canzona $small --steps 2 --run seen --mesh dp=2 --save-every 1
exits 0
export CANZONA_NUM_RANKS=2
CANZONA_RENDEZVOUS=127.0.0.1:$((30000 + $$ % 2000))
export CANZONA_RENDEZVOUS
# both <arguments>: two ranks over sockets; the status is that of the first.
both() {
  last="canzona $*, as two processes"
  CANZONA_RANK=1 ./ranks "$@" >>out 2>>err </dev/null &
  other=$!
  CANZONA_RANK=0 ./ranks "$@" >>out 2>>err </dev/null
  status=$?
  wait $other
}
: >out
: >err
# shellcheck disable=SC2086
both $small --run seen --resume auto --steps 4 --mesh dp=2
exits 2
says 'rank 0 found the checkpoint of step 2, manifest' \
  'rank 1 found nothing' "see the same folder 'seen'"

# --- A checkpoint that appears while nothing is found is nobody's to remove:
# rank 0 has looked, and waits for rank 1.
: >wait
: >out
: >err
# shellcheck disable=SC2086
(both $small --run late_one --resume auto --steps 4 --mesh dp=2; exit $status) &
process=$!
last='two ranks, while a checkpoint appears'
while ! grep -q 'nothing to resume from' out err && kill -0 "$process"; do
  sleep 0.05
done
mkdir late_one
cp -r seen/ckpt late_one/ckpt
sed 's/"state": "finished"/"state": "running"/' seen/summary.json \
  >late_one/summary.json
: >go
ends
exits 2
says 'another process has saved a checkpoint' 'start again'
there late_one/ckpt/step_00000002
unset CANZONA_NUM_RANKS CANZONA_RENDEZVOUS

# --- Saving needs a folder; its memory is foretold.
# shellcheck disable=SC2086
canzona $small --save-every 5
exits 2
says 'save.every 5 (--save-every)' '--run'
# shellcheck disable=SC2086
canzona $small --save-every 5 --run foretold --dry-run
exits 0
prints saving
not_there foretold
# shellcheck disable=SC2086
canzona $small --save-every 5 --run foretold --dry-run --json
has_member 'memory saving'
# shellcheck disable=SC2086
canzona $small --save-every 5 --run foretold --steps 2 --mesh dp=2
exits 0
says 'to save in the background'
# shellcheck disable=SC2086
canzona $small --save-every 5 --run foretold2 --save sync --steps 2 --mesh dp=2
exits 0
lacks err 'to save in the background'

# --- The weights that a run began with are not needed again.
cp -r whole weights
# shellcheck disable=SC2086
canzona $small --init weights --mesh dp=2 --steps 4 --run from_weights --save-every 2
exits 0
rm -r weights
canzona train --run from_weights --resume 2
exits 0
says 'step 2 of 4 is done'

# --- Who loses a run to something else is told how it goes on.
cp text.txt cut.txt
# shellcheck disable=SC2086
begins lost $small --data cut.txt --steps 1000000 --run lost --mesh dp=2 \
  --save-every 2 --set log.every=1000000
dd if=/dev/null of=cut.txt bs=1 seek=1000 count=0 2>/dev/null
ends
exits 3
says 'the newest checkpoint is of step' 'canzona train --run lost --resume auto'

# --- D5: ten bad steps in a row leave the last good checkpoint as it was.
wild="--set adamw.learning_rate=3e38 --set clip=0 --set schedule.warmup=0"
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 4 --run wild --save-every 2
exits 0
(cd wild/ckpt && find . -type f -exec cksum {} + | sort) >good
# shellcheck disable=SC2086
canzona train --run wild --resume auto --steps 50 $wild --keep-last 1
exits 5
says 'the run diverged'
(cd wild/ckpt && find . -type f -exec cksum {} + | sort) >now
checks=$((checks + 1))
cmp -s good now || fail 'the last good checkpoint has changed'

# --- R9: a rank that is late is named, at the end, in the summary and the page.
CANZONA_TEST_SLEEP=1:200
export CANZONA_TEST_SLEEP
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 4 --run late
unset CANZONA_TEST_SLEEP
exits 0
prints 'rank 1 was late by'
holds late/summary.json '"late_rank": 1'
holds late/report.html 'rank 1 was late by'

# --- Replicas are compared, and are the same.
# shellcheck disable=SC2086
canzona $small --mesh dp=2 --steps 4 --check-replicas 1
exits 0

# --- ZeRO sizes of a checkpoint follow another mesh, with a note.
# shellcheck disable=SC2086
canzona $small --set batch.micro=4 --mesh dp=4 --zero hier:4 --steps 2 --save-every 2 \
  --run sliced --quiet
exits 0
canzona train --run sliced --resume auto --mesh dp=2 --steps 3
exits 0
says 'zero.sizes hier:4 (checkpoint of step 2) became zero3' 'on dp=2'
refuses 'zero.sizes (--zero)' 'does not divide' -- train --run sliced \
  --resume auto --mesh dp=2 --steps 4 --zero hier:4

finish
