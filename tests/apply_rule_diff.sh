#!/bin/sh
# apply_rule_diff.sh <root> [<tree>]
#
# Applies the diff of docs/adding_a_rule.md to a copy of the project in <tree>;
# without one, only checks that the diff applies to the project as it is. The
# diff must be what the page promises: the folder of one rule, one line of the
# table, and the table of docs/config.md.
set -u
root=$(cd "${1:?usage: apply_rule_diff.sh <root> [<tree>]}" && pwd) || exit 2
diff=$(mktemp)
trap 'rm -f "$diff" "$diff.log"' EXIT

fail() {
  echo "docs/adding_a_rule.md: $1"
  [ ! -e "$diff.log" ] || cat "$diff.log"
  exit 1
}

awk '/^```diff$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
  "$root/docs/adding_a_rule.md" >"$diff"
[ -s "$diff" ] || fail 'there is no diff'

rule=$(sed -n 's/^+CANZONA_RULE(\([a-z0-9_]*\))$/\1/p' "$diff")
[ "$(echo "$rule" | wc -w)" -eq 1 ] || fail 'expected one new line of rules.def'
others=$(sed -n 's/^+++ b\///p' "$diff" | grep -v \
  -e "^canzona/rules/$rule/[a-z_]*\.\(cc\|h\)\$" \
  -e '^canzona/rules/rules\.def$' -e '^docs/config\.md$')
[ -z "$others" ] || fail "expected a folder and a line, found $others, too"
removed=$(grep -c '^-[^-]' "$diff")
[ "$removed" -eq 1 ] || fail "the diff changes $removed lines, expected one"

# applies <folder> [--check]: applies the diff; with a second argument, only
# tries.
applies() {
  if command -v patch >/dev/null 2>&1; then
    patch --forward --fuzz=0 -p1 -d "$1" ${2:+--dry-run} -i "$diff"
  else
    # git must not take the copy for part of the repository that surrounds it.
    cd "$1" && GIT_CEILING_DIRECTORIES=$(cd .. && pwd) \
      git apply ${2:+--check} "$diff"
  fi >"$diff.log" 2>&1
}
if [ $# -gt 1 ]; then
  applies "$2" || fail "the diff does not apply to $2"
else
  applies "$root" try || fail 'the diff does not apply'
fi
echo "$rule"
