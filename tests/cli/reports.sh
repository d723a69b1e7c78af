# Tests what `canzona report` makes of folders, good and bad.
. "$(dirname "$0")/words.sh"

escape=$(printf '\033')

# line <step> <loss> [<eval loss>]
line() {
  printf '{"step":%s,"loss":%s,"grad_norm":1,"lr":0.01,' "$1" "$2"
  printf '"tokens_per_second":1000,"optimizer_ms":1,"comm_ms":1,'
  printf '"hidden_fraction":1,"memory_bytes":1048576,"tokens":%s00,' "$1"
  printf '"seconds":%s%s}\n' "$1" "${3:+,\"eval_loss\":$3}"
}

# run <folder> <rule> <eval loss> <digest>: four steps, two evaluations.
run() {
  mkdir -p "$1"
  {
    line 1 4
    line 2 3 3
    line 3 2.5
    line 4 2 "$3"
  } >"$1/metrics.jsonl"
  cat >"$1/summary.json" <<JSON
{"steps": 4, "tokens": 400, "seconds": 4, "final_loss": 2, "eval_loss": $3,
 "digest": "$4", "rule": "$2", "mesh": "dp=2", "ranks": 2,
 "config": {"rule": {"name": "$2"}, "seed": 1},
 "per_rank": [{"rank": 0, "forward_backward_seconds": 3, "load": 1,
   "optimizer_seconds": 1, "reserved_bytes": 1000, "predicted_bytes": 2000}]}
JSON
}

run base adamw 3 aa
run better muon 2 bb
run again muon 2 bb

canzona report base
exits 0
prints 'Run' 'adamw' 'dp=2' '3.0000' '▁'
is_empty err
lacks out 'Until'

canzona report base better again
exits 0
prints 'To reach the evaluation loss of base, 3.0000' '2 (1.00 ×)' \
  'bit-identical: better, again' 'rule.name' 'adamw | muon | muon'

# Measured against the better one, the other never gets there.
canzona report base better --baseline better
exits 0
prints 'To reach the evaluation loss of better, 2.0000' 'not reached' '4 (1.00 ×)'

canzona report base better again --baseline again --json --quiet
exits 0
is_json
member_is 'baseline' again
member_is 'target_loss' 2
member_is 'runs 0 name' base
member_is 'runs 0 reached' ''
member_is 'runs 0 same_as_baseline' OFF
member_is 'runs 1 reached steps' 4
member_is 'runs 1 same_as_baseline' ON
member_is 'runs 1 eval_loss' 2

canzona report base better --html page.html
exits 0
says 'wrote report page.html'
cp page.html out
prints '<!doctype html>' '"report":"runs"' '"baseline":"base"' '"curves":' '<noscript>'
lacks out 'http://'
lacks out 'https://'

# A run that is going on: no summary, the last line cut.
mkdir running
{
  line 1 4
  line 2 3
  line 3 2 | head -c 40
} >running/metrics.jsonl
# What a run has written is not lost to a report of it.
for file in metrics.jsonl summary.json; do
  cp base/$file before
  canzona report base better --html ./base/$file
  exits 2
  says "--html './base/$file': belongs to RUN 'base'" 'would be lost'
  cmp -s base/$file before || fail "base/$file has changed"
done
canzona report base --html base/report.html --quiet
exits 0
rm base/report.html
canzona report running --html running.html
exits 0
prints 'did not finish'
canzona report running base
exits 0

# A run has a longer name where the last name does not tell.
mkdir -p a b
cp -r base a/run
cp -r better b/run
canzona report a/run b/run
exits 0
prints 'a/run' 'b/run'

# Folders that hold no run, and files that cannot be.
mkdir empty
refuses 'empty' 'metrics.jsonl' -- report empty
refuses 'no such folder' 'nowhere' -- report nowhere
refuses 'it is a file' -- report base/summary.json
refuses 'not one of the given runs' 'base' -- report base --baseline bose
refuses 'RUN' -- report
mkdir broken
echo '{"steps": 1' >broken/summary.json
refuses 'broken/summary.json' 'not valid JSON' -- report broken
echo '{"steps": 1}' >broken/summary.json
refuses 'broken/summary.json' "'tokens'" -- report broken
rm broken/summary.json
printf '{"step": 1}\n' >broken/metrics.jsonl
refuses 'metrics.jsonl line 1' "'loss'" -- report broken base
rm broken/metrics.jsonl
mkfifo broken/metrics.jsonl
refuses 'not a regular file' -- report broken

# Words in files reach the terminal and the page harmless.
run "$(printf 'evil<img src=x>')" 'x' 2 cc
sed 's/"rule": "x"/"rule": "\\u001b[31m<script>"/' 'evil<img src=x>/summary.json' \
  >changed && mv changed 'evil<img src=x>/summary.json'
canzona report 'evil<img src=x>' base --html evil.html
exits 0
lacks out "$escape"
lacks evil.html '<img'
lacks evil.html '<script>alert'

# Lines fit a page.
canzona report base better again
checks=$((checks + 1))
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
  fail 'a line is wider than 100 columns'

finish
