#!/bin/sh
# check_names.sh <root>
#
# Fails if two headers of canzona/ define a type of the same name in the same
# namespace: a class, an enumeration or an alias, on one line or several. Compilers and linkers do not see it: a program that has both takes
# the functions of one for the other's. Headers of tests (test_*.h) are linked
# into one program each and do not count.
set -u
root=${1:?usage: check_names.sh <root>}
cd "$root" || exit 2

twice=$(find canzona -name '*.h' ! -name 'test_*.h' | sort | xargs awk '
  FNR == 1 { space = ""; own = 0 }
  /^namespace \{/ { own = 1 }
  /^}  \/\/ namespace$/ { own = 0 }
  /^namespace [a-z_:]+ \{/ { space = $2 }
  # A definition opens a brace on its first line, which may be its last, or goes
  # on beyond it; a declaration ends there without one.
  !own && /^(struct|class|enum|union) [A-Za-z0-9_ ]+([^;]*$|[^;]*\{)/ {
    name = $1 == "enum" && $2 == "class" ? $3 : $2
    sub(/[^A-Za-z0-9_].*/, "", name)
    print space "::" name, FILENAME
  }
  !own && /^using [A-Za-z0-9_]+ =/ {
    print space "::" $2, FILENAME
  }' | sort -u | awk '
  $1 == last { print $1 " is in " file " and in " $2 }
  { last = $1; file = $2 }')
[ -z "$twice" ] && exit 0
echo "$twice"
exit 1
