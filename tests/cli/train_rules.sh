# With the defaults of `tiny`, every matrix rule ends below AdamW's evaluation
# loss: on the built-in language and on this project's own sources. The third
# argument is the project's folder.
. "$(dirname "$0")/words.sh"
project=$3

# eval_loss <rule> <data>
eval_loss() {
  canzona train --preset tiny --rule "$1" --data "$2" \
    --set eval.sequences=1024 --json --quiet
  exits 0
  member eval_loss
}

for data in synthetic "$project/canzona"; do
  adamw=$(eval_loss adamw "$data")
  for rule in muon shampoo soap; do
    loss=$(eval_loss $rule "$data")
    echo "$data: $rule $loss, adamw $adamw"
    checks=$((checks + 1))
    awk "BEGIN { exit !($loss < $adamw) }" ||
      fail "$rule ends with $loss, adamw with $adamw"
  done
done
finish
