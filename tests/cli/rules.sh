# canzona rules describes the rules, and checks them against reference results.
. "$(dirname "$0")/words.sh"

golden=$here/../data/golden
adamw=$golden/adamw-torch-3x3-f64.safetensors
[ -f "$adamw" ] || adamw=$(ls "$golden"/adamw-torch-*-f64.safetensors | head -1)

# The list, and one rule.
canzona rules
exits 0
prints muon shampoo soap adamw keller
canzona rules muon
exits 0
prints 'newton_schulz' 'standard|symmetric|gram|auto' 'moonlight' \
  'momentum_form=heavy_ball' 'm x n' 'with the shard'
canzona rules muon --preset nanochat
exits 0
prints 'beta2 [0.9]' 'learning_rate [0.02]' 'nanochat' 'second_moment' \
  'with the owner'
refuses "'nanochad'" "'nanochat'" -- rules muon --preset nanochad
refuses 'name its rule' -- rules --preset nanochat
refuses 'has no presets' -- rules nsgd --preset x
canzona rules soap
prints 'm x m' 'n x n' 'with the owner'
canzona rules --json
exits 0
is_json
member_is 'rules 0 name' muon
member_is 'rules 0 states 0 name' momentum
member_is 'rules 0 states 0 shape 1' n
member_is 'rules 0 states 0 lives' shard
canzona rules adamw --json
is_json
member_is 'rules 0 name' adamw
refuses "'moun'" "'muon'" -- rules moun
for arguments in 'rules' 'rules muon' 'rules shampoo' 'rules soap' \
  'rules --help' 'rules check --help'; do
  # shellcheck disable=SC2086
  canzona $arguments
  exits 0
  checks=$((checks + 1))
  [ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
    fail 'a line is wider than 100 columns'
done

# A build of the planner alone says so and stops here.
canzona rules check "$adamw"
if grep -qF 'can only plan' err; then
  exits 2
  finish
fi

# A file that passes.
exits 0
prints passed '1 passed, 0 failed, 0 unsupported'
is_empty err
canzona rules check "$adamw" --json
exits 0
is_json
member_is 'files 0 file' "$adamw"
member_is 'files 0 rule' adamw
member_is 'files 0 preset' torch
member_is 'files 0 passed' ON
member_is 'files 0 reason' ''
member_is 'passed' 1
member_is 'failed' 0
member_is 'unsupported' 0
prints '"worst"' '"tensor"' '"deviation"' '"tolerance"'

# A fixture with a damaged expectation: the last byte of a number holds its sign
# and exponent.
{
  head -c -1 "$adamw"
  printf '\100'
} >damaged.safetensors
canzona rules check damaged.safetensors
exits 1
prints FAILED 'deviates by' '0 passed, 1 failed'
canzona rules check "$adamw" damaged.safetensors --json
exits 1
member_is 'files 1 passed' OFF
member_is 'passed' 1
member_is 'failed' 1

# The output says where it was computed, and how far from the references that
# may be.
canzona rules check "$adamw"
prints 'on cpu, tolerances of fp32 results widened by 4'
canzona rules check "$adamw" --slack 2 --json
member_is 'device' cpu
member_is 'slack' 2
# A missing GPU is reported first, even if everything else is wrong, too.
case $("$program" doctor --json) in
  *'"device": null'*)
    canzona rules check nowhere.safetensors --device cuda
    exits 2
    says 'error: '
    lacks err nowhere ;;
esac

# A fixture that requires something that no rule does.
LC_ALL=C sed 's/\(adam\.amsgrad[^,]*\)false/\1true /' "$adamw" \
  >unsupported.safetensors
canzona rules check unsupported.safetensors
exits 0
prints 'unsupported' 'adam.amsgrad=true'
canzona rules check unsupported.safetensors --json
exits 0
member_is 'files 0 passed' ''
member_is 'unsupported' 1

# One of each variant that only some references have.
for variant in muon-dion-8x5-cautious muon-dion-6x2x5-flatten \
  shampoo-meta-4x4-kl shampoo-meta-4x4-classic-nesterov \
  soap-nvidia-4x4-maxrms soap-original-4x4-normalize; do
  canzona rules check "$golden/$variant-f64.safetensors" --json
  exits 0
  member_is 'passed' 1
done

# Files that cannot be read; the others are checked all the same.
head -c 1000 "$adamw" >short.safetensors
printf '\377\377\377\377\377\377\377\177{}' >huge.safetensors
printf '\002\0\0\0\0\0\0\0{}' >empty.safetensors
printf '\003\0\0\0\0\0\0\0{"a' >broken.safetensors
: >nothing.safetensors
canzona rules check short.safetensors "$adamw" huge.safetensors \
  empty.safetensors broken.safetensors nothing.safetensors
exits 2
says 'error: ' '5 files cannot be read' 'short.safetensors' \
  'huge.safetensors' 'empty.safetensors' 'broken.safetensors' \
  'nothing.safetensors'
prints passed UNREADABLE '1 passed, 5 failed'
canzona rules check short.safetensors --json
exits 2
is_json
member_is 'files 0 passed' OFF
says 'short.safetensors' 'cut short'
refuses_file() {
  canzona rules check "$1"
  exits 2
  says 'error: ' "$2"
}
refuses_file nowhere.safetensors nowhere.safetensors
mkdir bare
refuses 'bare' 'no *.safetensors' -- rules check bare
refuses FILE -- rules check
refuses '--newton-schulz' "'gran'" "'gram'" -- rules check "$adamw" \
  --newton-schulz gran
refuses '--threads' -- rules check "$adamw" --threads 0
refuses '--device' "'gpu'" 'cpu, cuda' -- rules check "$adamw" --device gpu
refuses 'a GPU checks files one at a time' -- rules check "$adamw" \
  --device cuda --threads 2
refuses '--slack' -- rules check "$adamw" --slack 0.5
refuses "unknown option '--jsn'" "'--json'" 'canzona rules check --help' -- \
  rules check "$adamw" --jsn

# A whole folder, side by side; of many files only the failures are shown.
mkdir some
cp "$golden"/muon-*.safetensors "$golden"/adamw-*.safetensors some
canzona rules check some --threads 2
exits 0
lacks out "  passed  "
prints ' passed, 0 failed, '
canzona rules check some --verbose --newton-schulz standard
exits 0
prints muon-keller adamw-torch
canzona completion bash
prints 'check'
canzona man
prints 'rules check'

finish
