"""Heads of attention as matrices of their own."""

import copy

import pytest
import torch
from torch import nn

import canzona
import layouts
from attention_models import Attention, Latent, Net, blocks, linear
from canzona import UsageError
from canzona._heads import find_heads


def test_heads_are_found_by_the_modules_own_numbers():
    assert blocks(Net()) == {
        "attn.q_proj.weight": [3] * 4,
        "attn.k_proj.weight": [3] * 2,
        "attn.v_proj.weight": [3] * 2,
    }


def test_latent_attention_has_parts_by_the_models_config():
    config = dict(
        num_attention_heads=3,
        qk_nope_head_dim=4,
        qk_rope_head_dim=2,
        v_head_dim=5,
    )
    found = find_heads(Net(Latent(), config))
    assert found["attn.q_b_proj.weight"].blocks == [6] * 3
    assert found["attn.kv_b_proj.weight"].blocks == [4, 5] * 3
    assert "attn.kv_a_proj.weight" not in found
    assert "the model's config" in found["attn.q_b_proj.weight"].source


@pytest.mark.parametrize("name", ["qkv_proj", "linear_qkv"])
def test_fused_projections_are_cut_head_by_head(name):
    attention = nn.Module()
    attention.add_module(name, linear(8 * 3))
    attention.num_heads, attention.num_query_groups = 4, 2
    of = find_heads(Net(attention))[f"attn.{name}.weight"]
    assert of.blocks == [3] * 8
    parts = "".join(r.part for r in of.rows)
    assert parts == ("qqkvqqkv" if name == "linear_qkv" else "qqqqkkvv")


def test_the_routing_table_says_what_was_found():
    optimizer = canzona.Muon(Net(), heads="auto")
    assert "heads: 4 of 3 rows (Attention)" in optimizer.routing
    names = [row["name"] for row in optimizer.plan.audit]
    assert "attn.q_proj.weight:3" in names
    assert "attn.o_proj.weight" in names


def test_heads_are_matrices_of_their_own():
    """As three parameters, one for each head."""
    whole = nn.Module()
    whole.q_proj = linear(12)
    apart = nn.Module()
    apart.heads = nn.ModuleList(linear(4) for _ in range(3))
    options = dict(lr=0.02, preset="normuon", precision="fp32")
    cut = canzona.Muon(whole, heads={"q_proj.weight": 3}, **options)
    assert "heads: 3 of 4 rows (heads['q_proj.weight'])" in cut.routing
    each = canzona.Muon(apart, **options)
    with torch.no_grad():
        start = layouts.numbers("q", 0, (12, 8))
        whole.q_proj.weight.copy_(start)
        for head, rows in zip(apart.heads, start.split(4)):
            head.weight.copy_(rows)
    for step in range(3):
        grad = layouts.numbers("q", step + 1, (12, 8))
        whole.q_proj.weight.grad = grad
        for head, rows in zip(apart.heads, grad.split(4)):
            head.weight.grad = rows.clone()
        cut.step()
        each.step()
    together = torch.cat([head.weight for head in apart.heads])
    assert torch.equal(whole.q_proj.weight, together)


def test_heads_of_columns_are_matrices_of_their_own():
    """As three parameters, one for each head."""
    whole = nn.Module()
    whole.o_proj = linear(8, 12)
    apart = nn.Module()
    apart.heads = nn.ModuleList(linear(8, 4) for _ in range(3))
    options = dict(lr=0.02, preset="normuon", precision="fp32")
    cut = canzona.Muon(whole, heads={"o_proj.weight": 3}, **options)
    assert "heads: 3 of 4 columns (heads['o_proj.weight'])" in cut.routing
    each = canzona.Muon(apart, **options)
    with torch.no_grad():
        start = layouts.numbers("o", 0, (8, 12))
        whole.o_proj.weight.copy_(start)
        for head, columns in zip(apart.heads, start.split(4, 1)):
            head.weight.copy_(columns)
    for step in range(3):
        if step == 2:  # groups of a plan have the rates of their parameters
            for optimizer in (cut, each):
                optimizer.param_groups[0]["lr"] = 0.01
                optimizer.param_groups[0]["weight_decay"] = 0.5
        grad = layouts.numbers("o", step + 1, (8, 12))
        whole.o_proj.weight.grad = grad
        for head, columns in zip(apart.heads, grad.split(4, 1)):
            head.weight.grad = columns.clone()
        cut.step()
        each.step()
    together = torch.cat([head.weight for head in apart.heads], 1)
    assert torch.equal(whole.o_proj.weight, together)
    state = cut.state_dict()["state"][0]
    assert state["second_moment"].shape == (3, 8, 1)


