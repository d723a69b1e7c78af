#!/bin/sh
# apply_rule_diff.sh applies a diff of one folder and one line, once, and
# refuses any other.
set -u
apply=$(cd "$(dirname "$0")" && pwd)/apply_rule_diff.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/root
status=0

page() {  # <file of the rule> <line of the table before it>
  cat <<END
\`\`\`diff
--- a/canzona/rules/rules.def
+++ b/canzona/rules/rules.def
@@ -1 +1,2 @@
 $2
+CANZONA_RULE(new)
--- /dev/null
+++ b/$1
@@ -0,0 +1 @@
+// A new rule.
--- a/docs/config.md
+++ b/docs/config.md
@@ -1 +1 @@
-old
+old, new
\`\`\`
END
}

# expect <0|1> <what> [<tree>]
expect() {
  sh "$apply" "$root" ${3:+"$3"} >"$folder/output" 2>&1
  got=$?
  [ "$got" -eq "$1" ] && return
  echo "$2: expected exit $1, got $got"
  cat "$folder/output"
  status=1
}

mkdir -p "$root/canzona/rules" "$root/docs"
echo 'CANZONA_RULE(old)' >"$root/canzona/rules/rules.def"
echo old >"$root/docs/config.md"
document=$root/docs/adding_a_rule.md

page canzona/rules/new/rule.cc 'CANZONA_RULE(old)' >"$document"
expect 0 'a folder and a line'
cp -R "$root" "$folder/copy"
expect 0 'a copy' "$folder/copy"
if ! grep -q new "$folder/copy/canzona/rules/new/rule.cc" ||
  [ -e "$root/canzona/rules/new" ]; then
  echo 'the diff was not applied to the copy alone'
  status=1
fi
expect 1 'a second time' "$folder/copy"

page canzona/rules/new/rule.cc 'CANZONA_RULE(older)' >"$document"
expect 1 'another table'
page cli/new.cc 'CANZONA_RULE(old)' >"$document"
expect 1 'a file elsewhere'
page canzona/rules/new/rule.cc 'CANZONA_RULE(old)' | sed 's/^-old/ old/' \
  >"$document"
expect 1 'an unchanged line of the keys'
echo 'no diff' >"$document"
expect 1 'a page without a diff'

exit $status
