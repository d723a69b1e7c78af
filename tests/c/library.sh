#!/bin/sh
# library.sh <library> <canzona.h> [<library that it may need>...]
#
# Fails if the library shows other names than those that the header declares, or
# needs another library than C's own and those named: no MPI, no Python, no torch.
set -u
usage="usage: library.sh <library> <canzona.h> [<library>...]"
library=${1:?$usage}
header=${2:?$usage}
shift 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0

nm -D --defined-only "$library" | awk '{ print $3 }' | sort >"$scratch/shown"
sed -n 's/^CANZONA_API.*[ *]\(canzona_[a-z_]*\)(.*/\1/p' "$header" | sort \
  >"$scratch/declared"
[ -s "$scratch/declared" ] || { echo "$header declares nothing"; exit 2; }
if ! diff "$scratch/declared" "$scratch/shown" >"$scratch/differ"; then
  echo "$library: names that are declared (<) but missing, or shown (>) though not:"
  grep '^[<>]' "$scratch/differ"
  status=1
fi

readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' \
  >"$scratch/needed"
while read -r needed; do
  case $needed in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.*) continue ;;
    ld-linux*) continue ;;
  esac
  for allowed; do
    case $needed in "$allowed".so*) continue 2 ;; esac
  done
  echo "$library needs $needed"
  status=1
done <"$scratch/needed"
exit $status
