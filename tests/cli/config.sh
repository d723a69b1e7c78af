# The training configuration: canzona config.
. "$(dirname "$0")/words.sh"

computes config show
exits 0
is_empty err
prints 'model.layers' 'preset tiny' 'rule.learning_rate' 'rule.option.momentum' \
  'synthetic' 'default'
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'

# Later layers override earlier ones, and every value names its origin.
printf '%s' '{"steps": 5, "seed": 5, "clip": 0.5, "model": {"layers": 2},
  "rule": {"option": {"momentum": 0.9}}}' >run.json
canzona config show --config run.json --set steps=6 --set seed=6 --seed 7 --json
exits 0
is_json
member_is 'config steps' 6
member_is 'config seed' 7
member_is 'config clip' 0.5
member_is 'config model layers' 2
member_is 'config model hidden' 128
member_is 'config rule option momentum' 0.9
member_is 'origins steps' --set
member_is 'origins seed' --seed
member_is 'origins clip' run.json
member_is 'origins model.hidden' 'preset tiny'
member_is 'origins rule.option.momentum' run.json
member_is 'origins model.tied' default

# A file may hold numbers and booleans as strings, and strings that look like
# numbers.
echo '{"plan": {"teams": 2}, "model": {"tied": "on"}, "zero": {"prefetch": 2}}' \
  >kinds.json
canzona config show --config kinds.json --json
exits 0
member_is 'config plan teams' 2
member_is 'config model tied' ON
member_is 'config zero prefetch' 2
echo '{"plan": {"teams": 3}}' >kinds.json
refuses 'plan.teams (kinds.json)' 'auto, off, 2, 4, 8' 'found 3' -- \
  config show --config kinds.json
echo '{"model": {"tied": "yes"}}' >kinds.json
refuses 'model.tied (kinds.json)' 'on or off' "'yes'" -- \
  config show --config kinds.json

# The example in the help text is a valid file.
canzona config --help
exits 0
sed -n 's/^  \(steps = 400\|\[model\]\|layers = 8\|\[rule\]\|name = "soap"\|option\..*\).*/\1/p' out \
  >shown.toml
checks=$((checks + 1))
[ "$(wc -l <shown.toml)" -eq 6 ] || fail 'the example in the help is not found'
canzona config show --config shown.toml --json
grep -qF 'built without' err || {
  exits 0
  member_is 'config rule option precondition_frequency' 5
}

# precision=auto is resolved for this machine with a reason; an explicit
# precision stays, and rules without this option have none.
canzona config show --json
exits 0
member_is 'origins rule.option.steps' "muon's own"
canzona config show --rule-option preset=dion --json
exits 0
member_is 'origins rule.option.momentum_form' 'preset dion'
canzona config show --json
settled=$(member 'config rule option precision')/$(
  member 'origins rule.option.precision')
checks=$((checks + 1))
case $settled in
  'bf16/auto: AMX' | 'bf16/auto: AVX-512 BF16' | 'fp32/auto: no fast bf16') ;;
  *) fail "precision $settled" ;;
esac
canzona config show --rule-option precision=auto --rule-option restarts=2 --json
exits 0
member_is 'config rule option precision' "${settled%%/*}"
member_is 'origins rule.option.precision' "${settled#*/}"
for precision in bf16 fp32; do
  canzona config show --rule-option precision=$precision --json
  exits 0
  member_is 'config rule option precision' $precision
  member_is 'origins rule.option.precision' --rule-option
done
canzona config show --rule-option coefficients=cans --json
exits 0
member_is 'config rule option precision' fp32
canzona config show --rule soap --json
exits 0
lacks out precision\"
refuses 'precision' 'fp31' -- config show --rule-option precision=fp31

# Every flag is a key.
canzona config show --preset moe-tiny --data text --rule soap \
  --learning-rate 0.25 --mesh dp=2,ep=2 --ranks 4 --strategy layerwise \
  --transport thread --run folder --steps 3 \
  --rule-option precondition_frequency=5 --json
exits 0
member_is 'config preset' moe-tiny
member_is 'config model experts' 8
member_is 'config data path' text
member_is 'config rule name' soap
member_is 'config rule learning_rate' 0.25
member_is 'config mesh' dp=2,ep=2
member_is 'config ranks' 4
member_is 'config plan strategy' layerwise
member_is 'config transport' thread
member_is 'config run' folder
member_is 'config rule option precondition_frequency' 5
member_is 'origins rule.option.precondition_frequency' --rule-option

# A preset's micro-batch follows the mesh, and the preset stays its origin.
canzona config show --preset small --mesh dp=4 --json
exits 0
member_is 'config batch micro' 2
member_is 'origins batch.micro' 'preset small, for dp=4'

