# canzona plan --mesh auto and canzona compare --meshes.
. "$(dirname "$0")/words.sh"

small="--model qwen3-0.6b --layers 4 --ranks 8 --memory-cap 8GB"
small="$small --global-batch 64K --length 4096 --ranks-per-node 4"

# The answer says what was chosen and why, what was searched, what it stands on,
# what would change, and how to run it.
# shellcheck disable=SC2086
canzona plan $small --mesh auto -o plan.json --html mesh.html
exits 0
prints 'The fastest (predicted)' 'layouts:' 'not searched' 'predicted from' \
  'nominal' 'The best of each kind' 'zero1' 'of the cap of 7.45 GiB' \
  'links half as fast' '10 % less memory' 'half the batch' 'To copy' \
  'torchrun --nnodes 2 --nproc-per-node 4' 'Megatron-Core'
says 'searching meshes'
there mesh.html
canzona validate plan.json
exits 0
prints sound

# shellcheck disable=SC2086
canzona plan $small --mesh auto --json --quiet
is_json
is_empty err
member_is report mesh
member_is world 8
member_is global_batch_tokens 65536
member_is memory_cap_bytes 8000000000
member_is 'kinds 0 name' "$(member 'choice name')"
member_is 'search proven' ON
for name in 'search in_space' 'search over_cap' 'search too_slow' \
  'search simulated' 'choice memory activations' 'choice tokens_per_second' \
  'choice share_of_peak' 'choice dp_seconds' 'choice slow_bytes' \
  'kinds 1 reason' 'changes 0 best name' 'not_searched 0' 'inputs 0' \
  'commands 2 runs'; do
  has_member "$name"
done
cp out first
# shellcheck disable=SC2086
canzona plan $small --mesh auto --json --quiet
checks=$((checks + 1))
cmp -s out first || fail 'the same question has another answer'

# The plan that is written is the one that was predicted.
dp=$(member 'choice mesh dp') tp=$(member 'choice mesh tp')
pp=$(member 'choice mesh pp')
checks=$((checks + 1))
grep -q "\"dp\": $dp, \"cp\": 1, \"tp\": $tp, \"pp\": $pp" plan.json ||
  grep -q "\"tp\":$tp" plan.json || fail 'plan.json has another mesh'

# Kinds side by side.
# shellcheck disable=SC2086
canzona compare $small --meshes --html meshes.html
exits 0
prints 'The best of each kind' 'Where the time goes' 'Memory of the fullest' \
  'tp+pp' 'bubble'
lacks out 'To copy'
there meshes.html

# A large model on GPUs by name, of which one kind needs less memory than others.
canzona compare --model llama-3-70b --ranks 64 --gpu h100-80 --rule muon \
  --global-batch 4M --meshes
exits 0
prints 'Memory of the fullest rank, cap 75.00 GiB' 'of peak' 'h100-80' 'tp+pp'

# What is fixed stays, what is forbidden does not occur.
# shellcheck disable=SC2086
canzona plan $small --mesh auto --json --quiet --fix tp=2,recompute=on \
  --forbid pp --tokens 8192 --zero hier:2
exits 0
member_is 'choice mesh tp' 2
member_is 'choice mesh pp' 1
member_is 'choice recompute' ON
member_is 'choice tokens' 8192
member_is 'choice zero z2' 2
lacks out '"kind": "pp"'

# A cluster's file stands for links and rates.
cat >cluster.json <<'JSON'
{"format": "canzona.cluster", "version": 1, "name": "two nodes",
 "card": {"name": "toy card", "tflops": 100},
 "levels": [
   {"name": "node", "ranks": 4, "bytes_per_second": 100e9},
   {"name": "all", "ranks": 8, "bytes_per_second": 10e9}]}
JSON
canzona plan --model qwen3-0.6b --layers 4 --ranks 8 --memory-cap 8GB \
  --global-batch 64K --cluster cluster.json --mesh auto
exits 0
prints 'toy card: 100 Tflop/s given' '4 per node'

# GPUs by name have a cap, rates and nodes; --nodes stands for --ranks.
canzona plan --model qwen3-0.6b --layers 4 --gpu h100-80 --nodes 2 --mesh auto \
  --global-batch 128K --json --quiet
exits 0
member_is world 16
checks=$((checks + 1))
[ "$(member memory_cap_bytes)" -gt 70000000000 ] || fail 'no cap'
prints 'h100-80'

