# canzona train and bench zero --exchange: matrices that come and leave strip by
# strip have the bits of those that travel by rounds.
. "$(dirname "$0")/words.sh"

computes train --dry-run

# Every matrix has strips, so the first and the last round have some, too.
quick="$(small_model) --set model.layers=1 --set model.hidden=64
  --set model.ffn=512 --set model.head_dim=64 --set eval.sequences=4
  --set batch.global=4 --set batch.micro=2 --rule-option strips=4
  --set schedule.kind=constant"

# trains <digest, or "" for the first> <arguments>
trains() {
  expected=$1
  shift
  # shellcheck disable=SC2086
  canzona train $quick --json "$@"
  exits 0
  is_json
  [ -z "$expected" ] && return
  member_is digest "$expected"
  member_is state_digest "$states"
}

trains '' --mesh dp=2,tp=2 --steps 3
digest=$(member digest)
states=$(member state_digest)
lacks err 'exchange:'
trains "$digest" --mesh dp=2,tp=2 --steps 3 --exchange strips
says 'exchange: by strips'
# What is predicted to be shorter is taken.
trains "$digest" --mesh dp=2,tp=2 --steps 3 --exchange auto \
  --link intra=5TB/s,inter=5TB/s,latency=0us
says 'exchange: by strips (auto)'
trains "$digest" --mesh dp=2,tp=2 --steps 3 --exchange auto \
  --link intra=100GB/s,inter=100GB/s,latency=0us
says 'exchange: by rounds (auto)'

# What a run was asked for is kept; on other ranks it becomes auto.
trains '' --mesh dp=2,tp=2 --steps 2 --exchange strips --run kept --save-every 2
trains "$digest" --resume kept --run kept --steps 3
says 'exchange: by strips'
canzona train --resume kept/ckpt/step_00000002 --save-every 0 --steps 3 \
  --mesh dp=2
exits 0
says 'note: plan.exchange strips (checkpoint of step 2) became auto: mesh is' \
  'exchange: by rounds (auto)'
refuses '--exchange strips: rule muon with device=cpu has no matrix' -- \
  train --resume kept --run kept --mesh dp=2 --exchange strips

# It is a key like any other.
canzona config show --set plan.exchange=strips
exits 0
prints plan.exchange strips
echo '{"plan": {"exchange": "strips"}}' >strips.json
# shellcheck disable=SC2086
canzona train $quick --mesh tp=2 --config strips.json --dry-run --json
exits 0
is_json
member_is exchange strips
# shellcheck disable=SC2086
canzona train $quick --mesh tp=2 --dry-run --json
exits 0
member_is exchange rounds

# shellcheck disable=SC2086
canzona train $quick --mesh tp=2 --exchange auto --dry-run
exits 0
prints 'exchange: by '

# One digest whatever the sizes of ZeRO.
zero="--mesh dp=2,tp=2 --rule-option strips=4 --set model.layers=1
  --set model.hidden=64 --set model.ffn=512 --set model.heads=4
  --set model.kv_heads=4 --set model.head_dim=64 --set model.length=16 --steps 1 --warmup 0 --repeat 1
  --zero zero1;zero3 --overlap background --json"
# shellcheck disable=SC2086
canzona bench zero $zero --exchange strips --trace trace.json
exits 0
is_json
holds trace.json '"sum strips"'
member_is 'cells 1 digest' "$(member 'cells 0 digest')"

canzona train --help
exits 0
prints '--exchange HOW'
refuses "plan.exchange" "'pieces'" '--exchange' 'auto, rounds, strips' -- \
  train --mesh tp=2 --exchange pieces
refuses '--exchange strips: rule muon with device=cpu has no matrix that tp ranks exchange and that is cut into strips on dp=2' -- \
  train --mesh dp=2 --exchange strips
# Strips in other rounds alone would go unnoticed.
# shellcheck disable=SC2086
refuses '--exchange strips: no matrix of the first or the last round has strips' \
  'rule muon on tp=4' -- \
  train $quick --set model.head_dim=16 --mesh tp=4 --exchange strips
refuses '--exchange strips: rule shampoo' -- \
  train --mesh tp=2 --rule shampoo --exchange strips
refuses '--exchange strips: rule muon with device=cpu has no matrix' -- \
  bench zero --mesh dp=2 --exchange strips

finish
