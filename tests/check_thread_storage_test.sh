#!/bin/sh
# check_thread_storage.sh takes a small array and refuses a large one.
set -u
check=$(dirname "$0")/check_thread_storage.sh
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# Compiles a program with so many bytes for each thread.
program() {
  printf '_Thread_local char room[%s];\nint main(void) { return room[0]; }\n' \
         "$1" > "$folder/$1.c"
  cc -o "$folder/$1" "$folder/$1.c"
}

program 4096 && program 1048576 || exit 1
sh "$check" "$folder/4096" || { echo "4096 bytes refused" >&2; exit 1; }
sh "$check" "$folder/none" 2>/dev/null &&
  { echo "a file that is not there taken" >&2; exit 1; }
words=$(sh "$check" "$folder/4096" "$folder/1048576" 2>&1) &&
  { echo "1 MiB taken" >&2; exit 1; }
case $words in
  *1048576*room*) ;;
  *) echo "expected the size and the name: $words" >&2; exit 1 ;;
esac