# Refused, with exit status 2.
refuses '--mesh auto requires --ranks' -- plan --model qwen3-0.6b --mesh auto
refuses '--meshes requires --ranks' -- compare --model qwen3-0.6b --meshes
refuses '--ranks requires' -- plan --model qwen3-0.6b --mesh dp=8 --ranks 8
refuses '--fix requires' -- compare --model qwen3-0.6b --mesh dp=8 --fix tp=2
refuses '--micro-batches' -- plan --model qwen3-0.6b --ranks 8 --mesh auto \
  --micro-batches 4
refuses '--meshes' '--fix' -- compare --model qwen3-0.6b --ranks 8 --meshes \
  --mesh dp=8
# shellcheck disable=SC2086
refuses 'of 8 ranks' -- plan $small --mesh auto --fix tp=3
# shellcheck disable=SC2086
refuses '--fix' -- plan $small --mesh auto --fix tp=many
# shellcheck disable=SC2086
refuses '--fix' -- plan $small --mesh auto --fix size=3
# shellcheck disable=SC2086
refuses '--forbid' -- plan $small --mesh auto --forbid gpus
refuses '--ranks' '1 to 16384' -- plan --model qwen3-0.6b --ranks 1000000 \
  --mesh auto
# shellcheck disable=SC2086
refuses 'tp=2 is fixed and forbidden' -- plan $small --mesh auto --fix tp=2 \
  --forbid tp
# shellcheck disable=SC2086
refuses 'zero=zero3 is fixed and forbidden' -- plan $small --mesh auto \
  --fix zero=zero3 --forbid zero
# shellcheck disable=SC2086
refuses 'no mesh of them has dp=3' -- plan $small --mesh auto --fix dp=3
# shellcheck disable=SC2086
refuses 'ep=2: the model has no experts' -- plan $small --mesh auto --fix ep=2
# shellcheck disable=SC2086
refuses 'the fixed sizes of ZeRO' -- plan $small --mesh auto --fix zero=hier:3
refuses '--memory-cap' 'fits in 1 B' 'the nearest is' 'try --memory-cap' -- plan \
  --model qwen3-0.6b --layers 4 --ranks 8 --mesh auto --memory-cap 1
refuses '--memory-cap' 'the nearest is' 'lacks' -- plan --model qwen3-0.6b \
  --layers 4 --ranks 8 --global-batch 64K --mesh auto --memory-cap 100MB
refuses '--global-batch' 'integer' -- plan --model qwen3-0.6b --ranks 8 \
  --mesh auto --global-batch 4m

# Tensors whose names say nothing of their place are named.
cat >odd.json <<'JSON'
[{"name": "layers.0.mixer.mystery.weight", "shape": [256, 256]},
 {"name": "layers.0.mlp.up_proj.weight", "shape": [512, 256]}]
JSON
canzona models odd.json
exits 0
prints 'layers.*.mixer.mystery.weight' 'not placed by their names'
canzona plan --model odd.json --ranks 2 --mesh auto --global-batch 8K
exits 0
prints 'not placed by its name' 'mystery'

# Ranks and layers that nothing divides have the layouts that are left.
canzona plan --model qwen3-0.6b --layers 5 --ranks 7 --mesh auto \
  --global-batch 56K --json --quiet --forbid recompute
exits 0
member_is 'choice mesh dp' 7

# The printed command of canzona train runs, on 16 ranks that are threads.
cat >config.json <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
 "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8,
 "vocab_size": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
 "rope_theta": 1000000, "max_position_embeddings": 4096, "hidden_act": "silu"}
JSON
experts='"moe_intermediate_size": 32, "num_experts": 8, "norm_topk_prob": true,'
experts="$experts \"num_experts_per_tok\": 2, \"decoder_sparse_step\": 1,"
sed "s/qwen3\"/qwen3_moe\"/; s/Qwen3F/Qwen3MoeF/; s/ \"vocab/ $experts&/" \
  config.json >moe.json
numbered_lines 2000 >text.txt
for fixed in config.json 'config.json --fix tp=2,pp=2' \
  'config.json --fix tp=4,zero=hier:2' 'moe.json --fix ep=4'; do
  # shellcheck disable=SC2086
  canzona plan --model $fixed --ranks 16 --mesh auto --length 64 \
    --global-batch 4096 --ranks-per-node 8 --rule muon --quiet
  exits 0
  grep '^    canzona train' out | sed 's/^ *canzona //; s/DATA/text.txt/' >command
  there command
  # shellcheck disable=SC2046
  computes $(cat command) --steps 2 --set eval.sequences=2
  exits 0
done
finish