# The number of ranks on the command line wins over the mesh of a file, and a
# mesh over its ranks; a mesh that has as many ranks stays.
printf '%s' '{"config": {"mesh": "dp=2,tp=2", "ranks": 4}}' >summary.json
canzona config show --config summary.json --ranks 2 --json
exits 0
member_is 'config mesh' dp=2
member_is 'origins mesh' --ranks
canzona config show --config summary.json --set ranks=8 --json
exits 0
member_is 'config mesh' dp=8
canzona config show --config summary.json --ranks 4 --json
exits 0
member_is 'config mesh' dp=2,tp=2
printf '%s' '{"ranks": 4}' >ranks.json
canzona config show --config ranks.json --mesh dp=2 --json
exits 0
member_is 'config mesh' dp=2
refuses 'mesh dp=2 (--mesh)' 'ranks 3 (--ranks)' -- config show \
  --config summary.json --mesh dp=2 --ranks 3

# TOML, with lines, where the program has a parser for it.
printf 'steps = 5\n\n[model]\nlayers = 2\n' >run.toml
canzona config show --config run.toml --json
if grep -q 'without a TOML parser' err; then
  exits 2
  says 'JSON' libtomlplusplus-dev
else
  exits 0
  member_is 'origins steps' run.toml:1
  member_is 'origins model.layers' run.toml:4
  printf 'steps = 5\nmodel.layers = "two"\n' >wrong.toml
  refuses 'model.layers (wrong.toml:2)' 'whole number' "'two'" -- \
    config show --config wrong.toml
  printf 'steps = \n' >broken.toml
  refuses 'broken.toml:1' -- config show --config broken.toml
  printf '[model]\nlayer = 2\n' >unknown.toml
  refuses 'unknown.toml:2' "'model.layer'" "'model.layers'" -- \
    config show --config unknown.toml
fi

# Mistakes.
refuses "'rule.nam'" "'rule.name'" -- config show --set rule.nam=soap
refuses 'KEY=VALUE' -- config show --set steps
refuses '--steps' 'whole number' "'many'" -- config show --steps many
refuses '--rule' "'muon'" -- config show --rule muo
refuses '--preset' "'tiny'" -- config show --preset tinny
refuses 'mesh dp=2 (--mesh)' 'ranks 3 (--ranks)' -- config show --mesh dp=2 \
  --ranks 3
refuses 'batch.global 16' 'batch.global=32' -- config show --mesh dp=32
refuses 'absent.toml' -- config show --config absent.toml
refuses "'steqs'" -- config show --rule-option steqs=3
refuses 'show or keys' -- config
head -c 2000000 /dev/zero >huge.json
refuses limit -- config show --config huge.json

canzona config show --help
exits 0
prints 'Examples:' 'TOML' '--set' 'Presets:' moe-tiny

# The documentation lists exactly the existing keys.
canzona config keys
exits 0
checks=$((checks + 1))
sed -n '/^| key | option/,/^$/p' "$here/../../docs/config.md" |
  sed '/^$/d' >documented
cmp -s documented out ||
  fail 'docs/config.md is stale: put `canzona config keys` in its place'
canzona config show --help
sed -n '/^Presets:/,$s/^  \([a-z-]*\) .*/\1/p' out >presets
checks=$((checks + 1))
[ -s presets ] || fail 'help names no presets'
while IFS= read -r preset; do
  checks=$((checks + 1))
  grep -q "^| \`$preset\` |" "$here/../../docs/config.md" ||
    fail "docs/config.md lacks the preset $preset"
done <presets

# Every option of the table is one of config show and of train, and the table
# has all of them but those that name a source of several keys.
sed -n 's/^| [^|]* | `\(--[a-z-]*\)` |.*/\1/p' documented | sort >of_table
for verb in 'config show' train; do
  # shellcheck disable=SC2086
  canzona $verb --help
  sed -n '/^This run:/,$d; s/^      \(--[a-z-]*\).*/\1/p' out | sort >of_help
  checks=$((checks + 1))
  printf '%s\n' --config --model --rule-option --set >sources
  sort sources of_table >expected
  [ -z "$(comm -23 expected of_help)" ] ||
    fail "it lacks $(comm -23 expected of_help | tr '\n' ' ')"
  left=$(comm -13 expected of_help | grep -vx -e --json -e --color -e --quiet \
    -e --version -e --help | tr '\n' ' ')
  [ -z "$left" ] || fail "the table of keys lacks $left"
done
canzona config keys --json
exits 0
is_json
member_is "keys 0 key" preset
member_is "keys 0 default" tiny
member_is "keys 1 high" 1000000000000
checks=$((checks + 1))
[ "$(grep -c '"key":' out)" -eq "$(($(wc -l <documented) - 2))" ] ||
  fail 'the object has not as many keys as the table'
finish
