# The rule of docs/adding_a_rule.md: its diff is applied to a copy of the
# project, which is built, and the new rule is tested, listed, measured,
# planned, trained and resumed like any other.
#
#   adding_a_rule.sh <folder>/build/canzona <cmake> <root> <generator>
#                    <compiler> [<compiler launcher>]
#
# The folder is kept: a second run compiles only what has changed.
. "$(dirname "$0")/words.sh"
root=$3
generator=$4
compiler=$5
launcher=${6:-}
build=$(dirname "$program")
tree=$(dirname "$build")/tree
# Warnings and messages of the build's own tools go to a file.
log=$scratch/log

# run <command>: ends the test if it fails.
run() {
  last=$*
  "$@" >"$log" 2>&1 && return
  printf 'FAILED: %s\n' "$last"
  tail -n 40 "$log"
  exit 1
}

# --- Copies the tree, keeping file times, and applies the diff; neither needs
# git.
rm -rf "$tree"
mkdir -p "$tree" "$build"
(cd "$root" && tar -cf - --exclude='./build*' --exclude='./.?*' .) |
  tar -xf - -C "$tree"
run sh "$root/tests/apply_rule_diff.sh" "$root" "$tree"
rule=$(cat "$log")
title=$(printf %s "$rule" | cut -c1 | tr '[:lower:]' '[:upper:]')${rule#?}
run sh "$tree/tests/check_registered.sh" "$tree"
run sh "$tree/tests/check_rule_names.sh" "$tree"

# --- Builds the program and the tests that cover every rule.
run "$cmake" -S "$tree" -B "$build" -G "$generator" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DCANZONA_BUILD_TESTS=ON
run "$cmake" --build "$build" --parallel 2 --target canzona \
  canzona_rule_facts_test canzona_rules_test
run "$build/rooms/rules/canzona_rule_facts_test"
run "$build/rooms/rules/canzona_rules_test" \
  --gtest_filter="$title*:Optimizer*"
echo "$(sed -n 's/.*  PASSED  . \(.*\)\./\1/p' "$log") of canzona_rules_test"
run sh "$tree/tests/cli/config.sh" "$program" "$cmake"

# --- The new rule is listed.
canzona rules
exits 0
prints "$rule"
canzona rules "$rule" --json
exits 0
member_is 'rules 0 name' "$rule"
canzona config show --rule "$rule"
exits 0
prints "$rule"

# --- It is measured for a plan, which then uses measured seconds. If OpenBLAS
# does not fit the CPU, nothing is measured.
model="--model qwen3-0.6b --scale 1/16 --layers 2"
# shellcheck disable=SC2086
canzona plan $model --mesh dp=2,tp=2 --rule "$rule" -o plan.json
exits 0
canzona validate plan.json
exits 0
canzona explain plan.json --rank 1
exits 0
prints Computes matrices
canzona calibrate --rounds 1 --for plan.json -o cost.json
if [ "$status" -eq 0 ]; then
  holds cost.json "\"rule\": \"$rule\""
  # shellcheck disable=SC2086
  canzona plan $model --mesh dp=2,tp=2 --rule "$rule" --cost cost.json
  exits 0
  prints 'measured, cost table'
else
  exits 2
  says 'nothing is measured'
fi

# --- A step has the same digest under every strategy and, with exact gradients,
# on every mesh.
digest=
for mesh in dp=1 dp=2,tp=2; do
  # shellcheck disable=SC2086
  canzona bench step $model --mesh $mesh --rule "$rule" --strategy all \
    --steps 3 --warmup 1 --gradients exact --json
  exits 0
  member_is digests_agree ON
  member_is 'strategies 0 digest' "${digest:=$(member 'strategies 0 digest')}"
done

# --- Training on one mesh gives the same bits under every strategy, and so does
# a run that stops and resumes.
small=$(small_model)
digests_of() {
  sed -n 's/^ *"\(state_\)*digest": "\([0-9a-f]*\)",*$/\2/p' "$1/summary.json"
}
same() {  # <folder> <folder>
  checks=$((checks + 1))
  [ -n "$(digests_of "$1")" ] && [ "$(digests_of "$1")" = "$(digests_of "$2")" ] ||
    fail "$1 ended with $(digests_of "$1"), $2 with $(digests_of "$2")"
}
for mesh in dp=1 dp=2,tp=2; do
  # shellcheck disable=SC2086
  canzona train $small --rule "$rule" --mesh $mesh --steps 6 --run "whole-$mesh"
  exits 0
  # shellcheck disable=SC2086
  canzona train $small --rule "$rule" --mesh $mesh --steps 6 --run "saved-$mesh" \
    --save-every 3 --keep-last 0
  exits 0
  canzona train --resume "saved-$mesh/ckpt/step_00000003" --mesh $mesh \
    --run "resumed-$mesh"
  exits 0
  same "whole-$mesh" "resumed-$mesh"
done
# shellcheck disable=SC2086
canzona train $small --rule "$rule" --mesh dp=2,tp=2 --steps 6 --run layerwise \
  --strategy layerwise
exits 0
same whole-dp=2,tp=2 layerwise

# --- It learns.
# shellcheck disable=SC2086
canzona train $small --rule "$rule" --steps 40 --json --quiet
exits 0
checks=$((checks + 1))
awk "BEGIN { exit !($(member final_loss) < 0.8 * 5.545) }" ||
  fail "the loss is $(member final_loss) after 40 steps, 5.545 before them"
finish
