"""Which parameter goes to which rule."""

import warnings

import pytest
import torch
from torch import nn

import canzona
from canzona import _collect, _routing
from canzona._errors import UsageError
from canzona._modules import Known


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 2 * width)
        self.o_proj = nn.Linear(width, width, bias=False)


class Experts(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w1 = nn.Parameter(torch.zeros(4, 6, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Module()
        self.mlp.gate = nn.Linear(width, 4, bias=False)
        self.mlp.gate_proj = nn.Linear(width, 16, bias=False)
        self.mlp.experts = Experts(width)


class Model(nn.Module):
    def __init__(self, tied=False, width=8, vocabulary=50):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(5, width))
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.conv = nn.Conv2d(3, 4, 2)
        self.to_words = nn.Linear(width, vocabulary, bias=False)
        self.lora_A = nn.Linear(width, 2, bias=False)
        if tied:
            self.to_words.weight = self.embed.weight


def routed(model, **options):
    named, _, known, _ = _collect.collect(model)
    return {r.name: r for r in _routing.route(named, known, "muon", **options)}


def test_a_model_is_routed_with_reasons():
    routes = routed(Model())
    assert {n for n, r in routes.items() if r.rule == "muon"} == {
        f"blocks.{i}.{n}"
        for i in range(2)
        for n in (
            "attention.qkv.weight",
            "attention.o_proj.weight",
            "mlp.gate_proj.weight",
            "mlp.experts.w1",
        )
    }
    reasons = {n: r.reason for n, r in routes.items()}
    assert reasons["embed.weight"] == "an embedding"
    assert reasons["to_words.weight"].startswith("a head: as wide as the voc")
    assert reasons["blocks.0.mlp.gate.weight"] == "a router"
    assert reasons["lora_A.weight"] == "a low-rank factor of LoRA"
    assert reasons["blocks.0.attention.qkv.bias"] == "a vector"
    assert "which is no Linear" in reasons["position"]
    assert "flattens" in reasons["conv.weight"]
    assert reasons["blocks.1.mlp.experts.w1"] == "4 experts' matrices"


def test_tied_heads_are_no_matrices():
    routes = routed(Model(tied=True))
    assert "to_words.weight" not in routes
    assert routes["embed.weight"].rule == "adamw"
    assert "tied" in routes["embed.weight"].reason


class Small(nn.Module):
    """A vocabulary as large as the model is wide, so that widths tell little."""

    def __init__(self, width=8, positions=32, tied=False, proj=False):
        super().__init__()
        self.embed = nn.Embedding(width, width)
        self.places = nn.Embedding(positions, width)
        if proj:
            self.proj = nn.Linear(width, width)
        self.blocks = nn.Sequential(*(Attention(width) for _ in range(2)))
        self.ups = nn.ModuleList([nn.Linear(width, positions)])
        self.tail = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width))
        if tied:
            self.tail[1].weight = self.embed.weight


def matrices(model, **options):
    routes = routed(model, **options).values()
    return {r.name for r in routes if r.rule == "muon"}


INNER = {"ups.0.weight"} | {
    f"blocks.{i}.{n}.weight" for i in range(2) for n in ("qkv", "o_proj")
}


def test_one_layer_is_the_head_where_all_are_as_wide_as_the_vocabulary(recwarn):
    assert matrices(Small()) == INNER
    assert routed(Small())["tail.1.weight"].reason.startswith("a head: as wide")
    assert matrices(Small(tied=True, proj=True)) == INNER | {"proj.weight"}
    assert not recwarn.list


def test_a_head_that_the_model_tells_of_is_the_only_one(recwarn):
    model = Small(proj=True)
    model.get_output_embeddings = lambda: model.tail[1]
    assert matrices(model) == INNER | {"proj.weight"}
    model = Small(proj=True)
    del model.tail
    model.lm_head = nn.Linear(8, 8)
    model.after = nn.Linear(8, 8)
    assert matrices(model) == INNER | {"proj.weight", "after.weight"}
    rules = {"proj.weight": "adamw"}
    told = matrices(Small(proj=True), rules=rules)
    assert told == INNER | {"tail.1.weight"}
    assert not recwarn.list


