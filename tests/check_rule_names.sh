#!/bin/sh
# check_rule_names.sh <root>
#
# Fails if a source outside the rules' own folders names a rule as a word of
# its own ("muon"): it would decide something that the rule's entry must say.
# Names may stand where the default rules are declared.
set -u
root=${1:?usage: check_rule_names.sh <root>}
cd "$root" || exit 2

table=canzona/rules/rules.def
rules=$(sed -n 's/^CANZONA_RULE(\([a-z0-9_]*\))$/\1/p' "$table")
[ -n "$rules" ] || {
  echo "$table names no rule"
  exit 2
}
# shellcheck disable=SC2086  # a list of words
words=$(printf '"%s"|' $rules)

found=$(find canzona cli -type f \( -name '*.cc' -o -name '*.h' -o -name '*.cu' \
  -o -name '*.cuh' \) ! -name '*_test.*' ! -name 'test_*' \
  ! -path 'canzona/rules/*/*' \
  ! -path canzona/rules/facts.h ! -path canzona/measure/rule_step.h \
  -exec awk '{ line = $0; sub(/\/\/.*/, "", line)
               # Removes examples in JSON and TOML, which help texts show.
               gsub(/": "[^"]*"/, "", line); sub(/ = "[^"]*"$/, "", line) }
             line ~ words { print FILENAME ":" FNR ":" $0 }' \
  words="${words%|}" {} + | sort)
[ -z "$found" ] && exit 0
echo "$found"
echo "ask the rule's entry (canzona/rules/facts.h) instead of its name"
exit 1
