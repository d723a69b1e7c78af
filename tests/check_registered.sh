#!/bin/sh
# check_registered.sh <root>
#
# Fails if a source, above all a *_test.cc, lies on disk without being named in
# a CMakeLists.txt of its folder or one above, or in the table of rules: it
# would never run.
set -u
root=${1:?usage: check_registered.sh <root>}
cd "$root" || exit 2

# Prints the words of a CMakeLists.txt, one per line, without comments.
words() {
  sed 's/#.*//' "$1" | tr '()"[:space:]' '\n'
}

# registered <file>: looks from the file's folder up to the root.
registered() {
  folder=$(dirname "$1")
  while :; do
    relative=${1#"$folder"/}
    if [ -f "$folder/CMakeLists.txt" ] &&
      words "$folder/CMakeLists.txt" | grep -Fxq -e "$relative"; then
      return 0
    fi
    [ "$folder" = . ] && return 1
    folder=$(dirname "$folder")
  done
}

# of_rule <file>: one of the four sources that canzona/rules/CMakeLists.txt
# takes from the folder of every rule in rules.def.
of_rule() {
  case ${1##*/} in
    facts.cc | facts_test.cc | rule.cc | rule_test.cc) ;;
    *) return 1 ;;
  esac
  folder=$(dirname "$1")
  table=$(dirname "$folder")/rules.def
  [ -f "$table" ] && grep -Fxq "CANZONA_RULE(${folder##*/})" "$table"
}

list=$(mktemp)
trap 'rm -f "$list"' EXIT
find . \( -name '.?*' -o -path './build*' \) -prune -o \
  \( -name '*.cc' -o -name '*.cu' \) -print | sort >"$list"

status=0
while read -r file; do
  if ! registered "$file" && ! of_rule "$file"; then
    echo "${file#./} is in no CMakeLists.txt"
    status=1
  fi
done <"$list"
exit $status
