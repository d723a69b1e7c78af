"""canzona.plan(layout=) against what the optimizers plan under that layout."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
from conftest import spawn

CONFIGS = Path(__file__).resolve().parents[2] / "tests" / "data" / "configs"


class Conv1D(nn.Module):
    """GPT-2's, a Linear layer whose weight is [in, out]."""


class Experts(nn.Module):
    """Stacks of experts' matrices, as gpt-oss and Hugging Face have them."""


class Other(nn.Module):
    """Norms, and modules that hold modules."""


_KINDS = {
    "embed_tokens": nn.Embedding,
    "wte": nn.Embedding,
    "wpe": nn.Embedding,
    "c_attn": Conv1D,
    "c_fc": Conv1D,
    "c_proj": Conv1D,
    "conv1d": nn.Conv1d,
    "experts": Experts,
}


def _module(path, shape):
    """An empty module of the class that models have under this name."""
    is_linear = len(shape) == 2 and "patch_embed" not in path  # a convolution
    kind = _KINDS.get(path[-1], nn.Linear if is_linear else Other)
    if kind is nn.Embedding:
        return kind(1, 1)
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    return module


def build(tensors, device="cpu"):
    """A model with these parameters, in modules named like Hugging Face's."""
    model = Other()
    for name, shape, *_ in tensors:
        *path, attribute = name.split(".")
        at = model
        for depth, part in enumerate(path):
            if part not in at._modules:
                is_last = depth + 1 == len(path)
                below = _module(path, shape) if is_last else Other()
                at.add_module(part, below)
            at = at._modules[part]
        if isinstance(at, nn.Conv1d):
            shape = [shape[0], 1, *shape[1:]]
        empty = torch.empty(shape, device=device)
        at.register_parameter(attribute, nn.Parameter(empty))
    return model


def members_of(plan):
    """The members of all sections of a plan."""
    request = plan["request"]
    return {
        **request,
        **request["options"],
        **plan["storage"],
        **plan["decisions"],
    }


def rules_of(plan):
    return {t[0]: plan["groups"][t[3]]["rule"] for t in plan["tensors"]}


def without_most_experts(plan):
    """The first two of each layer stand for all of them."""
    kept = [
        t
        for t in plan["tensors"]
        if not re.search(r"\.experts\.([2-9]|\d\d+)\.", t[0])
    ]
    return {**plan, "tensors": kept}


@pytest.mark.parametrize("name", sorted(p.name for p in CONFIGS.iterdir()))
def test_every_family_goes_to_the_rules_of_its_modules(name):
    path = CONFIGS / name
    made = canzona.plan(path, "dp=2", layout="fsdp2", layers=4)
    plan = without_most_experts(members_of(made.decisions))
    model = build(plan["tensors"], "meta")
    optimizer = canzona.Muon(model)
    assert {n: r.rule for n, r in optimizer._routes.items()} == rules_of(plan)


TINY = {
    "hidden_size": 8,
    "intermediate_size": 14,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 3,
    "vocab_size": 10,
}
MODELS = {
    "dense": {**TINY, "model_type": "qwen3"},
    "experts": {
        **TINY,
        "model_type": "qwen3_moe",
        "num_experts": 3,
        "moe_intermediate_size": 6,
        "num_experts_per_tok": 1,
    },
    "stacks": {
        **TINY,
        "model_type": "gpt_oss",
        "num_local_experts": 3,
        "num_experts_per_tok": 1,
    },
}
_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")


def _tp_dim(name, ndim):
    """The dimension that ColwiseParallel or RowwiseParallel cuts; None: none.

    Experts' stacks are [experts, in, out]."""
    layer, attribute = name.split(".")[-2:]
    if layer == "experts":
        if attribute == "down_proj_bias":
            return None
        return ndim - 2 if attribute == "down_proj" else ndim - 1
    if attribute == "bias":
        return 0 if layer in _ROWS else None
    if attribute == "sinks":
        return 0
    if layer in (*_ROWS, "embed_tokens"):
        return 0
    return 1 if layer in ("o_proj", "down_proj") else None


