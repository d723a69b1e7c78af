# Nothing in the folder of a run is lost, moved or cut unless somebody asked for
# that, and then nothing but what the run has written.
. "$(dirname "$0")/words.sh"

computes train --dry-run

small="train $(small_model) --set model.layers=1 --set eval.sequences=4
  --set batch.micro=8 --mesh dp=1"

# contents <folder>: names and sums of its files
contents() {
  find "$1" | sort
  find "$1" -type f | sort | while read -r file; do cksum "$file"; done
}
# remember <folders>; unchanged <what was done> <the same folders>
remember() {
  for folder in "$@"; do contents "$folder"; done >before
}
unchanged() {
  checks=$((checks + 1))
  done=$1
  shift
  for folder in "$@"; do contents "$folder"; done | cmp -s - before ||
    fail "$done: something has changed: $(for folder in "$@"; do
      contents "$folder"
    done | diff before - | head -5)"
}
# steps_are <file> <numbers>: those of its lines
steps_are() {
  checks=$((checks + 1))
  steps=$(sed 's/^{"step":\([0-9]*\),.*/\1/' "$1" | tr '\n' ' ')
  [ "$steps" = "$2 " ] || fail "the steps of $1 are $steps"
}
# base <folder>: another copy of a run of 6 steps with three checkpoints
base() {
  rm -rf "$1"
  cp -r saved "$1"
}

# shellcheck disable=SC2086
canzona $small --steps 6 --run saved --save-every 2 --keep-last 0
exits 0

# --- Checkpoints on a disk that is not there, by a link.
base unplugged
mv unplugged/ckpt scratch_disk
ln -s ../scratch_disk unplugged/ckpt
mv scratch_disk elsewhere
remember unplugged
for wish in auto 4; do
  refuses "'unplugged/ckpt' is a link to '../scratch_disk'" 'nothing was changed' -- \
    train --run unplugged --resume $wish
  lacks err 'nothing to resume from'
  unchanged "--resume $wish" unplugged
done
refuses "is a link to '../scratch_disk'" -- train --run unplugged --resume auto --overwrite
unchanged '--resume auto --overwrite' unplugged
refuses "is a link to '../scratch_disk'" -- train --resume unplugged --run other
# shellcheck disable=SC2086
refuses "is a link to '../scratch_disk'" 'nothing was changed' -- \
  $small --steps 1 --run unplugged --overwrite
unchanged '--overwrite' unplugged
mv elsewhere scratch_disk
canzona train --run unplugged --resume auto --steps 7
exits 0
says 'step 6 of 7 is done'

# --- Checkpoints that somebody has renamed are somebody's: auto does not begin
# anew beside them, and --overwrite removes what runs have written.
base renamed
for step in 2 4 6; do mv renamed/ckpt/step_0000000$step renamed/ckpt/step_0000000$step.bak; done
rm renamed/ckpt/latest
remember renamed
for more in '' --overwrite; do
  # shellcheck disable=SC2086
  refuses 'renamed/ckpt/step_00000006.bak' "name it 'step_00000006' again" 'nothing was changed' -- \
    train --run renamed --resume auto $more
  lacks err 'starts from the beginning'
  unchanged "--resume auto $more" renamed
done
base partly
mv partly/ckpt/step_00000002 partly/ckpt/step_00000002.mybackup
cp -r partly/ckpt/step_00000004 partly/ckpt/step_00000004.old-mine
cp -r partly/ckpt/step_00000004 partly/ckpt/step_00000004.left-1-2-3-0
cp partly/ckpt/latest partly/ckpt/latest.mine
for name in mine 1700000000.node7.4711.0; do echo x >partly/events.out.tfevents.$name; done
echo x >partly/events.out.tfevents.1700000000.node7
# shellcheck disable=SC2086
canzona $small --steps 1 --run partly --overwrite
exits 0
there partly/ckpt/step_00000002.mybackup/manifest.json
there partly/ckpt/step_00000004.old-mine/manifest.json
there partly/ckpt/latest.mine
there partly/events.out.tfevents.mine
there partly/events.out.tfevents.1700000000.node7.4711.0
not_there partly/events.out.tfevents.1700000000.node7
not_there partly/ckpt/step_00000004.left-1-2-3-0
not_there partly/ckpt/step_00000004
not_there partly/ckpt/latest
# ... Nor does a run that saves into the folder touch them.
# shellcheck disable=SC2086
canzona $small --steps 5 --run partly --overwrite --save-every 1 --keep-last 1
exits 0
there partly/ckpt/step_00000002.mybackup/manifest.json
there partly/ckpt/step_00000004.old-mine/manifest.json

