# A run's folder is a Hugging Face folder, which can be exported again and
# started from.
. "$(dirname "$0")/words.sh"

computes train --dry-run

same() {
  checks=$((checks + 1))
  cmp -s "$1" "$2" || fail "$1 and $2 differ"
}
# Exit status 3, a message with these texts, and no folder $1.
refuses_data() {
  made=$1
  shift
  exits 3
  says 'error: ' "$@"
  checks=$((checks + 1))
  [ ! -e "$made" ] || fail "$made was made"
}

small='--set model.layers=2 --set model.hidden=32 --set model.ffn=48 --set model.heads=4
  --set model.kv_heads=2 --set model.head_dim=8 --set model.length=16 --set batch.global=4
  --set batch.micro=1 --set eval.sequences=4'
shape='--set model.length=16 --set batch.global=4 --set batch.micro=1 --set eval.sequences=4'

# A Llama that is trained a little, on two ranks.
# shellcheck disable=SC2086
canzona train $small --set model.qk_norm=off --steps 3 --mesh dp=2 --run llama
exits 0
grep -q '"model_type": "llama"' llama/config.json || fail 'config.json is not of llama'
# A run that starts from it and takes no step has the same weights, on any mesh.
for mesh in 'dp=1' 'dp=2,tp=2 --zero zero3' 'dp=2,pp=2'; do
  rm -rf again
  # shellcheck disable=SC2086
  canzona train $shape --init llama --steps 0 --mesh $mesh --run again
  exits 0
  same again/model.safetensors llama/model.safetensors
  same again/config.json llama/config.json
done
grep -q '"init": "llama"' again/summary.json || fail 'the summary does not say what it began with'

# Exporting a checkpoint of the same steps gives identical files.
# shellcheck disable=SC2086
canzona train $small --set model.qk_norm=off --steps 3 --save-every 3 --mesh dp=2 --run saver
exits 0
mv saver/ckpt made
canzona ckpt verify made
exits 0
canzona ckpt export made --hf exported
exits 0
prints 'llama in fp32' 'in 1 file: exported'
same exported/model.safetensors llama/model.safetensors
canzona ckpt export made/step_00000003 --hf undivided --max-shard-size 0
exits 0
there undivided/model.safetensors
canzona ckpt export made/step_00000003 --hf several/ --max-shard-size 10KB --json
exits 0
is_json
member_is model_type llama
member_is dtype fp32
member_is 'files 0 name' 'model-00001-of-00012.safetensors'
has_member 'files 11 bytes'
checks=$((checks + 1))
[ -f several/model.safetensors.index.json ] && [ ! -e several.canzona-part ] &&
  [ ! -e several.lock ] || fail 'no index, or something besides'
for from in made made/step_00000003 several; do
  rm -rf again
  # shellcheck disable=SC2086
  canzona train $shape --init $from --steps 0 --mesh dp=2 --run again
  exits 0
  same again/model.safetensors llama/model.safetensors
done
canzona ckpt export made --hf half --dtype bf16
exits 0
checks=$((checks + 1))
[ "$(wc -c <half/model.safetensors)" -lt "$(wc -c <exported/model.safetensors)" ] ||
  fail 'bf16 takes as much as fp32'
grep -q bfloat16 half/config.json || fail 'config.json does not say bfloat16'

# A checkpoint that four ranks saved is exported as the run's own weights are.
# shellcheck disable=SC2086
canzona train $small --steps 4 --mesh dp=2,tp=2 --zero zero3 --save-every 2 --run saved
exits 0
canzona ckpt export saved --step 4 --hf exported-4
exits 0
same exported-4/model.safetensors saved/model.safetensors
same exported-4/config.json saved/config.json
canzona ckpt export saved --step 2 --hf exported-2
exits 0
rm -rf again
# shellcheck disable=SC2086
canzona train $shape --init saved/ckpt/step_00000002 --steps 0 --mesh dp=2 --run again
exits 0
same again/model.safetensors exported-2/model.safetensors

# A model with experts and tied embeddings continues to learn from its weights.
# shellcheck disable=SC2086
canzona train $small --set model.experts=4 --set model.expert_ffn=24 --set model.tied=on --steps 2 \
  --mesh dp=2 --run experts
exits 0
# shellcheck disable=SC2086
canzona train $shape --init experts --steps 2 --mesh dp=2,ep=2 --run tuned
exits 0
checks=$((checks + 1))
! cmp -s tuned/model.safetensors experts/model.safetensors || fail 'nothing was learned'

# Settings that no tensor shows survive training and export: how long
# texts may be, and the coefficient of the balancing loss.
cp -r experts longer
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 40960/
  s/"router_aux_loss_coef": [^,]*/"router_aux_loss_coef": 0.25/' \
  experts/config.json >longer/config.json
from=longer
for next in again deep/er; do
  rm -rf again
  # shellcheck disable=SC2086
  canzona train $shape --init $from --steps 1 --save-every 1 --mesh dp=1 --run $next
  exits 0
  same $next/config.json longer/config.json
  canzona ckpt export $next --hf written/of/$next
  exits 0
  same written/of/$next/config.json longer/config.json
  cp -r again from
  from=from
done
# shellcheck disable=SC2086
canzona train $shape --init longer --set model.balance_coefficient=0.5 --set model.length=32 \
  --steps 0 --mesh dp=1 --run chosen
exits 0
holds chosen/config.json '"router_aux_loss_coef": 0.5'
canzona sample --run deep/er --prompt 'a longer text than is trained with' --tokens 1 --json
exits 0
member_is context 40960