def test_all_heads_are_those_of_output_projections_too():
    model = Net()
    optimizer = canzona.Muon(model, heads="all")
    assert "heads: 4 of 3 columns (heads='all')" in optimizer.routing
    assert "heads: 4 of 3 rows (Attention)" in optimizer.routing
    model.attn.o_proj = linear(8, 13)
    with pytest.raises(UsageError, match="columns are not 4 heads"):
        canzona.Muon(model, heads="all")


def test_states_of_columns_go_on_as_they_were(tmp_path):
    def trained(steps, optimizer=None, model=None):
        if model is None:
            torch.manual_seed(0)
            model = Net()
            optimizer = canzona.Muon(
                model, lr=0.02, preset="normuon", heads="all"
            )
        for step in steps:
            for name, p in model.named_parameters():
                p.grad = layouts.numbers(name, step, p.shape)
            optimizer.step()
        return model, optimizer

    straight, _ = trained(range(1, 6))
    model, optimizer = trained(range(1, 3))
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "saved")
    weights, states = torch.load(tmp_path / "saved")
    again = Net()
    again.load_state_dict(weights)
    resumed = canzona.Muon(again, lr=0.02, preset="normuon", heads="all")
    resumed.load_state_dict(states)
    trained(range(3, 6), resumed, again)
    other, copied = copy.deepcopy((model, optimizer))
    trained(range(3, 6), copied, other)
    for name, p in straight.named_parameters():
        assert torch.equal(p, again.get_parameter(name)), name
        assert torch.equal(p, other.get_parameter(name)), name
    whole = canzona.Muon(Net(), lr=0.02, preset="normuon", heads="auto")
    with pytest.raises(UsageError, match=r"o_proj.weight has shape \[4, 8, 1\]"):
        whole.load_state_dict(states)


def test_heads_of_columns_are_muons_alone():
    with pytest.raises(UsageError, match="rule soap cuts only rows"):
        canzona.SOAP(Net(), heads={"*.o_proj.weight": 4})


def test_a_copy_clips_the_layers_that_its_model_had():
    model = Net()
    optimizer = canzona.Muon(model, lr=0.02)
    copied, its = copy.deepcopy((model, optimizer))
    for p in copied.parameters():
        p.grad = torch.ones_like(p)
    its.step()
    before = copied.attn.q_proj.weight.clone()
    assert its.clip_qk({"attn": [200.0, 1, 1, 1]}) == {"attn": [0]}
    assert not torch.equal(before, copied.attn.q_proj.weight)


@pytest.mark.parametrize(
    "model, heads, message",
    [
        (Net(), {"*.q_proj.weight": 5}, "5 heads do not divide the 12 rows"),
        (Net(), {"*.q_proj.weight": "4"}, "expected a number of heads"),
        (Net(), {"*.p_proj.weight": 4}, "fits no parameter"),
        (Net(), {"*.q_proj.bias": 4}, "which has no heads"),
        (Net(), {"*.o_proj.weight": 5}, "5 heads do not divide the 12 columns"),
        (Net(), {"*.q_proj.weight": ("rows", 4)}, "expected a number of heads"),
        (Net(), "four", "heads='four': expected a dict"),
        (Net(Attention(width=3)), "auto", "neither its module nor a config"),
        (Net(Attention(num_heads=5)), "auto", "5 heads in 5 groups have 10"),
        (
            Net(Attention(num_heads=4, n_kv_heads=3)),
            "auto",
            "3 groups of keys do not divide 4 heads",
        ),
        (nn.Sequential(linear(8)), "auto", "no matrix is a projection"),
    ],
)
def test_bad_heads_are_named(model, heads, message):
    with pytest.raises(UsageError, match=message):
        canzona.Muon(model, heads=heads)


def test_heads_and_splits_of_one_tensor_exclude_each_other():
    for heads in ("auto", {"*.q_proj.weight": 4}):
        with pytest.raises(UsageError, match="give one of heads= and splits="):
            canzona.Muon(
                Net(), heads=heads, splits={"*.q_proj.weight": [4, 8]}
            )


def test_auto_needs_the_model():
    with pytest.raises(UsageError, match="make the optimizer of it"):
        canzona.Muon(Net().named_parameters(), heads="auto")
