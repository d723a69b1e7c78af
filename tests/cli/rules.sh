# canzona rules describes the rules.
. "$(dirname "$0")/words.sh"

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
  'rules --help'; do
  # shellcheck disable=SC2086
  canzona $arguments
  exits 0
  checks=$((checks + 1))
  [ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 100 ] ||
    fail 'a line is wider than 100 columns'
done

finish