def test_a_head_chosen_among_several_is_told_of():
    with pytest.warns(UserWarning) as told:
        assert matrices(Small(proj=True)) == INNER | {"proj.weight"}
    (text,) = [str(w.message) for w in told]
    assert "2 layers have as many rows as an embedding" in text
    assert "(proj.weight, tail.1.weight)" in text
    assert 'rules={"tail.1.weight": "muon", "proj.weight": "adamw"}' in text
    assert told[0].filename == __file__
    model = Small()
    del model.tail
    with pytest.warns(UserWarning, match="none is taken for the model's head"):
        assert matrices(model) == INNER
    model.classifier = nn.Linear(8, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert matrices(model) == INNER


class Kernels(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 5)
        self.back = nn.ConvTranspose2d(6, 4, 3, groups=2)
        self.lazy = nn.LazyConv2d(7, 2)
        self.lazy_back = nn.LazyConvTranspose1d(3, 2)
        self.experts = Experts(8)
        self.stack = nn.Parameter(torch.zeros(3, 4, 5))


def test_convolutions_are_flattened_and_stacks_of_experts_are_not():
    model = Kernels()
    with pytest.raises(UsageError, match="lazy.weight: has no shape yet"):
        canzona.Muon(model)
    model.lazy(torch.zeros(1, 2, 4, 4))
    model.lazy_back(torch.zeros(1, 2, 4))
    routes = routed(model, flatten=True, rules={"stack": "muon"})
    shapes = {n: r.shape for n, r in routes.items() if r.rule == "muon"}
    assert shapes == {
        "conv.weight": (4, 15),
        "back.weight": (6, 18),
        "lazy.weight": (7, 8),
        "lazy_back.weight": (2, 6),
        "experts.w1": (4, 6, 8),
        "stack": (3, 4, 5),
    }
    reason = routes["back.weight"].reason
    assert reason == "a convolution, flattened to 6 x 18"
    assert routes["experts.w1"].reason == "4 experts' matrices"


def test_flattening_without_a_model_leaves_stacks_of_experts():
    named = [
        ("experts.w1", nn.Parameter(torch.zeros(4, 16, 8)), 0),
        ("conv.weight", nn.Parameter(torch.zeros(4, 3, 2, 2)), 0),
    ]
    routes = _routing.route(named, {}, "muon", {"*": "muon"}, flatten=True)
    assert [r.shape for r in routes] == [(4, 16, 8), (4, 12)]


def test_names_alone():
    named = [(n, p) for n, p in Model().named_parameters()]
    named, _, known, _ = _collect.collect(named)
    assert not known
    rules = {r.name: r.rule for r in _routing.route(named, {}, "muon")}
    assert rules["blocks.0.attention.o_proj.weight"] == "muon"
    assert rules["embed.weight"] == "adamw"
    assert rules["blocks.0.mlp.experts.w1"] == "muon"


def test_matrices_without_names_are_told_of_once():
    model = Model()
    with pytest.warns(UserWarning) as told:
        optimizer = canzona.Muon(model.parameters())
    (text,) = [str(w.message) for w in told]
    assert "(parameter0, 5 x 8, …) have no names" in text
    assert "go to muon as well; pass the model itself" in text
    assert told[0].filename == __file__
    assert "parameter0   muon" in optimizer.routing


def test_names_that_are_given_are_used(recwarn):
    model = Model()
    for given in (
        model.named_parameters(),
        [{"params": model.named_parameters()}],
        [
            {
                "params": list(model.parameters()),
                "param_names": [n for n, _ in model.named_parameters()],
            }
        ],
    ):
        groups = canzona.Muon(given).param_groups
        rules = {n: g["rule"] for g in groups for n in g["param_names"]}
        assert rules["embed.weight"] == rules["lora_A.weight"] == "adamw"
        assert rules["blocks.0.attention.o_proj.weight"] == "muon"
    matrix = [nn.Parameter(torch.zeros(4, 4))]
    canzona.Muon([{"params": matrix, "rule": "muon"}])
    canzona.AdamW(matrix)
    assert not recwarn.list


@pytest.mark.parametrize(
    "name, rule",
    [
        ("lm_head.weight", "adamw"),
        ("output.weight", "adamw"),
        ("score.weight", "adamw"),
        ("model.decoder.lm_head.weight", "adamw"),
        ("layers.3.attention.output.weight", "muon"),
        ("layers.3.output.dense.weight", "muon"),
        ("layers.3.gate.weight", "muon"),
        ("layers.3.router.weight", "adamw"),
        ("layers.3.moe.router.gate.weight", "adamw"),
        ("layers.3.mlp.router.classifier.weight", "adamw"),
        ("deepspeed_moe.gate.wg.weight", "adamw"),
        ("layers.3.mlp.shared_expert_gate.weight", "adamw"),
        ("layers.3.router_norm.proj.weight", "muon"),
        ("wte.weight", "adamw"),
        ("tok_embeddings.weight", "adamw"),
        ("base.layers.0.q.lora_A.default.weight", "adamw"),
    ],
)
def test_names(name, rule):
    for known in (None, Known()):
        assert _routing.usual(name, (64, 32), known, "muon")[0] == rule


def test_wrappers_leave_no_trace_in_names():
    assert _routing.clean("module._orig_mod.a.module.weight") == "a.weight"
    assert _routing.clean("a._checkpoint_wrapped_module.b") == "a.b"
    assert _routing.clean("modules.a") == "modules.a"


def test_a_models_own_word_for_a_part_is_kept_where_names_would_be_alike():
    model = nn.Module()
    model.module = nn.Linear(3, 3, bias=False)
    model.weight = nn.Parameter(torch.ones(5))
    groups = canzona.Muon(model).param_groups
    assert [g["param_names"] for g in groups] == [["module.weight"], ["weight"]]


def test_rules_by_pattern():
    routes = routed(
        Model(),
        rules={
            "blocks.*": "adamw",
            "blocks.1.*.o_proj.weight": "muon",
            "conv.weight": "muon",
            "embed.*": "frozen",
        },
    )
    assert routes["blocks.0.attention.o_proj.weight"].rule == "adamw"
    assert routes["blocks.1.attention.o_proj.weight"].rule == "muon"
    assert routes["conv.weight"].shape == (4, 12)
    assert routes["embed.weight"].rule == "frozen"
    assert "embed.*" in routes["embed.weight"].reason


def test_splits():
    routes = routed(Model(), splits={"*.qkv.weight": [8, 4, 4]})
    assert routes["blocks.1.attention.qkv.weight"].splits == [8, 4, 4]


def test_frozen_without_gradient():
    model = Model()
    model.blocks[0].requires_grad_(False)
    assert routed(model)["blocks.0.attention.qkv.weight"].rule == "frozen"


@pytest.mark.parametrize(
    "options, words",
    [
        (
            dict(rules={"blocks.*.qvk.weight": "adamw"}),
            [
                "'blocks.*.qvk.weight'",
                "fits no parameter",
                "did you mean blocks.",
                "qkv.weight",
            ],
        ),
        (
            dict(rules={"*": "moun"}),
            ["'moun'", "muon or adamw or frozen", "did you mean muon"],
        ),
        (dict(rules={"*.bias": "muon"}), ["qkv.bias", "needs a matrix"]),
        (
            dict(splits={"*.qkv.weight": [8, 9]}),
            ["add up to 17", "has 16 rows"],
        ),
        (dict(splits={"embed.weight": [25, 25]}), ["embed.weight", "adamw"]),
        (dict(splits={"x": [1]}), ["'x'", "fits no parameter"]),
    ],
)
def test_bad_patterns(options, words):
    with pytest.raises(UsageError) as e:
        routed(Model(), **options)
    for word in words:
        assert word in str(e.value)


def test_groups_and_parameters_given_twice():
    w, v = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))
    named, groups, _, _ = _collect.collect(
        [{"params": [("w", w)], "lr": 1}, {"params": [("v", v)]}]
    )
    assert [(n, g) for n, _, g in named] == [("w", 0), ("v", 1)]
    assert groups == [{"lr": 1}, {}]
    with pytest.raises(UsageError, match="parameter b: is given twice.*as a"):
        _collect.collect([("a", w), ("b", w)])
    with pytest.raises(UsageError, match="two parameters have this name"):
        _collect.collect([("a", w), ("a", v)])
    with pytest.raises(UsageError, match="empty"):
        _collect.collect([])


def test_no_matrix_at_all():
    named, _, known, _ = _collect.collect(nn.LayerNorm(4))
    routes = _routing.route(named, known, "muon")
    with pytest.raises(UsageError, match="no parameter goes to muon.*vector"):
        _routing.require_matrices(routes, "muon")
