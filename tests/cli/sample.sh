# canzona sample and eval: a run trained on bytes and one on tokens, read back.
. "$(dirname "$0")/words.sh"

canzona train --dry-run
if grep -qF 'built to plan only' err; then
  refuses 'built to plan only' -- sample --run one --prompt x
  refuses 'built to plan only' -- eval --run one
  finish
fi

i=0
while [ $i -lt 400 ]; do
  echo "line $i of a text in which every line says its number, as line $i does"
  i=$((i + 1))
done >text.txt
small='--mesh dp=1 --set model.layers=2 --set model.hidden=32 --set model.ffn=48
  --set model.heads=4 --set model.kv_heads=2 --set model.head_dim=8 --set model.length=32
  --set batch.micro=3 --set batch.global=9 --set eval.sequences=7 --steps'
same() {
  checks=$((checks + 1))
  [ "$1" = "$2" ] || fail "'$1' and '$2' differ"
}

# shellcheck disable=SC2086
canzona train --data text.txt $small 6 --run one --json
exits 0
trained=$(member eval_loss)

# Greedy: the same every time, text on standard output, the rest beside it.
canzona sample --run one --prompt 'line 1' --tokens 20
exits 0
prints 'line 1'
says 'one: ' 'a context of 32 bytes' '20 tokens in '
cp out greedy
canzona sample --run one --prompt 'line 1' --tokens 20 --seed 7 --quiet
exits 0
is_empty err
same "$(cat out)" "$(cat greedy)"
canzona sample --run one --prompt 'line 1' --tokens 20 --json
exits 0
is_json
member_is prompt 'line 1'
member_is prompt_tokens 6
member_is context 32
member_is forgotten 0
member_is stop tokens
member_is weights one
has_member tokens_per_second
has_member 'tokens 19'
same "line 1$(member text)" "$(cat greedy)"
# By chance: a seed is a text.
for seed in 1 2 1; do
  canzona sample --run one --prompt 'line' --tokens 25 --temperature 1.5 --top-k 50 --seed $seed \
    --json
  exits 0
  is_json
  member text >text.$seed
  [ ! -e first ] && cp text.1 first
done
same "$(cat text.1)" "$(cat first)"
checks=$((checks + 1))
! cmp -s text.1 text.2 || fail 'seeds 1 and 2 give the same text'
canzona sample --run one --prompt 'line' --tokens 25 --temperature 1.5 --top-k 1 --json
exits 0
hot=$(member text)
canzona sample --run one --prompt 'line' --tokens 25 --json
same "$(member text)" "$hot"
# Beyond the context the older half goes.
canzona sample --run one --prompt 'line' --tokens 100 --json
exits 0
has_member 'tokens 99'
checks=$((checks + 1))
[ "$(member forgotten)" -ge 64 ] || fail "only $(member forgotten) tokens were forgotten"
# Whatever bytes come, the output is text.
canzona sample --run one --prompt "$(printf 'a\377\033[2J')" --tokens 40 --temperature 5
exits 0
checks=$((checks + 1))
! LC_ALL=C grep -q "$(printf '\033')" out || fail 'an escape reached the output'
if command -v iconv >/dev/null; then
  checks=$((checks + 1))
  iconv -f UTF-8 -t UTF-8 out >/dev/null 2>&1 || fail 'the output is no UTF-8'
fi

# The loss is the one that the run reported, to the last bit.
canzona eval --run one --json
exits 0
is_json
same "$(member loss)" "$trained"
member_is held_out ON
member_is sequences 7
member_is tokens 224
member_is bytes 224
member_is length 32
has_member perplexity
has_member bits_per_byte
has_member seconds
canzona eval --run one --data ./text.txt --sequences 7 --json
exits 0
same "$(member loss)" "$trained"
canzona eval --run one
exits 0
prints 'loss  ' 'per token' 'bits' '7 of ' 'held-out sequences of 32 tokens: text.txt'
canzona eval --run one --sequences 0 --json
exits 0
same "$(member sequences)" "$(member sequences_there)"
canzona eval --run one --all --length 16 --sequences 5 --json
exits 0
member_is held_out OFF
member_is tokens 80
head -c 700 text.txt >other.txt
canzona eval --run one --data other.txt --json
exits 0
member_is held_out OFF
member_is sequences 21

