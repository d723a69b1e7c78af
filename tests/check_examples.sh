#!/bin/sh
# check_examples.sh <root>
#
# Fails if a header that docs/cpp.md lists does not begin with an example, which
# stands indented in its first comment.
set -u
root=${1:?usage: check_examples.sh <root>}
cd "$root" || exit 2

headers=$(sed -n 's/^| \(`.*\.h`\) |.*/\1/p' docs/cpp.md | tr -d '`,')
[ -n "$headers" ] || exit 2
bad=0
for header in $headers; do
  awk '!/^\/\// { exit } /^\/\/   .*[;{]/ { found = 1 } END { exit !found }' \
    "canzona/$header" && continue
  echo "canzona/$header does not begin with an example"
  bad=1
done
exit $bad
