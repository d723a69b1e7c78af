# program.sh <canzona_conformance> <folder of fixtures>
#
# The program's verdicts and exit status, for files that pass, fail, ask for
# what no rule does, or cannot be read.
set -eu
program=$1
golden=$2
adamw=$golden/adamw-keller-3x4-f64.safetensors
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect <status> <words of the output> <argument>...
expect() {
  status=0
  wanted=$1 words=$2
  shift 2
  "$program" "$@" >"$folder/out" 2>&1 || status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -qF -e "$words" "$folder/out"; then
    echo "$*: status $status, expected $wanted and \"$words\""
    cat "$folder/out"
    exit 1
  fi
}

expect 0 '1 passed, 0 failed, 0 unsupported, 0 unreadable' "$adamw"
expect 0 'adamw-keller-3x4-f64.safetensors: passed' "$adamw" --verbose
expect 0 ' passed, 0 failed' "$golden" --newton-schulz standard

# The last byte of a number holds its sign and exponent.
{
  head -c -1 "$adamw"
  printf '\100'
} >"$folder/damaged.safetensors"
expect 1 'damaged.safetensors: FAILED' "$folder/damaged.safetensors" "$adamw"

LC_ALL=C sed 's/\(adam\.amsgrad[^,]*\)false/\1true /' "$adamw" \
  >"$folder/unsupported.safetensors"
expect 0 'adam.amsgrad=true' "$folder/unsupported.safetensors"

head -c 1000 "$adamw" >"$folder/short.safetensors"
expect 2 'cut short' "$folder/short.safetensors" "$adamw"
expect 2 'no *.safetensors' "$golden/.."
expect 2 'expected fixtures'
expect 2 "'gram'" "$adamw" --newton-schulz gran
expect 2 'cpu, cuda' "$adamw" --device gpu
expect 2 'unknown option' "$adamw" --slack 2
