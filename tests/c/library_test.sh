#!/bin/sh
# library_test.sh <C compiler>: library.sh refuses what it is meant to refuse.
set -eu
compiler=${1:?usage: library_test.sh <C compiler>}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

echo 'CANZONA_API int canzona_one(void);' >one.h
build() {  # <library> <source> [<word>...]
  printf '%s\n' "$2" >source.c
  library=$1
  shift 2
  "$compiler" -shared -fPIC -o "$library" source.c "$@"
}
refuses() {  # <words of the message> <library>
  if sh "$here/library.sh" "$2" one.h >said; then
    echo "$2 passes"
    exit 1
  fi
  grep -q -- "$1" said || { echo "$2: nothing of '$1' in:"; cat said; exit 1; }
}

build good.so 'int canzona_one(void) { return 1; }'
sh "$here/library.sh" ./good.so one.h
build more.so 'int canzona_one(void) { return 1; } int other(void) { return 2; }'
refuses '> other' ./more.so
build less.so 'static int canzona_one(void) { return 1; } void *canzona_two = canzona_one;'
refuses '< canzona_one' ./less.so
build libfriend.so 'int friend(void) { return 3; }'
build needs.so 'int friend(void); int canzona_one(void) { return friend(); }' \
  -L. -lfriend
refuses 'needs libfriend.so' ./needs.so
sh "$here/library.sh" ./needs.so one.h libfriend
