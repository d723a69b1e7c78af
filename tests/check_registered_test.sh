#!/bin/sh
# check_registered.sh accepts a listed file and refuses any other.
set -u
check=$(cd "$(dirname "$0")" && pwd)/check_registered.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# expect <0|1> <file> <CMakeLists.txt> <line in it>
expect() {
  rm -rf "$folder/tree"
  mkdir -p "$folder/tree/$(dirname "$2")" "$folder/tree/$(dirname "$3")"
  : >"$folder/tree/$2"
  echo "$4" >"$folder/tree/$3"
  sh "$check" "$folder/tree" >"$folder/output"
  got=$?
  if [ "$got" -ne "$1" ]; then
    echo "$2 with '$4' in $3: expected exit $1, got $got"
    cat "$folder/output"
    status=1
  fi
}

expect 0 room/a_test.cc room/CMakeLists.txt 'canzona_test(a a_test.cc)'
expect 0 room/in/a_test.cc room/CMakeLists.txt '  in/a_test.cc'
expect 0 build/a_test.cc CMakeLists.txt ''
expect 0 room/a.cu room/CMakeLists.txt '  a.cu'

expect 0 rules/new/rule_test.cc rules/rules.def 'CANZONA_RULE(new)'

expect 1 rules/new/more_test.cc rules/rules.def 'CANZONA_RULE(new)'
expect 1 rules/new/rule_test.cc rules/rules.def '// CANZONA_RULE(new)'
expect 1 rules/new/rule_test.cc rules/rules.def 'CANZONA_RULE(newer)'
expect 1 room/a.cu room/CMakeLists.txt 'a.cc'
expect 1 room/a_test.cc room/CMakeLists.txt ''
expect 1 room/a_test.cc other/CMakeLists.txt 'a_test.cc'
expect 1 room/a_test.cc room/CMakeLists.txt '# a_test.cc'
expect 1 room/a_test.cc room/CMakeLists.txt 'data_test.cc'
expect 1 room/a_test.cc room/CMakeLists.txt 'in/a_test.cc'
expect 1 room/in/a_test.cc room/CMakeLists.txt 'a_test.cc'

exit $status
