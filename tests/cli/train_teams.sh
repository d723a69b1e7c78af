# canzona train and bench step --teams: ranks that share matrices end with the
# bits of those that do not, and go on from each other's checkpoints.
. "$(dirname "$0")/words.sh"

computes train --dry-run

# Links that take no time: sharing pays although matrices are small.
model="$(small_model) --set model.layers=1 --set model.hidden=64
  --set model.ffn=1024 --set model.head_dim=16 --set eval.sequences=4
  --set batch.global=4 --set batch.micro=2 --set schedule.kind=constant
  --link intra=9000TB/s,inter=9000TB/s,latency=0us"
quick="$model --rule-option strips=8 --rule-option precision=fp32"

# trains <digest, or "" for the first> <arguments>
trains() {
  expected=$1
  shift
  # shellcheck disable=SC2086
  canzona train $quick --mesh tp=4 --json "$@"
  exits 0
  is_json
  [ -z "$expected" ] && return
  member_is digest "$expected"
  member_is state_digest "$states"
}

trains '' --steps 4
digest=$(member digest)
states=$(member state_digest)
lacks err 'teams:'
trains "$digest" --steps 4 --teams 2
says 'teams: '
for teams in 4 auto; do
  trains "$digest" --steps 4 --teams $teams
  says 'matrices are shared' 'by 4 ranks'
done
trains "$digest" --steps 4 --set plan.teams=4 --strategy contiguous \
  --set plan.teams=auto
says 'teams: none: strategy contiguous'

# go_on <name>: saved with teams and without; states are the same, and so is the
# end.
go_on() {
  for from in off 4; do
    [ $from = off ] && to=4 || to=off
    run=$1_$from
    trains '' --steps 2 --teams $from --run "$run" --save-every 2
    middle=$(member digest)
    middle_states=$(member state_digest)
    trains '' --resume "$run/ckpt/step_00000002" --save-every 0 --steps 2 \
      --teams $to
    member_is digest "$middle"
    member_is state_digest "$middle_states"
    trains "$digest" --resume "$run" --run "$run" --steps 4 --teams $to
    says 'resumed from'
    [ $to = off ] || says 'matrices are shared'
  done
}
go_on run
# What a run was asked for is kept.
trains '' --steps 2 --teams 4 --run kept --save-every 2
trains "$digest" --resume kept --run kept --steps 4
says 'matrices are shared'
# On other ranks, or by another strategy, a size that was saved becomes auto;
# one that is given now is refused.
for other in '--mesh dp=2' '--mesh tp=2' '--strategy contiguous'; do
  # shellcheck disable=SC2086
  canzona train --resume kept/ckpt/step_00000002 --save-every 0 --steps 3 $other
  exits 0
  says 'note: plan.teams 4 (checkpoint of step 2) became auto: '
done
refuses '--teams 4' 'have a single rank' -- \
  train --resume kept --run kept --mesh dp=2 --teams 4
canzona config show --set plan.teams=4
exits 0
prints plan.teams

# SOAP with one factor, whose members keep states: checkpoints lie between
# refreshes, in steps 1 and 4, and at one.
for every in 3 1; do
  quick="$model --rule soap --rule-option strips=8
    --rule-option max_preconditioner_dim=100
    --rule-option precondition_frequency=$every"
  trains '' --steps 4
  digest=$(member digest)
  states=$(member state_digest)
  go_on "soap_$every"
done
# With two factors, whose owners have helpers.
for rule in soap shampoo; do
  [ $rule = soap ] && ffn=128 || ffn=96  # sizes with which helpers pay
  quick="$model --set model.ffn=$ffn --rule $rule
    --rule-option precondition_frequency=1"
  trains '' --steps 4
  digest=$(member digest)
  states=$(member state_digest)
  go_on "helped_$rule"
done
quick="$model --rule-option strips=8 --rule-option precision=fp32"

# shellcheck disable=SC2086
canzona train $quick --mesh tp=4 --teams 4 --dry-run --json
exits 0
is_json
member_is teams 4
canzona train --mesh tp=4 --teams auto --dry-run
exits 0
prints 'teams: none: rule muon cannot share any matrix of this model'

# One digest whatever the sizes of ZeRO, and the one without teams.
printf '%s' '{"model_type": "qwen3", "hidden_size": 64, "vocab_size": 256,
  "intermediate_size": 1024, "num_hidden_layers": 1, "head_dim": 16,
  "num_attention_heads": 4, "num_key_value_heads": 4}' >wide.json
zero="bench step --model wide.json --fused --mesh dp=2,tp=2 --rule-option strips=8
  --rule-option precision=fp32 --strategy balanced --steps 1 --iterations 0
  --link intra=9000TB/s,inter=9000TB/s,latency=0us --json --quiet"
# shellcheck disable=SC2086
canzona $zero --compute 0 --zero 'zero1;none'
exits 0
is_json
digest=$(member 'strategies 0 digest')
member_is 'strategies 1 digest' "$digest"
for sizes in zero1 none; do
  # shellcheck disable=SC2086
  canzona $zero --compute 0 --zero $sizes --teams 2 --trace trace.json
  exits 0
  is_json
  holds trace.json '"iterate"'
  member_is 'strategies 0 digest' "$digest"
done

canzona train --help
exits 0
prints 'off, auto, or the largest'
refuses "plan.teams" "'3'" '--teams' 'auto, off, 2, 4, 8' -- \
  train --mesh tp=4 --teams 3
refuses '--teams 2' 'have a single rank' -- train --mesh dp=2 --teams 2
refuses '--teams 4' 'have 2' -- \
  train --mesh dp=2,tp=2 --teams 4 --set model.ffn=1024 --rule-option strips=8
refuses '--teams 2' 'rule muon cannot share any matrix' -- train --mesh tp=2 --teams 2
refuses '--teams 2' 'have a single rank' -- bench step --model wide.json --mesh dp=2 \
  --strategy balanced --teams 2 --compute 0

finish
