#!/bin/sh
# check_mentions.sh accepts names of files that are there and refuses others.
set -u
check=$(cd "$(dirname "$0")" && pwd)/check_mentions.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# expect <0|1> <file> <text of it>, beside canzona/room/there.h
expect() {
  rm -rf "$folder/tree"
  mkdir -p "$folder/tree/canzona/room" "$folder/tree/docs" "$folder/tree/cli" \
    "$folder/tree/bench" "$folder/tree/fuzz"
  : >"$folder/tree/README.md"
  : >"$folder/tree/canzona/room/there.h"
  printf '%s\n' "$3" >"$folder/tree/$2"
  sh "$check" "$folder/tree" >"$folder/output"
  got=$?
  if [ "$got" -ne "$1" ]; then
    echo "$2 with '$3': expected exit $1, got $got"
    cat "$folder/output"
    status=1
  fi
}

expect 0 canzona/room/a.cc '// Uses what there.h says.'
expect 0 canzona/room/a.cc '// (room/there.h), and mpi.h of a library.'
expect 0 canzona/room/a.cc 'const char* name = "absent.h";'
expect 0 docs/page.md 'See `canzona/room/there.h`.'
expect 0 docs/page.md '```
your_own.cc
```'

expect 1 canzona/room/a.cc '// Uses what absent.h says.'
expect 1 canzona/room/a.cc 'int a = 0;  // as in absent.cc'
expect 1 canzona/room/a.cc '// (other/there.h)'
expect 1 canzona/room/a.h '// See a.h.'
expect 1 docs/page.md 'See `room/absent.h`.'

exit $status