# --- What a run begins with is not what it replaces, also behind a link.
base linked
mv linked/ckpt store
ln -s ../store linked/ckpt
base other
rm -r other/ckpt
ln -s ../store other/ckpt
remember linked store
for from in store store/step_00000004 other other/ckpt/step_00000002; do
  refuses "--init '$from' lies in" "'linked/ckpt'" 'nothing was changed' -- \
    train --init $from --data text.txt --steps 1 --mesh dp=1 --run linked --overwrite
  unchanged "--init $from" linked store
done
cp -r store/step_00000004 store/step_00000004.left-1-2-3-0
remember linked store
refuses "--resume 'store/step_00000004.left-1-2-3-0' lies in" -- \
  train --resume store/step_00000004.left-1-2-3-0 --run linked --overwrite
unchanged '--resume of what was set aside' linked store

# --- A refused resume from an earlier step has moved nothing.
for file in metrics.jsonl summary.json report.html model.safetensors; do
  base blocked
  rm -f blocked/$file
  mkdir blocked/$file
  remember blocked
  refuses "blocked/$file" 'is a folder' -- train --run blocked --resume 2
  unchanged "$file is a folder, --resume 2" blocked
  # shellcheck disable=SC2086
  refuses "blocked/$file" 'is a folder' -- $small --steps 1 --run blocked --overwrite
  unchanged "$file is a folder, --overwrite" blocked
done

# --- Another run's checkpoint is loaded before this one is replaced, as --help says.
base replaced
canzona train --resume saved --run replaced --overwrite --steps 6
exits 0
not_there replaced/ckpt/step_00000002
canzona train --help
prints 'another run, once that is loaded'

# --- A run that goes on without a folder keeps nothing: not if what it goes on
# from was saved.
refuses 'save.every 2 (checkpoint of step 6)' '--run' '--save-every 0' -- train --resume saved
canzona train --resume saved --save-every 0 --steps 7
exits 0
says 'step 6 of 7 is done'

# --- metrics.jsonl: a last line that lacks its end is a line; of two starts the
# later one counts; what is missing is told.
base cut
truncate -s -1 cut/metrics.jsonl
canzona train --run cut --resume auto --steps 8
exits 0
steps_are cut/metrics.jsonl '1 2 3 4 5 6 7 8'
lacks err 'metrics.jsonl'
base half
truncate -s -9 half/metrics.jsonl
canzona train --run half --resume auto --steps 7
exits 0
steps_are half/metrics.jsonl '1 2 3 4 5 7'
says 'half/metrics.jsonl' 'step 6 is missing'
base again
sed -n 3,4p again/metrics.jsonl | sed 's/"loss":[^,]*/"loss":0.5/' >>again/metrics.jsonl
canzona train --run again --resume 4 --steps 5
exits 0
steps_are again/metrics.jsonl '1 2 3 4 5'
checks=$((checks + 1))
[ "$(grep -c '"loss":0.5,' again/metrics.jsonl)" = 2 ] || fail 'the earlier lines have stayed'
base holes
sed -i 2,3d holes/metrics.jsonl
canzona train --run holes --resume auto --steps 7
exits 0
says 'holes/metrics.jsonl' 'steps 2 to 3 are missing'

# A folder is told by its name, even where that looks like an option.
mkdir 'seed=2'
echo '{"step": 1}' >'seed=2/metrics.jsonl'
refuses "'seed=2'" -- $small --run seed=2
lacks err '--seed 2'

finish
