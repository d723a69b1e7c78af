# README.md and docs/tour.md: figures are what the program prints, and commands
# run. The third argument is mpirun, or nothing.
. "$(dirname "$0")/words.sh"
readme=$here/../../README.md
tour=$here/../../docs/tour.md
figures=$here/../../scripts/readme_figures.py
mpirun=$3

# Figures. A changed one is noticed.
if command -v python3 >/dev/null; then
  last='scripts/readme_figures.py --check'
  status=0
  checks=$((checks + 1))
  : >err
  python3 "$figures" "$program" --check >figures.out 2>&1 ||
    fail "$(cat figures.out)"
  sed '/^| \*\*`balanced`/s/GiB/MiB/' "$readme" >stale.md
  checks=$((checks + 1))
  ! python3 "$figures" "$program" --check --readme stale.md >figures.out 2>&1 ||
    fail 'a stale figure is not noticed'
else
  echo 'skipped: no python3 here to compare the figures'
fi

# Commands, in their order, as written but for what makes them short. A line that
# takes longer than seconds says so here.
canzona doctor
planner=$(grep -c 'built to plan only' err)
shortened() {
  case $1 in
  *' --dry-run'*) ;;
  *' train '*) echo '--steps 2 --set eval.sequences=2' ;;
  *'bench step'*--strategy*) echo '--steps 1 --compute 0' ;;
  *'bench step'*) echo '--steps 1 --strategy balanced --compute 0' ;;
  esac
}
too_long() {
  case $1 in
  *' calibrate '*) return 0 ;;
  *' train '* | *' sample '* | *' eval '* | *' ckpt '* | *' bench '* | *' report '* | *' config '* | *' doctor')
    [ "$planner" -gt 0 ] ;;
  mpirun*) [ -z "$mpirun" ] ;;
  *) return 1 ;;
  esac
}
mkdir -p build corpus path/to
ln -s "$program" build/canzona
ln -s "$here/.." tests
ln -s "$here/../../examples" examples
i=0
while [ $i -lt 300 ]; do
  echo "line $i of a book in which every line says its number, as line $i does"
  i=$((i + 1))
done >book.txt
cp book.txt corpus/one.txt
printf '%s' '{"model_type": "qwen3", "hidden_size": 256, "vocab_size": 512,
  "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 16,
  "num_attention_heads": 16, "num_key_value_heads": 8}' >path/to/config.json

# Each page begins without runs.
for page in "$readme" "$tour"; do
  echo 'rm -rf runs'
  # Blocks without a language are commands that run here.
  awk '/^```/ { inside = !inside; plain = $0 == "```"; next }
       inside && plain' "$page" |
    sed -n 's/ *#.*//; /^\(mpirun\|build\/canzona\)/p'
done >commands
checks=$((checks + 1))
last='README.md, docs/tour.md'
[ "$(wc -l <commands)" -gt 20 ] || fail 'its commands were not found'
ran=0
while IFS= read -r line; do
  if too_long "$line"; then
    echo "not run here: $line"
    continue
  fi
  last=$line
  case $line in
  mpirun*) words="\"$mpirun\"${line#mpirun}" ;;
  *) words=$line ;;
  esac
  eval "$words $(shortened "$line")" >out 2>err </dev/null
  status=$?
  exits 0
  ran=$((ran + 1))
done <commands
echo "$ran commands ran"
finish
