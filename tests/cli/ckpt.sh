# canzona ckpt lists, verifies, compares and prunes checkpoints. The test copies
# those of tests/data: two ranks saved step 100, three saved step 200, which is
# the latest.
. "$(dirname "$0")/words.sh"

canzona ckpt --help
if grep -qF 'built to plan only' err || ! grep -qF 'inspect' out; then
  echo 'skipped: this build has no checkpoints'
  exit 0
fi
mkdir -p runs/one
cp -r "$here/../data/checkpoints/v1" runs/one/ckpt

# ls: by run, by its folder.
canzona ckpt ls runs/one
exits 0
prints '100' '200' 'complete, latest'
canzona ckpt ls runs/one/ckpt/ --json
exits 0
is_json
member_is 'checkpoints 0 step' 100
member_is 'checkpoints 1 latest' ON
member_is 'checkpoints 1 world' 3
member_is 'checkpoints 1 sound' ON
member_is 'checkpoints 0 tensors' 5
mkdir empty
canzona ckpt ls empty
exits 0
prints 'no checkpoints in empty'
refuses 'nowhere' -- ckpt ls nowhere
refuses 'PATH' -- ckpt ls
refuses 'ckpt' -- ckpt
refuses "canzona ckpt 'look': expected ls, " -- ckpt look runs/one

# inspect: the latest, a step, one folder.
canzona ckpt inspect runs/one
exits 0
prints 'step 200' 'rank_00002.safetensors' 'model/layers.0.w' '[7, 5]' 'BF16'
canzona ckpt inspect runs/one --step 100 --tensors 'optim/*' --json
exits 0
is_json
member_is step 100
member_is world 2
member_is format_version 1
member_is 'tensors 0 name' 'optim/empty'
member_is 'tensors 1 boxes 0 file' 'rank_00000.safetensors'
canzona ckpt inspect runs/one/ckpt/step_00000100
exits 0
prints 'step 100'
canzona ckpt inspect runs/one --tensors 'nothing*'
exits 0
prints 'no tensor matches'
refuses '--step 300' '100, 200' -- ckpt inspect runs/one --step 300
refuses 'no checkpoints' -- ckpt inspect empty
refuses 'no checkpoints' -- ckpt verify empty
refuses '--step 300' 'is one checkpoint' -- \
  ckpt inspect runs/one/ckpt/step_00000200 --step 300

# verify: all, one, a damaged one.
canzona ckpt verify runs/one
exits 0
prints 'step_00000100: verified' 'step_00000200: verified'
cp -r runs/one runs/two
shard=runs/two/ckpt/step_00000200/rank_00001.safetensors
size=$(wc -c <"$shard")
printf 'X' | dd of="$shard" bs=1 seek=$((size - 3)) conv=notrunc 2>/dev/null
canzona ckpt verify runs/two
exits 3
prints 'step_00000100: verified' 'step_00000200: damaged' \
  'rank_00001.safetensors' "tensor 'model/layers.0.w'"
says '1 of 2 checkpoints'
canzona ckpt verify runs/two --step 100
exits 0
canzona ckpt verify runs/two/ckpt/step_00000200 --json
exits 3
is_json
member_is 'checkpoints 0 sound' OFF
has_member 'checkpoints 0 problems 0'
canzona ckpt ls runs/two
exits 0

# If a run was killed before it updated `latest`, its newest checkpoint still
# counts as the newest and is kept.
mkdir runs/unnamed
cp -r "$here/../data/checkpoints/v1" runs/unnamed/ckpt
echo step_00000100 >runs/unnamed/ckpt/latest
canzona ckpt inspect runs/unnamed
exits 0
prints 'step 200'
canzona ckpt prune runs/unnamed --keep-last 1 --json
exits 0
member_is 'kept 0' step_00000200
member_is 'removed 0' step_00000100
checks=$((checks + 1))
[ "$(cat runs/unnamed/ckpt/latest)" = step_00000200 ] ||
  fail "latest is $(cat runs/unnamed/ckpt/latest)"
# ... A run that resumed from an earlier checkpoint and was killed before it set
# the later ones aside has left them in place.
rm -r runs/unnamed/ckpt
cp -r "$here/../data/checkpoints/v1" runs/unnamed/ckpt
printf 'step_00000100\nlater steps are left\n' >runs/unnamed/ckpt/latest
canzona ckpt inspect runs/unnamed
exits 0
prints 'step 100'

# prune removes nothing unless enough checkpoints verify, and never the last
# good one.
canzona ckpt prune runs/two --keep-last 2
exits 0
prints 'step_00000200: damaged'
says 'nothing was removed'
canzona ckpt prune runs/one --keep-last 1 --dry-run
exits 0
prints 'step_00000100: would be removed'
checks=$((checks + 1))
[ -d runs/one/ckpt/step_00000100 ] || fail 'a dry run removed it'
canzona ckpt prune runs/one --keep-last 1 --json
exits 0
is_json
member_is 'kept 0' step_00000200
member_is 'removed 0' step_00000100
checks=$((checks + 1))
[ ! -d runs/one/ckpt/step_00000100 ] || fail 'it was not removed'
[ ! -e runs/one/ckpt/canzona.lock ] || fail 'the lock stayed'
refuses 'keep-last' -- ckpt prune runs/one --keep-last 0
refuses 'keep-last' -- ckpt prune runs/one
refuses 'one checkpoint' -- ckpt prune runs/one/ckpt/step_00000200 --keep-last 1

# Folders that are not checkpoints, or of a newer version, and names that a
# terminal would take for a command.
mkdir -p none/step_00000100
canzona ckpt inspect none
exits 3
says 'manifest.json' 'is missing'
printf '{"format":"canzona-checkpoint","x":"\033[31m"}' \
  >none/step_00000100/manifest.json
canzona ckpt inspect none
exits 3
says 'manifest.json' 'cut short'
ln -s "$scratch/runs/one/ckpt/step_00000200" none/step_00000300
canzona ckpt verify none --step 300
exits 2
mkdir linked
cp -r runs/one/ckpt linked/ckpt
rm linked/ckpt/step_00000200/rank_00000.safetensors
ln -s /etc/passwd linked/ckpt/step_00000200/rank_00000.safetensors
canzona ckpt verify linked
exits 3
prints 'symbolic link'
finish
