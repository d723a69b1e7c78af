#!/bin/sh
# check_thread_storage.sh <program or library>...
#
# Fails if a file has much storage that every thread gets a cleared copy of
# (`thread_local` arrays): a program that starts many threads, as ours does for
# ranks and their couriers, spends its time on that.
set -u
[ $# -gt 0 ] || { echo "usage: check_thread_storage.sh <file>..." >&2; exit 2; }
most=65536  # bytes
bad=0
for file; do
  headers=$(readelf -lW "$file") || exit 2
  size=$(echo "$headers" | awk '$1 == "TLS" { print $6 }')
  size=$((${size:-0}))
  [ "$size" -le "$most" ] && continue
  echo "$file: $size bytes of every thread's storage, at most $most expected;" \
       "the largest:" >&2
  readelf -sW "$file" | awk '$4 == "TLS" { print $3, $8 }' | sort -rn | head -3 >&2
  bad=1
done
exit $bad
