#!/bin/sh
# check_names.sh <root>
#
# Fails if two files of canzona/ or cli/ define a name of external linkage in the
# same namespace: a class, an enumeration or an alias of two headers, a class or
# an enumeration of a source outside an anonymous namespace, or a function of two
# sources with the same types of parameters. Compilers and linkers do not see it:
# a program that has both takes the functions of one for the other's. Files of
# tests are linked into one program each and do not count, nor do no_*.cc, which
# stand in for sources that a build leaves out.
set -u
root=${1:?usage: check_names.sh <root>}
cd "$root" || exit 2

folders=
for folder in canzona cli; do
  [ -d "$folder" ] && folders="$folders $folder"
done

# shellcheck disable=SC2086  # a list of folders
twice=$(find $folders \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \
  -o -name '*.cuh' \) ! -name 'test_*' ! -name '*_test.*' ! -name 'no_*.cc' \
  ! -path '*/testing/*' | sort | xargs awk '
  # Returns the types of parameters "const A<B, C>& name, int": the words
  # before the last one, if there are several.
  function types(list,  i, c, depth, one, out) {
    list = list ","
    for (i = 1; i <= length(list); ++i) {
      c = substr(list, i, 1)
      if (c ~ /[<(\[{]/) ++depth
      if (c ~ /[>)\]}]/) --depth
      if (c != "," || depth > 0) {
        one = one c
        continue
      }
      sub(/ *=.*/, "", one)
      sub(/^ +/, "", one)
      if (one ~ /[ &*>][A-Za-z_0-9]+$/) sub(/[A-Za-z_0-9]+$/, "", one)
      gsub(/ /, "", one)
      out = out one ","
      one = ""
    }
    return out
  }
  # A definition begins with its result; that of a member is of Class::name.
  function take_function(text,  name, list) {
    if (text !~ /^[^;]*\{/) return
    name = text
    sub(/\(.*/, "", name)
    sub(/^ +/, "", name)
    if (name !~ /^[A-Za-z_][A-Za-z0-9_:<>,&* ]*[ &*][A-Za-z_0-9]+$/) return
    if (name ~ /(^| )(static|inline|constexpr|typedef|__global__) /) return
    sub(/.*[ &*]/, "", name)
    list = substr(text, index(text, "(") + 1)
    sub(/\)[^)]*\{.*/, "", list)
    print space "::" name "(" types(list) ")", FILENAME
  }
  FNR == 1 {
    space = ""
    own = is_template = 0
    text = ""
    is_source = FILENAME !~ /\.(h|cuh)$/
  }
  /^namespace \{/ { own = 1 }
  /^}  \/\/ namespace$/ { own = 0 }
  /^namespace [a-z_0-9:]+ \{/ { space = $2 }
  # A definition opens a brace on its first line, which may be its last, or goes
  # on beyond it; a declaration ends there without one. A nested class of a
  # source, "struct A::B {", is a member.
  !own && /^(struct|class|enum|union) [A-Za-z0-9_ ]+([^;]*$|[^;]*\{)/ {
    name = $1 == "enum" && $2 == "class" ? $3 : $2
    if (name !~ /::/) {
      sub(/[^A-Za-z0-9_].*/, "", name)
      print space "::" name, FILENAME
    }
  }
  !own && !is_source && /^using [A-Za-z0-9_]+ =/ {
    print space "::" $2, FILENAME
  }
  !own && is_source && /^[A-Za-z_]/ &&
    !/^(struct|class|enum|union|namespace|using|extern|template)/ {
    # A long result stands on a line of its own.
    text = is_template ? "" : (text ~ /\(/ ? "" : text " ") $0
    is_template = 0
    if (text !~ /[{;]/) next
    take_function(text)
    text = ""
    next
  }
  /^template/ { is_template = 1 }
  # A declaration on several lines ends with a brace or a semicolon.
  text != "" {
    sub(/^ +/, " ")
    text = text $0
    if (text !~ /[{;]/) next
    take_function(text)
    text = ""
  }' | sort -u | awk '
  { split($0, part, / [^ ]*$/); name = part[1]; where = $NF }
  name == last { print name " is in " file " and in " where }
  { last = name; file = where }')
[ -z "$twice" ] && exit 0
echo "$twice"
exit 1
