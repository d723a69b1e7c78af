#!/bin/sh
# check_mentions.sh <root>
#
# Fails if a comment or a page of docs names a source file (x.h, x.cc, x.cu,
# x.cuh, with or without folders) that is not in the tree, or if a header names
# itself. Headers of libraries are those in angle brackets; a few are
# listed below.
set -u
root=${1:?usage: check_mentions.sh <root>}
cd "$root" || exit 2

# Headers of libraries that are mentioned without brackets.
others='^(nccl|mpi|cuda)\.h$'

there=$(mktemp)
named=$(mktemp)
trap 'rm -f "$there" "$named"' EXIT

# Lists every source with each suffix of its path: a/b/c.h, b/c.h, c.h.
find . \( -name '.?*' -o -path './build*' \) -prune -o \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o \
  -name '*.cc.in' \) -print | sed 's|^\./||; s|\.in$||' | awk '{
    print
    while (sub(/^[^\/]*\//, "")) print
  }' | sort -u >"$there"

# Prints "file name" lines from the comments of sources and from all of docs
# except blocks of code.
{
  find canzona cli bench fuzz -name '*.h' -o -name '*.cc' -o -name '*.cu' -o \
    -name '*.cuh' | sort | xargs awk '
    match($0, /^[ \t]*\/\//) || match($0, /[ \t]\/\/ /) {
      print FILENAME "\t" substr($0, RSTART)
    }'
  # CHANGELOG.md is left out because it names files as they were.
  find docs README.md -name '*.md' | sort | xargs awk '
    FNR == 1 { code = 0 }
    /^```/ { code = !code; next }
    !code { print FILENAME "\t" $0 }'
} | awk -F '\t' '{
  text = $2
  gsub(/<[^>]*>/, "", text)
  while (match(text, /[A-Za-z0-9_\/.]*[A-Za-z0-9_]\.(cuh|cu|cc|h)/)) {
    name = substr(text, RSTART, RLENGTH)
    text = substr(text, RSTART + RLENGTH)
    if (text ~ /^[A-Za-z0-9_(]/ || text ~ /^\.[A-Za-z]/) continue
    sub(/^(\.\.?\/)+/, "", name)
    print $1 " " name
  }
}' | sort -u >"$named"

awk -v others="$others" -v there="$there" '
  BEGIN { while ((getline name < there) > 0) known[name] = 1 }
  { base = $2; sub(/.*\//, "", base) }
  base ~ others { next }
  !($2 in known) { print $1 " names " $2 ", which is not there"; bad = 1; next }
  $1 ~ /\.h$/ && ($1 == $2 || substr($1, length($1) - length($2)) == "/" $2) {
    print $1 " names itself"
    bad = 1
  }
  END { exit bad }' "$named"
