#!/bin/sh
# check_rule_names.sh accepts names where they belong and refuses any other.
set -u
check=$(cd "$(dirname "$0")" && pwd)/check_rule_names.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# expect <0|1> <file> <line in it>
expect() {
  rm -rf "$folder/tree"
  mkdir -p "$folder/tree/canzona/rules" "$folder/tree/cli" \
    "$folder/tree/$(dirname "$2")"
  printf 'CANZONA_RULE(muon)\nCANZONA_RULE(soap)\n' \
    >"$folder/tree/canzona/rules/rules.def"
  echo "$3" >"$folder/tree/$2"
  sh "$check" "$folder/tree" >"$folder/output"
  got=$?
  if [ "$got" -ne "$1" ]; then
    echo "'$3' in $2: expected exit $1, got $got"
    cat "$folder/output"
    status=1
  fi
}

expect 0 cli/a.cc '  const auto rule = kDefaultRule;  // "muon"'
expect 0 cli/a.cc '  option("--rule muon")'
expect 0 cli/a.cc '  {"rule": "muon"}'
expect 0 cli/a.cc '  name = "muon"'
expect 0 cli/a_test.cc '  make_rule("muon")'
expect 0 canzona/rules/muon/facts.cc '  "muon"'
expect 0 canzona/rules/facts.h 'constexpr const char* kDefaultRule = "muon";'
expect 1 cli/a.cc '  if (rule == "muon") {'
expect 1 cli/a.cc '  std::string rule = "muon";'
expect 1 cli/a.cc '  return matrix ? rule : "muon"'
expect 1 canzona/rules/facts.cc '  if (rule == "soap") {'
expect 1 canzona/report/a.h '  for (const char* rule : {"adamw", "soap"})'

exit $status
