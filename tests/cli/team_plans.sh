# Plans in which ranks of a home share matrices.
. "$(dirname "$0")/words.sh"

request='--model qwen3-32b --layers 4 --fused --mesh dp=2,tp=8 --rule muon'
strips='--rule-option strips=8'

# Teams off is the default, of which a plan does not speak.
canzona plan $request $strips -o plain.json
exits 0
lacks out team
checks=$((checks + 1))
! grep -q team plain.json || fail 'a plan without teams speaks of them'
canzona plan $request $strips --teams off -o off.json
checks=$((checks + 1))
cmp -s plain.json off.json || fail '--teams off gave another plan'

canzona plan $request $strips --teams auto -o plan.json --html report.html
exits 0
prints 'teams' 'by 4 ranks' 'with teams' 'team sums' 'team factors'
says 'teams: '
holds plan.json '"teams":"auto"'
holds plan.json '"team_bound_ticks":'
holds report.html '"team_shapes":[{'
canzona plan $request $strips --teams auto -o again.json
checks=$((checks + 1))
cmp -s plan.json again.json || fail 'the same input gave another plan'
canzona plan $request $strips --teams 2 --json
exits 0
is_json
member_is 'teams 4' 0
has_member 'all_ranks team_bound_over_mean'
canzona compare $request $strips --teams auto --json
exits 0
is_json
has_member 'strategies 0 teams 8'

canzona validate plan.json
exits 0
canzona plan --help
exits 0
lacks out 'cannot share'
canzona explain plan.json --matrix model.layers.0.mlp.gate_up_proj.weight
exits 0
prints ', head' 'strips' 'sums in' 'factors in' 'A team of'
canzona explain plan.json --rank 0
exits 0
canzona explain plan.json --audit
exits 0
prints 'strips each' 'No team: '
canzona explain plan.json --audit --json
exits 0
is_json

# Broken teams: all that is wrong, exit status 1.
team='\("owners":\[[^[]*\)\[\([0-9]*\),\([0-9]*\)[0-9,]*\]'
sed "s/$team/\1[\2,\2,\3]/" plan.json >broken.json
canzona validate broken.json
exits 1
prints 'twice' 'has 3 ranks, expected 2, 4 or 8'
canzona plan $request --rule-option strips=4 --ranks-per-node 4 --teams auto \
  -o nodes.json
head=$(sed -n "s/.*$team.*/\2/p" nodes.json)
home=$(seq -s, $((head / 8 * 8)) $((head / 8 * 8 + 7)))
sed "s/$team/\1[$home]/" nodes.json >broken.json
canzona validate broken.json
exits 1
prints 'larger than the 4 strips' 'several nodes of 4 ranks'
sed "s/$team/\1[99,99]/" plan.json >broken.json
canzona validate broken.json
exits 1
prints 'rank 99 is not one of the 8 ranks of its home'

# What cannot be is refused by name; auto goes on and says so.
refuses "--teams '3'" 'auto, off, 2, 4 or 8' -- plan $request --teams 3
refuses "strips='3'" 'auto|1|2|4|8' -- plan $request --rule-option strips=3
refuses '--teams 4' 'have 2' -- \
  plan --model qwen3-0.6b --mesh dp=2,tp=2 $strips --teams 4
refuses '--teams 2' 'have a single rank' -- \
  plan --model qwen3-0.6b --mesh dp=4 $strips --teams 2
refuses '--teams 2' 'rule nsgd cannot share any matrix' -- \
  plan --model qwen3-0.6b --mesh dp=2,tp=2 --rule nsgd --teams 2
refuses '--teams 2' 'rule muon cannot share any matrix' -- \
  plan $request --rule-option strips=1 --teams 2
refuses '--teams 2' '--micro-groups balanced' -- \
  plan $request $strips --strategy contiguous --teams 2
# So are they where only some of the strategies cannot plan the input.
canzona compare $request $strips --strategies contiguous,balanced --teams 2
exits 0
prints '--teams 2: strategy contiguous'
canzona compare $request $strips --strategies contiguous,balanced --teams 2 --json
exits 0
prints '--teams 2: strategy contiguous' 'try --micro-groups balanced' '--teams auto plans without teams'
for cannot in '--mesh dp=4' '--mesh dp=2,tp=2 --rule nsgd'; do
  canzona plan --model qwen3-0.6b $cannot --teams auto
  exits 0
  says 'teams: none: '
done

finish
