# 50 steps on several meshes are the 50 steps of one rank: losses agree to 1e-5.
. "$(dirname "$0")/words.sh"

# losses <mesh> <arguments>: of 50 steps, a line each.
losses() {
  mesh=$1
  shift
  canzona train --mesh "$mesh" --steps 50 --set eval.sequences=16 \
    --set model.hidden=64 --set model.ffn=96 --set model.length=32 \
    --rule-option precision=fp32 \
    --run run --overwrite --quiet "$@"
  exits 0
  sed 's/.*"loss":\([^,]*\),.*/\1/' run/metrics.jsonl
}

# agrees <mesh> <arguments>: with the losses in the file one.
agrees() {
  losses "$@" >there
  checks=$((checks + 1))
  most=$(paste one there | awk '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d }
    END { print most + 0, (NR == 50 && most <= 1e-5) ? "" : "too much" }')
  echo "$*: $most"
  case $most in *much) fail "losses differ by $most" ;; esac
}

losses dp=1 --preset tiny >one
for mesh in dp=4 tp=4 dp=2,tp=2 pp=2; do agrees $mesh --preset tiny; done

# Every token goes to every expert: the choice of some is not continuous, and
# a token that stands between two goes either way.
all="--preset moe-tiny --set model.experts_per_token=8"
# shellcheck disable=SC2086
losses dp=1 $all >one
# shellcheck disable=SC2086
for mesh in dp=2 ep=2 dp=2,ep=2; do agrees $mesh $all; done
finish