# The same weights as a checkpoint, in a run and by themselves.
# shellcheck disable=SC2086
canzona train --data text.txt $small 6 --save-every 6 --run saver
exits 0
mkdir two
mv saver/ckpt two/ckpt
for path in two two/ckpt/ two/ckpt/step_00000006; do
  canzona sample --run $path --prompt 'line 1' --tokens 20 --quiet
  exits 0
  same "$(cat out)" "$(cat greedy)"
done
canzona sample --run two --step 6 --prompt 'line 1' --json
exits 0
member_is step 6
member_is weights two/ckpt/step_00000006
refuses '--step 5' 'has steps 6' -- sample --run two --step 5 --prompt x
refuses '--step 5' 'is the checkpoint of step 6' -- \
  sample --run two/ckpt/step_00000006 --step 5 --prompt x
refuses '--step 5' 'is the checkpoint of step 6' -- \
  eval --run two/ckpt/step_00000006 --step 5 --data text.txt
canzona sample --run two/ckpt/step_00000006 --step 6 --prompt 'line 1'
exits 0
refuses '--step 5' "'one' has no checkpoints" -- sample --run one --step 5 --prompt x
# A damaged checkpoint is refused, not sampled.
cp -r two three
printf X | dd of=three/ckpt/step_00000006/rank_00000.safetensors bs=1 seek=3000 conv=notrunc \
  2>dd.log
canzona sample --run three --prompt x
exits 3
is_empty out
says 'error: ' 'rank_00000.safetensors'
canzona eval --run three --data text.txt
exits 3

