# Words for tests that run the program. A test script begins with
#
#   . "$(dirname "$0")/words.sh"
#
# and is called with the path of the program and of cmake. It ends with `finish`.

program=$1
cmake=$2
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset NO_COLOR
checks=0
failures=0

# Runs the program; its outputs are in the files out and err.
canzona() {
  last="canzona $*"
  "$program" "$@" >out 2>err </dev/null
  status=$?
}

fail() {
  failures=$((failures + 1))
  printf 'FAILED: %s\n  %s\n' "$last" "$1"
  printf '  exit status %s, standard error:\n' "$status"
  sed 's/^/    /' err | head -20
}

exits() {
  checks=$((checks + 1))
  [ "$status" -eq "$1" ] || fail "expected exit status $1"
}

# Fixed texts that standard error, or output, must hold.
says() {
  for text in "$@"; do
    checks=$((checks + 1))
    grep -qF -e "$text" err || fail "standard error lacks: $text"
  done
}
prints() {
  for text in "$@"; do
    checks=$((checks + 1))
    grep -qF -e "$text" out || fail "standard output lacks: $text"
  done
}
lacks() {
  checks=$((checks + 1))
  ! grep -qF -e "$2" "$1" || fail "$1 holds: $2"
}
is_empty() {
  checks=$((checks + 1))
  [ ! -s "$1" ] || fail "$1 is not empty"
}

# refuses <text>... -- <arguments>: the program must exit with status 2, print
# nothing on standard output, and give a message with these texts.
refuses() {
  texts=$scratch/texts
  : >"$texts"
  while [ "$1" != -- ]; do
    printf '%s\n' "$1" >>"$texts"
    shift
  done
  shift
  canzona "$@"
  exits 2
  is_empty out
  says 'error: '
  while IFS= read -r text; do says "$text"; done <"$texts"
}

# Standard output is one JSON value; member by path prints one of its values.
is_json() {
  checks=$((checks + 1))
  "$cmake" -DFILE=out -P "$here/json.cmake" >json.log 2>&1 ||
    fail "standard output is no JSON: $(head -3 json.log)"
}
member() {
  "$cmake" "-DFILE=out" "-DMEMBER=$1" -P "$here/json.cmake" 2>&1 |
    sed 's/^-- //'
}
member_is() {
  checks=$((checks + 1))
  value=$(member "$1")
  [ "$value" = "$2" ] || fail "member $1 is '$value', expected '$2'"
}

# The JSON on standard output has this member.
has_member() {
  checks=$((checks + 1))
  "$cmake" "-DFILE=out" "-DMEMBER=$1" -P "$here/json.cmake" >/dev/null 2>&1 ||
    fail "no member $1"
}

# there <path>: a file that is not empty, or a folder; not_there <path>
there() {
  checks=$((checks + 1))
  [ -s "$1" ] || fail "there is no $1"
}
not_there() {
  checks=$((checks + 1))
  [ ! -e "$1" ] || fail "there is $1"
}
# holds <file> <text>
holds() {
  checks=$((checks + 1))
  grep -qF -e "$2" "$1" || fail "$1 lacks: $2"
}

# numbered_lines <count>: a text to learn from
numbered_lines() {
  line=0
  while [ "$line" -lt "$1" ]; do
    echo "line $line of a text in which every line says its number, as line $line does"
    line=$((line + 1))
  done
}

# computes <arguments>: runs the program, and ends the test if it was built to
# plan only, which it must say with exit status 2.
computes() {
  canzona "$@"
  if grep -q 'built to plan only' err; then
    exits 2
    finish
  fi
}

# Makes small.json, a list of shapes of which plans are run at once.
small_shapes() {
  printf '%s' '[{"name": "layers.0.up", "shape": [64, 32], "tp": "rows"},
    {"name": "layers.0.down", "shape": [32, 64], "tp": "columns"},
    {"name": "layers.1.up", "shape": [64, 32], "tp": "rows"},
    {"name": "norm", "shape": [32]}]' >small.json
}

# Prints the settings of a tiny model that learns text.txt quickly; writes that
# file.
small_model() {
  numbered_lines 2000 >text.txt
  echo "--set data.path=text.txt --set model.layers=2 --set model.hidden=32
    --set model.ffn=48 --set model.heads=4 --set model.kv_heads=4
    --set model.head_dim=8 --set model.length=16"
}

finish() {
  echo "$checks checks, $failures failures"
  [ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]
  exit
}