def _cut(model, mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    for module_name, module in model.named_modules():
        for attribute, p in list(module.named_parameters(recurse=False)):
            dim = _tp_dim(f".{module_name}.{attribute}", p.ndim)
            if dim is not None:
                cut = distribute_tensor(p.detach(), mesh, [Shard(dim)])
                setattr(module, attribute, nn.Parameter(cut))


def planned_by_torch(tensors, layout, dp, tp, options):
    """The plan of canzona.Muon on gloo ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP

    model, told = build(tensors), {}
    shards = int(layout[5:]) if layout.startswith("hsdp") else dp
    mesh = init_device_mesh(
        "cpu", (dp // shards, shards, tp), mesh_dim_names=("r", "s", "tp")
    )
    if tp > 1:
        _cut(model, mesh["tp"])
    if layout == "ddp" and tp > 1:
        told["replicas"] = dist.group.WORLD
    elif layout == "ddp":
        model = DDP(model)
    else:
        over = mesh["s"] if layout == "fsdp2" else mesh["r", "s"]
        fully_shard(model, mesh=over)
    return members_of(canzona.Muon(model, **told, **options).plan.json)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "layout, dp, tp",
    [
        ("ddp", 4, 1),
        ("ddp", 2, 2),
        ("fsdp2", 4, 1),
        ("fsdp2", 2, 2),
        ("hsdp:2", 4, 1),
        ("hsdp:1", 2, 2),
    ],
)
def test_plans_are_those_of_the_optimizer(model, layout, dp, tp, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MODELS[model]))

    def planned(**options):
        mesh = f"dp={dp},tp={tp}"
        plan = canzona.plan(path, layout=layout, mesh=mesh, **options)
        return members_of(plan.decisions)

    tensors = planned()["tensors"]
    options = {"wire": "bf16", "ranks_per_node": 2, "weight_decay": 0.05}
    answers = spawn(4, planned_by_torch, tensors, layout, dp, tp, options)
    assert answers[0] == answers[3]
    theirs = answers[0]
    settled = theirs["groups"][0]["options"]
    ours = planned(
        wire="bf16",
        ranks_per_node=2,
        rule_option={
            "weight_decay": 0.05,
            "device": "cpu",
            "precision": settled["precision"],
        },
    )
    for name in ("world", "wire", "share_states", "capacity_bytes", "groups"):
        assert ours[name] == theirs[name], name
    assert stored_by_name(ours) == stored_by_name(theirs)
    matrices = [t[0] for t in ours["tensors"] if t[3] == 0]
    assert matrices == [t[0] for t in theirs["tensors"] if t[3] == 0]
    assert ours["owners"] == theirs["owners"]
    assert ours["rounds"] == theirs["rounds"]


def stored_by_name(plan):
    return {
        name: (shape, dtype, group, splits, plan["boxes"][boxes])
        for name, shape, dtype, group, splits, boxes in plan["tensors"]
    }


def test_plan_of_a_layout_can_be_looked_at():
    plan = canzona.plan("qwen3-0.6b", "dp=4,tp=2", layout="hsdp:2", layers=1)
    assert plan.json["world"] == 8
    assert plan.json["balance"]["makespan_ticks"] > 0
    assert "qwen3-0.6b hsdp:2 dp=4,tp=2" in repr(plan)
    assert plan.digest[:12] in repr(plan)
    assert "Rank 3 of 8" in plan.explain(rank=3)
    rules = {row["name"]: row["rule"] for row in plan.audit}
    assert rules["model.layers.0.mlp.up_proj.weight"] == "muon"
    assert rules["model.embed_tokens.weight"] == "adamw"
    assert "<html" in plan.html()
    with pytest.raises(canzona.UsageError, match="did you mean 'fsdp2'"):
        canzona.plan("qwen3-0.6b", "dp=4", layout="fsdp")
