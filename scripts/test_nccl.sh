#!/bin/sh
# test_nccl.sh <canzona> [<ranks>...]
#
# Shows what one GPU can show of NCCL: ranks that share it have the bits of
# threads, started by mpirun and by torchrun, with every launch in order
# (NCCL_LAUNCH_RACE_FATAL=1). Prints what was run; fails at the first
# difference.
set -eu
canzona=${1:?usage: test_nccl.sh <canzona> [<ranks>...]}
shift
[ $# -gt 0 ] || set -- 2 4 8

export NCCL_LAUNCH_RACE_FATAL=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# digests <file>: of plans, parameters and states, strategy by strategy.
digests() {
  grep -oE '"(plan_|state_)?digest": *"[0-9a-f]+"' "$1"
}

# compare <name> <command>...: has the digests of $folder/expected.
compare() {
  name=$1
  shift
  echo "nccl: $name: $*"
  "$@" >"$folder/found.json" || {
    echo "nccl: $name: exit status $?" >&2
    exit 1
  }
  digests "$folder/found.json" >"$folder/found"
  if ! cmp -s "$folder/expected" "$folder/found"; then
    diff "$folder/expected" "$folder/found" >&2 || true
    echo "nccl: $name: other digests than threads" >&2
    exit 1
  fi
}

# check_mesh <ranks> <mesh> <rule> [<option>...]
check_mesh() {
  ranks=$1 mesh=$2 rule=$3
  shift 3
  step="bench step --device cuda --model qwen3-0.6b --scale 1/8 --layers 2
    --mesh $mesh --rule $rule $* --steps 3 --iterations 0 --json"
  # shellcheck disable=SC2086  # a list of words
  "$canzona" $step --transport thread >"$folder/thread.json"
  digests "$folder/thread.json" >"$folder/expected"
  [ -s "$folder/expected" ] || {
    echo "nccl: no digests in the answer of bench step" >&2
    exit 1
  }
  # shellcheck disable=SC2086
  compare "mpirun, $mesh, $rule $*" mpirun -n "$ranks" "$canzona" $step \
    --transport nccl --share-gpu
  if command -v torchrun >/dev/null; then
    # shellcheck disable=SC2086
    compare "torchrun, $mesh, $rule $*" torchrun --standalone --no-python \
      --nproc-per-node "$ranks" -- "$canzona" $step --transport nccl --share-gpu
  fi
}

"$canzona" doctor | grep -E '^(cuda|gpus|nccl) ' || true
for ranks in "$@"; do
  for rule in muon adamw; do
    check_mesh "$ranks" "dp=$ranks" "$rule"
  done
  [ "$ranks" -lt 4 ] || check_mesh "$ranks" "dp=2,tp=$((ranks / 2))" muon
  check_mesh "$ranks" "tp=$ranks" muon --rule-option strips=8 \
    --teams "$ranks" --strategy balanced
  echo "nccl: collectives on $ranks ranks"
  mpirun -n "$ranks" "$canzona" bench collectives --ranks "$ranks" \
    --device cuda --share-gpu --bytes 64MiB
done

echo "nccl: ranks without --share-gpu are refused"
status=0
mpirun -n 2 "$canzona" bench collectives --ranks 2 --device cuda \
  >"$folder/out" 2>&1 || status=$?
[ "$status" = 2 ] && grep -q 'same GPU' "$folder/out" || {
  cat "$folder/out" >&2
  echo "nccl: expected exit status 2, not $status" >&2
  exit 1
}
echo "nccl: all is well"
