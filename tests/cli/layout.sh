# canzona plan --layout: the plans of PyTorch's layouts, and tables of costs
# with them.
. "$(dirname "$0")/words.sh"

model='--model qwen3-0.6b --layers 2'

for layout in ddp fsdp2 hsdp:2; do
  canzona plan $model --layout $layout --mesh dp=4,tp=2 -o plan.json \
    --html plan.html --json --quiet
  exits 0
  is_json
  member_is world 8
  member_is share_states OFF
  has_member 'balance makespan_over_bound'
  has_member 'ranks 7 bytes gather sent_intra'
  canzona validate plan.json
  exits 0
  prints sound '14 matrices on 8 ranks'
  canzona explain plan.json --matrix model.layers.1.mlp.down_proj.weight
  exits 0
  prints 'owner'
done
cp plan.html out
prints '"report":"storage"' '"world":8'

# What the file says, and what the options set.
cp plan.json out
prints '["model.layers.0.self_attn.q_proj.weight",[2048,1024],"fp32",0,[]' \
  '["model.embed_tokens.weight",[151936,1024],"fp32",1,[]' '"wire":"fp32"' \
  '"capacity_bytes":67108864,"strict_capacity":false,"ranks_per_node":8'
canzona plan $model --layout hsdp:2 --mesh dp=4,tp=2 --dtype bf16 --wire bf16 \
  --share-states --capacity 1MiB --ranks-per-node 4 --rule soap --phases 2 \
  --rule-option weight_decay=0.25 --fused --split gate-up \
  --adamw '*.o_proj.*' -o plan.json --quiet
exits 0
prints 'soap (6 tensors)' 'wire      bf16, capacity 1.00 MiB, strict, states'
cp plan.json out
prints '"bf16",0,[3072,3072]' '"strict_capacity":true,"ranks_per_node":4' \
  '"share_states":true' '"phases":"2"'
checks=$((checks + 1))
[ "$(grep -o '"weight_decay":"0.25"' plan.json | wc -l)" -eq 2 ] ||
  fail 'AdamW does not have the weight decay that was given'

canzona plan $model --layout fsdp2 --mesh dp=2 --dtype bf16 \
  --master remainder -o plan.json --quiet
exits 0
cp plan.json out
prints '"wire":"fp32","master":"remainder","share_states":false'

# More ranks than rows: the last ones store nothing.
canzona plan $model --scale 1/64 --layout fsdp2 --mesh dp=64 --quiet
exits 0
prints '64 ranks'

# Without matrices there is nothing to exchange.
canzona plan $model --rule adamw --layout fsdp2 --mesh dp=2 --quiet
exits 0
prints 'adamw (24 tensors)'

# Costs: from an option, or with a request of --storage.
table='{"format": "canzona.cost_table", "version": 1, "device": "Toy 1",
  "kind": "cuda", "precision": "fp16", "date": "2025-03-31", "measurements": [
  {"rule": "muon", "algorithm": "gram", "options": {"newton_schulz": "gram"},
   "entries": [{"rows": 64, "cols": 64, "seconds": 1e-3}]}]}'
printf '%s' "$table" >cost.json
canzona plan $model --layout fsdp2 --mesh dp=2 --cost cost.json --quiet
exits 0
prints 'Toy 1'
request() { # <members>
  printf '{"canzona_storage": 1, "world": 1, "groups": [{"rule": "muon"}], %s
   "tensors": [{"name": "w", "shape": [4, 4],
                "stored": [[[[0, 0], [4, 4]]]]}]}' "$1" >storage.json
}
request "\"cost_table\": $table,"
canzona plan --storage storage.json -o plan.json --quiet
exits 0
prints 'Toy 1'
cp plan.json first.json
refuses --cost storage.json 'table of its own' -- \
  plan --storage storage.json --cost cost.json
request ''
canzona plan --storage storage.json --cost cost.json -o plan.json --quiet
exits 0
cmp -s plan.json first.json || fail 'the same table gave another plan'
request '"cost_table": {"format": "canzona.cost_tabel"},'
refuses 'storage.json: cost_table' "'canzona.cost_tabel'" -- \
  plan --storage storage.json
printf '{}' >cost.json
refuses 'cost.json' "'format'" -- \
  plan $model --layout fsdp2 --mesh dp=2 --cost cost.json

# What does not fit is named.
bad() { # <words…> -- <arguments>
  refuses "$@" $model
}
bad '--master remainder' 'have no masters' '--dtype bf16' -- \
  plan --layout fsdp2 --mesh dp=2 --master remainder
bad --layout "'fsdp'" "did you mean 'fsdp2'" -- \
  plan --layout fsdp --mesh dp=4
bad --layout "'hsdp'" 'hsdp:N' -- plan --layout hsdp --mesh dp=4
bad '--layout hsdp' "'x'" -- plan --layout hsdp:x --mesh dp=4
bad '--layout hsdp:3' 'dp=4' -- plan --layout hsdp:3 --mesh dp=4
bad --mesh pp=2 fsdp2 -- plan --layout fsdp2 --mesh dp=2,pp=2
bad --mesh cp=2 fsdp2 -- plan --layout fsdp2 --mesh dp=2,cp=2
bad --mesh tp=3 heads -- plan --layout fsdp2 --mesh dp=2,tp=3
refuses --mesh ep=2 'leave ep out' -- \
  plan --model qwen3-30b-a3b --layers 1 --layout fsdp2 --mesh dp=2,ep=2
bad --layout --zero -- plan --layout fsdp2 --mesh dp=2 --zero hier:2
bad --layout --strategy -- plan --layout fsdp2 --mesh dp=2 --strategy megatron
bad --layout --parameters -- plan --layout ddp --mesh dp=2 --parameters fp32
bad --dtype "'fp16'" -- plan --layout ddp --mesh dp=2 --dtype fp16
bad --wire "'fp8'" -- plan --layout ddp --mesh dp=2 --wire fp8
bad --capacity -- plan --layout ddp --mesh dp=2 --capacity 0
bad --split qkv interleaved -- \
  plan --layout ddp --mesh dp=2 --fused --split qkv
bad '--layout fsdp2' 'expected at most 4194304' -- \
  plan --layout fsdp2 --mesh dp=1000000
bad --mesh -- plan --layout fsdp2
for option in '--dtype bf16' '--wire bf16' --share-states; do
  bad "${option% *}" --layout -- plan --mesh dp=2 $option
done

canzona plan --help
exits 0
prints --layout 'hsdp:N' --share-states

finish
