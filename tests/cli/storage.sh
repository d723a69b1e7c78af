# canzona plan --storage: storage that is given, and the verbs that take its
# plans.
. "$(dirname "$0")/words.sh"

# Four ranks in two replicas (HSDP 2x2), a matrix in halves, one row on the first
# rank of each replica, a norm that everybody has.
cat >storage.json <<'JSON'
{"canzona_storage": 1, "world": 4, "wire": "bf16", "ranks_per_node": 2,
 "groups": [{"rule": "muon", "options": {"preset": "torch"}},
            {"rule": "adamw"}],
 "tensors": [
   {"name": "layers.0.q", "shape": [8, 4], "group": 0, "dtype": "bf16",
    "stored": [[[[0, 0], [4, 4]]], [[[4, 0], [4, 4]]],
               [[[0, 0], [4, 4]]], [[[4, 0], [4, 4]]]]},
   {"name": "layers.0.k", "shape": [8, 4], "group": 0, "splits": [5, 3],
    "stored": {"like": 0}},
   {"name": "row", "shape": [1, 4], "group": 0,
    "stored": [[[[0, 0], [1, 4]]], [], [[[0, 0], [1, 4]]], []]},
   {"name": "norm", "shape": [4], "group": 1,
    "stored": [[[[0], [4]]], [[[0], [4]]], [[[0], [4]]], [[[0], [4]]]]}]}
JSON

canzona plan --storage storage.json -o plan.json --html plan.html --quiet
exits 0
prints 'Plan of given storage' '4 tensors' '4 matrices' 'makespan' \
  'muon (3 tensors), adamw (1 tensor)' 'gather' \
  'broadcast' 'Load of each rank'
cp plan.html out
prints '"report":"storage"' '"world":4' 'layers.0.k:1' 'transform round' \
  'Load per rank' 'Bytes per rank and step'
cp plan.json first.json
canzona plan --storage storage.json -o plan.json --json --quiet
exits 0
is_json
member_is world 4
has_member 'balance makespan_over_bound'
has_member 'ranks 3 bytes'
has_member 'classes 0 lines 1 1'
has_member 'matrices 3 owner'
cmp -s plan.json first.json || fail 'the same storage gave another plan'

canzona validate plan.json
exits 0
prints sound '4 matrices on 4 ranks'
canzona validate plan.json --json
exits 0
member_is sound ON

canzona explain plan.json
exits 0
prints 'Plan of given storage' 'Classes of replicas'
canzona explain plan.json --rank 2
exits 0
prints 'Rank 2 of 4, node 1' 'Computes' 'Bytes per step' 'A step' 'apply round'
canzona explain plan.json --rank 2 --json
exits 0
is_json
has_member 'step 0 operation'
has_member 'bytes broadcast received_inter'
canzona explain plan.json --matrix layers.0.k
exits 0
prints 'layers.0.k:0' 'layers.0.k:1' 'owner' 'round'
canzona explain plan.json --audit
exits 0
prints 'row' 'norm' 'who stores it'
canzona explain plan.json --audit --json
exits 0
is_json
canzona explain plan.json --html again.html --quiet
exits 0
cmp -s plan.html again.html || fail 'explain writes another page than plan'
refuses "--rank" '4 ranks' -- explain plan.json --rank 4
refuses "--rank" '4 ranks' -- explain plan.json --rank 4 --html unasked.html
not_there unasked.html
refuses "'layers.0.qq'" "'layers.0.q'" -- explain plan.json --matrix layers.0.qq
refuses "'norm'" 'element by element' -- explain plan.json --matrix norm

# A plan that was changed is read, and every violation listed; one that says
# nothing of the kind is no plan.
sed 's/"owners":\[[0-9]/"owners":[3/; s/"idle_ranks":[0-9]*/"idle_ranks":77/' \
  plan.json >changed.json
canzona validate changed.json
exits 1
prints 'not sound' 'digest' 'idle ranks 77'
sed 's/"owners":\[[0-9]/"owners":[9/' plan.json >changed.json
canzona validate changed.json
exits 1
prints 'not sound' '9 is not in 0..3'
refuses 'not a plan' -- validate storage.json

# Bad storage: tensor and rank are named.
bad() { # <sed expression> <words…>
  sed "$1" storage.json >bad.json
  shift
  refuses bad.json "$@" -- plan --storage bad.json
}
bad 's/\[\[\[4, 0\], \[4, 4\]\]\]/[[[4, 0], [3, 4]]]/' \
  "tensor 'layers.0.q'" 'no rank stores element [7, 0]' 'ranks 1, 3'
bad 's/\[\[\[4, 0\], \[4, 4\]\]\],/[[[3, 0], [4, 4]]],/' \
  "tensor 'layers.0.q'" 'overlap' 'ranks 0, 2' 'rank 1'
bad 's/\[\[\[4, 0\], \[4, 4\]\]\],/[[[5, 0], [4, 4]]],/' \
  "tensor 'layers.0.q'" 'rank 1' 'outside the shape [8, 4]'
bad 's/"splits": \[5, 3\]/"splits": [5, 4]/' \
  "tensor 'layers.0.k'" 'add up to 9 rows, expected 8'
bad 's/"name": "row"/"name": "norm"/' "'norm'" 'two tensors'
bad 's/"muon"/"moun"/' 'group 0' "'moun'" "'muon'"
bad 's/"preset"/"prset"/' 'group 0' "'prset'" "'preset'"
bad 's/"dtype": "bf16"/"dtype": "fp8"/' "'fp8'"
bad 's/"shape": \[4\]/"shape": [0]/' "tensor 'norm'" 'shape [0]'
bad 's/"world": 4/"world": 3/' "tensor 'layers.0.q'" '3 ranks, got 4'
bad 's/"like": 0/"like": 1/' "tensor 'layers.0.k'" 'like: 1'
bad 's/canzona_storage/canzona_storge/' "did you mean 'canzona_storage'"
printf '{' >bad.json
refuses bad.json -- plan --storage bad.json
refuses "'nowhere.json'" -- plan --storage nowhere.json
refuses --storage --mesh -- plan --storage storage.json --mesh dp=4
refuses --storage --rule -- plan --storage storage.json --rule soap

canzona plan --help
exits 0
prints --storage '"canzona_storage": 1'

finish