# Weights that no run could save again.
cp -r llama broken_weights
rm broken_weights/summary.json
size=$(wc -c <llama/model.safetensors)
printf '\0\0\300\177' | dd of=broken_weights/model.safetensors bs=1 seek=$((size - 4)) \
  conv=notrunc 2>/dev/null
# shellcheck disable=SC2086
canzona train $shape --init broken_weights --steps 1 --mesh dp=2 --run new
exits 3
says 'holds nan' 'expected finite weights'
rm -rf new

# S6: names with the prefixes of PyTorch's wrappers are found without them.
# octets <number>: its eight bytes, little endian, as printf takes them
octets() {
  number=$1
  for _ in 1 2 3 4 5 6 7 8; do
    printf '\\%03o' $((number % 256))
    number=$((number / 256))
  done
}
# renamed <from> <to> <sed command>: the file with another header
renamed() {
  length=$(od -An -t u4 -N 4 "$1" | tr -d ' ')
  tail -c +9 "$1" | head -c "$length" | sed "$3" >header
  size=$(wc -c <header)
  # shellcheck disable=SC2059
  printf "$(octets "$size")" >"$2"
  { cat header && tail -c +$((9 + length)) "$1"; } >>"$2"
}
wrap='s/"\(model\.\|lm_head\.\)/"module._orig_mod.\1/g
  s/\(layers\.[0-9]*\.\)/\1_fsdp_wrapped_module._checkpoint_wrapped_module./g'
cp -r llama wrapped
rm wrapped/summary.json
renamed llama/model.safetensors wrapped/model.safetensors "$wrap"
grep -aq 'module._orig_mod.model.layers.1._fsdp_wrapped_module._checkpoint' \
  wrapped/model.safetensors || fail 'nothing was renamed'
cp -r several wrapped-several
for file in several/model-*.safetensors; do
  renamed "$file" "wrapped-$file" "$wrap"
done
sed '/"weight_map"/,$ {
  '"$wrap"'
}' several/model.safetensors.index.json >wrapped-several/model.safetensors.index.json
for from in wrapped wrapped-several; do
  rm -rf again
  # shellcheck disable=SC2086
  canzona train $shape --init $from --steps 0 --mesh dp=2 --run again
  exits 0
  same again/model.safetensors llama/model.safetensors
done
canzona plan --model wrapped --mesh dp=2
exits 0
# ... Two that would become one are refused with both names.
renamed llama/model.safetensors wrapped/model.safetensors \
  's/"lm_head\.weight"/"module.model.norm.weight"/'
canzona train --init wrapped --dry-run
refuses_data new "'model.norm.weight' and 'module.model.norm.weight'" 'remove one of them'

# Settings that contradict the weights, and folders that are no model, are
# refused.
# shellcheck disable=SC2086
refuses 'model.layers (--set) is 3' 'config.json has 2' -- \
  train $shape --init llama --set model.layers=3 --dry-run
refuses 'model.qk_norm (--set) is on' -- train --init llama --set model.qk_norm=on --dry-run
refuses 'leave out --model' -- train --init llama --model qwen3-0.6b --dry-run
refuses "no folder 'nowhere'" -- train --init nowhere --dry-run
mkdir empty
refuses 'holds no weights' 'model.safetensors' -- train --init empty --dry-run
refuses '--dtype' 'fp32 or bf16' -- ckpt export made --hf new --dtype fp8
refuses '--max-shard-size' -- ckpt export made --hf new --max-shard-size many
refuses "exported' already exists" -- ckpt export made --hf ./exported
refuses 'exported/model.safetensors' -- ckpt export made --hf exported/model.safetensors/new
refuses '--hf' -- ckpt export made
sed 's/"rope_theta": [^,]*,/"rope_theta": 10000, "rope_scaling": {"rope_type": "yarn"},/' \
  llama/config.json >scaled.json
cp -r llama scaled
mv scaled.json scaled/config.json
refuses 'rope_scaling' 'yarn' 'cannot be trained' -- train --init scaled --dry-run

# Weights that are malformed.
cp -r several short
rm short/model-00003-of-00012.safetensors
canzona train --init short --dry-run
refuses_data new 'model-00003-of-00012.safetensors'
cp -r several linked
mv linked/model-00003-of-00012.safetensors elsewhere
ln -s ../elsewhere linked/model-00003-of-00012.safetensors
canzona train --init linked --dry-run
refuses_data new 'links are not followed'
cp -r several outside
sed 's/model-00003-of-00012/..\/elsewhere\/model-00003/' several/model.safetensors.index.json \
  >outside/model.safetensors.index.json
canzona train --init outside --dry-run
refuses_data new 'not a plain file name'
cp -r llama cut
head -c 5000 llama/model.safetensors >cut/model.safetensors
canzona train --init cut --dry-run
refuses_data new 'cut/model.safetensors'
cp -r llama deeper
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' llama/config.json >deeper/config.json
canzona train --init deeper --dry-run
refuses_data new 'tensors are missing in the folder' 'model.layers.2.'
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' llama/config.json >deeper/config.json
canzona train --init deeper --dry-run
refuses_data new 'tensors that only the folder has' 'model.layers.1.'
sed 's/"vocab_size": 256/"vocab_size": 300/' llama/config.json >deeper/config.json
canzona train --init deeper --dry-run
refuses_data new 'saved F32 [256, 32], expected F32 [300, 32]'

# A damaged checkpoint leaves nothing.
cp -r made broken
shard=broken/step_00000003/rank_00000.safetensors
printf 'X' | dd of="$shard" bs=1 seek=9000 conv=notrunc 2>/dev/null
canzona ckpt export broken --hf new
refuses_data new 'are damaged'
not_there new.canzona-part
canzona ckpt export broken --hf newer/folder
exits 3
not_there newer

finish