# A run that saves: its newest checkpoint comes before its weights at the end,
# unless these are of a later step than the newest that verifies. What is
# damaged is skipped, which is told.
# shellcheck disable=SC2086
canzona train --data text.txt $small 4 --save-every 2 --run six --json
exits 0
trained=$(member eval_loss)
canzona eval --run six --json
exits 0
same "$(member loss)" "$trained"
member_is weights six/ckpt/step_00000004
canzona sample --run six --step 2 --prompt 'line' --json
exits 0
member_is step 2
printf X | dd of=six/ckpt/step_00000004/rank_00000.safetensors bs=1 seek=9000 conv=notrunc 2>dd.log
cp -r six ends
# chooses <run> <weights> <text>...: sample, eval and --init take these
# weights, and say these texts.
chooses() {
  run=$1
  weights=$2
  shift 2
  canzona sample --run "$run" --prompt 'line' --tokens 3 --json
  exits 0
  member_is weights "$weights"
  says "$@"
  canzona eval --run "$run" --json
  exits 0
  member_is weights "$weights"
  says "$@"
  rm -rf begun
  canzona train --data text.txt --init "$run" --steps 0 --mesh dp=1 --set model.length=32 \
    --set batch.global=8 --set batch.micro=2 --run begun
  exits 0
  says "starts from the weights in $weights" "$@"
}
# flip <file> <offset>: another byte there
flip() {
  byte=$(od -An -t u1 -j "$2" -N 1 "$1" | tr -d ' ')
  # shellcheck disable=SC2059
  printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>dd.log
}
passed='six/ckpt/step_00000004 is skipped'
chooses six six "$passed" rank_00000.safetensors
sum=$(sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' six/summary.json)
if command -v sha256sum >/dev/null; then
  same "$sum  six/model.safetensors" "$(sha256sum six/model.safetensors)"
fi
rm six/ckpt/step_00000004/rank_00000.safetensors
chooses six six "$passed" rank_00000.safetensors
# ... Weights of the end that were altered are not used, either.
flip six/model.safetensors 9001
chooses six six/ckpt/step_00000002 "$passed" 'six/model.safetensors is skipped' "$sum"
rm -r six/ckpt/step_00000004
chooses six six/ckpt/step_00000002 'six/model.safetensors is skipped' "$sum"
# refused_by_all <run> <text>...
refused_by_all() {
  run=$1
  shift
  for words in "sample --prompt x --run $run" "eval --run $run" \
    "train --data text.txt --init $run --steps 0 --mesh dp=1 --set model.length=32 --run none"; do
    # shellcheck disable=SC2086
    canzona $words
    exits 3
    is_empty out
    says 'error: ' "$@"
    not_there none
  done
}
cp -r six bare_end
rm -r bare_end/ckpt
refused_by_all bare_end 'bare_end/model.safetensors' 'is damaged' "$sum"
# ... A summary of a former version has no hash; a folder of Hugging Face, none.
sed '/"weights_sha256"/d' six/summary.json >bare_end/summary.json
chooses bare_end bare_end
# ... If no checkpoint verifies, the end's weights do.
for step in 2 4; do
  rm ends/ckpt/step_0000000$step/rank_00000.safetensors
done
chooses ends ends 'ends/ckpt/step_00000004 is skipped' 'ends/ckpt/step_00000002 is skipped'
flip ends/model.safetensors 9001
refused_by_all ends 'ends/ckpt/step_00000004' 'ends/ckpt/step_00000002' 'ends/model.safetensors'

# Data that is not the data of the run is noticed where it is taken for
# it, and does not end anything.
# shellcheck disable=SC2086
canzona train --data text.txt $small 2 --run seven
exits 0
for run in six seven; do
  canzona eval --run $run --json
  exits 0
  member_is same_data ON
  lacks err 'is not the data of the run'
done
mv text.txt kept.txt
sed 's/line/LINE/' kept.txt >text.txt
for run in six seven; do
  for data in '' '--data text.txt' --all; do
    # shellcheck disable=SC2086
    canzona eval --run $run $data --json
    exits 0
    member_is same_data OFF
    says 'note: text.txt is not the data of the run'
  done
  canzona eval --run $run --data kept.txt --json
  exits 0
  lacks err 'is not the data of the run'
done
mv kept.txt text.txt

refuses '--length 0: expected 1 to' -- eval --run seven --length 0

# Tokens of a tokenizer, which stays with the run.
tokenizer=$here/../data/tokenizers/qwen.json
refuses 'model.vocab 256' '646' '--set model.vocab=646' -- \
  train --data text.txt --tokenizer "$tokenizer" --dry-run
refuses 'data.tokenizer' 'nowhere' -- train --data text.txt --tokenizer nowhere --dry-run
echo '{"version":"1.0"}' >broken.json
refuses 'data.tokenizer' 'broken.json' -- train --data text.txt --tokenizer broken.json --dry-run
cp "$tokenizer" mine.json
# shellcheck disable=SC2086
canzona train --data text.txt --tokenizer mine.json --set model.vocab=700 $small 6 --run four --json
exits 0
trained=$(member eval_loss)
member_is 'config data tokenizer' mine.json
checks=$((checks + 1))
cmp -s mine.json four/tokenizer.json || fail 'the tokenizer is not in the run'
rm mine.json
canzona sample --run four --prompt 'line 1' --tokens 12 --json
exits 0
member_is weights four
checks=$((checks + 1))
[ "$(member prompt_tokens)" -lt 6 ] || fail 'the prompt was not encoded'
canzona eval --run four --json
exits 0
same "$(member loss)" "$trained"
checks=$((checks + 1))
[ "$(member bytes)" -gt "$(member tokens)" ] || fail 'tokens have too few bytes'
# Bytes are those of the text, not of its normal form: the same letter, as two
# characters and as one, is the same token.
acute=$(printf 'i\314\201')
composed=$(printf '\303\255')
head -n 500 text.txt | sed "s/line/l${acute}ne/" >two_characters.txt
head -n 500 text.txt | sed "s/line/l${composed}ne/" >one_character.txt
canzona eval --run four --data one_character.txt --length 1 --json
exits 0
loss=$(member loss)
less=$(($(wc -c <one_character.txt) - $(member bytes)))
canzona eval --run four --data two_characters.txt --length 1 --json
exits 0
same "$(member loss)" "$loss"
member_is bytes $(($(wc -c <two_characters.txt) - less))
# A run that starts from it takes its tokenizer.
# shellcheck disable=SC2086
canzona train --data text.txt --init four --steps 0 --mesh dp=1 --set model.length=32 \
  --set batch.global=8 --set batch.micro=2 --run five
exits 0
checks=$((checks + 1))
cmp -s five/tokenizer.json four/tokenizer.json || fail 'the tokenizer was not taken'
# It goes along to Hugging Face's folders; without it, text is refused.
# shellcheck disable=SC2086
canzona train --data text.txt --tokenizer "$tokenizer" --set model.vocab=700 $small 2 --run saved \
  --save-every 2
exits 0
canzona ckpt export saved --hf hf_out
exits 0
checks=$((checks + 1))
cmp -s saved/tokenizer.json hf_out/tokenizer.json || fail 'no tokenizer in hf_out'
canzona sample --run hf_out --prompt 'line 1' --tokens 3
exits 0
rm hf_out/tokenizer.json
refuses 'a vocabulary of 700' 'data.tokenizer' -- train --data text.txt --init hf_out --steps 1 --mesh dp=1
# shellcheck disable=SC2086
canzona train --data text.txt --tokenizer "$tokenizer" --set model.vocab=700 $small 1 --run four \
  --overwrite
exits 0
rm four/tokenizer.json
mv four/summary.json summary.saved
refuses "'four'" 'a vocabulary of 700' '--tokenizer FILE' -- sample --run four --prompt x
canzona sample --run four --tokenizer "$tokenizer" --prompt 'line' --tokens 3
exits 0
refuses '--data is missing' "'four'" -- eval --run four --tokenizer "$tokenizer"
canzona eval --run four --tokenizer "$tokenizer" --data text.txt --json
exits 0
member_is held_out OFF
refuses 'the tokenizer has 646' '256' -- sample --run one --tokenizer "$tokenizer" --prompt x

# Mistakes.
refuses '--prompt' -- sample --run one
refuses '--prompt has an empty value' -- sample --run one --prompt ''
refuses '--run' -- sample --prompt x
refuses "'nowhere'" 'no such folder' -- sample --run nowhere --prompt x
refuses "'nowhere'" 'no such folder' -- eval --run nowhere
mkdir bare
refuses "'bare'" 'the folder has no weights' -- sample --run bare --prompt x
cp summary.saved bare/summary.json
refuses "'bare'" 'no weights yet' '--save-every' -- sample --run bare --prompt x
refuses '33 tokens' 'at most 31' "'one'" -- \
  sample --run one --prompt 'a prompt of thirty-three letters.'
refuses '--tokens 0' '1 to ' -- sample --run one --prompt x --tokens 0
refuses '--temperature -1' -- sample --run one --prompt x --temperature -1
refuses '--temperature' "'nan'" -- sample --run one --prompt x --temperature nan
refuses '--top-k 5' '--temperature' -- sample --run one --prompt x --top-k 5
refuses '--top-k -5' -- sample --run one --prompt x --top-k -5 --temperature 1
refuses '--seed -1' -- sample --run one --prompt x --seed -1
refuses '--length 33' '1 to 32' -- eval --run one --length 33
refuses '--sequences -1' -- eval --run one --sequences -1
printf 'short' >short.txt
refuses 'short.txt' '5 tokens' '33' '--length' -- eval --run one --data short.txt
finish
