"""QK-clip: rows of queries and keys are scaled after a step."""

import copy
import functools
import json
import math
import struct
from pathlib import Path

import pytest
import torch
from torch import nn

import canzona
import layouts
from attention_models import Attention, Latent, Net, blocks, linear
from canzona import UsageError
from canzona._heads import HeadRows, Rows, find_heads
from canzona._qk_clip import row_factors
from conftest import RankError, spawn

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "data" / "golden"


def read_fixture(name):
    data = (GOLDEN / f"{name}.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    about = header.pop("__metadata__")
    kinds = {"F64": torch.float64, "F32": torch.float32}
    tensors = {
        key: torch.frombuffer(
            bytearray(data[8 + size :][slice(*t["data_offsets"])]),
            dtype=kinds[t["dtype"]],
        ).view(t["shape"])
        for key, t in header.items()
    }
    return about, tensors


def rows_of(heads, weight, **of):
    """What find_heads() finds for a fixture's geometry."""
    if weight == "qkv":
        numbers = dict(num_heads=heads, num_query_groups=of["groups"])
        child, rows = "linear_qkv", (heads + 2 * of["groups"]) * of["head_dim"]
        module = nn.Module()
    else:
        numbers = dict(
            num_heads=heads,
            qk_nope_head_dim=of["nope"],
            qk_rope_head_dim=of["rope"],
            v_head_dim=of["value"],
        )
        child = {"mla_q": "q_b_proj", "mla_kv": "kv_b_proj"}[weight]
        module = nn.Module()
        module.q_b_proj = linear(heads * (of["nope"] + of["rope"]))
        module.kv_b_proj = linear(heads * (of["nope"] + of["value"]))
        rows = 0
    if rows:
        module.add_module(child, linear(rows))
    for name, n in numbers.items():
        setattr(module, name, n)
    return find_heads(Net(module))[f"attn.{child}.weight"]


def test_rows_are_scaled_as_in_megatron():
    about, tensors = read_fixture("qkclip-megatron")
    options, geometry = (
        json.loads(about[key]) for key in ("options", "geometry")
    )
    tau, alpha = options["qk_clip.tau"], options["qk_clip.alpha"]
    for number, of in geometry.items():
        logits = tensors[f"max_logits.{number}"].tolist()
        factors = row_factors(rows_of(**of), logits, tau, alpha, "group_max")
        scale = torch.tensor(factors, dtype=torch.float64)[:, None]
        for dtype, name, most in (
            (torch.float64, "out_f64", 1e-14),
            (torch.float32, "out_f32", 1e-6),
        ):
            got = tensors[f"in.{number}"].to(dtype) * scale.to(dtype)
            wanted = tensors[f"{name}.{number}"]
            far = (got - wanted).abs().max() / wanted.abs().max()
            assert far <= most, (number, name)


def test_query_heads_alone_take_all_of_their_own():
    rows = tuple(Rows("q", h, 1) for h in range(4)) + tuple(
        Rows("k", g, 1) for g in range(2)
    )
    of = HeadRows("attn", 4, 2, rows, "")
    logits = [4.0, 1.0, 0.5, 2.0]
    gamma = [0.25, 1.0, 1.0, 0.5]
    assert row_factors(of, logits, 1.0, 0.5, "q_only") == gamma + [1.0, 1.0]
    assert row_factors(of, logits, 1.0, 0.5, "group_max") == pytest.approx(
        [0.5, 0.5, 0.5**0.5, 0.5**0.5, 0.5, 0.5**0.5]
    )


def one_step(model, **options):
    optimizer = canzona.Muon(model, lr=0.0, weight_decay=0.0, **options)
    for p in model.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    optimizer.step()
    return optimizer


def logits_of(attention, x):
    """The largest of each query head, in fp32."""
    q = attention.q_proj(x).float().unflatten(-1, (4, 3))
    k = attention.k_proj(x).float().unflatten(-1, (2, 3))
    k = k.repeat_interleave(2, dim=-2)
    return torch.einsum("ihd,jhd->hij", q, k).amax((1, 2)) / math.sqrt(3)


@pytest.mark.parametrize("group", ["group_max", "q_only"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_at_most_tau_afterwards(dtype, group):
    torch.manual_seed(0)
    model = Net().to(dtype)
    with torch.no_grad():
        model.attn.q_proj.weight.mul_(40)
    x = torch.randn(20, 8).to(dtype)
    before = logits_of(model.attn, x)
    tau = before.median().item()
    weights = [p.clone() for p in model.parameters()]
    optimizer = one_step(model)
    with torch.no_grad():
        for p, w in zip(model.parameters(), weights):
            p.copy_(w)
    largest = logits_of(model.attn, x).detach()
    clipped = optimizer.clip_qk({"attn": largest}, tau=tau, group=group)
    assert clipped == {
        "attn": [h for h in range(4) if largest[h] > tau]
    } and clipped["attn"]
    # Rounding of weights and of their products, in bf16.
    room = 1e-6 if dtype == torch.float32 else 2**-6
    assert logits_of(model.attn, x).max() <= tau * (1 + room)


def test_nothing_changes_where_no_head_exceeds_tau():
    model = Net()
    optimizer = one_step(model)
    before = [p.clone() for p in model.parameters()]
    assert optimizer.clip_qk({"attn": [5.0, -3.0, 100.0, 0.0]}) == {}
    assert all(map(torch.equal, model.parameters(), before))


def test_a_step_is_clipped_once():
    model = Net()
    optimizer = one_step(model)
    assert optimizer.clip_qk({"attn": [200.0, 1, 1, 1]}) == {"attn": [0]}
    assert optimizer.clip_qk({"attn": [200.0, 1, 1, 1]}) == {}


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Attention(), Attention()


LARGE = [200.0, 1, 1, 1]


def test_layers_may_be_clipped_one_by_one():
    model = Two()
    optimizer = one_step(model)
    assert optimizer.clip_qk({}) == {}
    assert optimizer.clip_qk({"a": LARGE}) == {"a": [0]}
    assert optimizer.clip_qk({"a": LARGE, "b": LARGE}) == {"b": [0]}
    assert optimizer.clip_qk({"b": LARGE}) == {}


def step_again(model, optimizer, value=1.0):
    for p in model.parameters():
        p.grad = torch.full_like(p, value)
    optimizer.step()


def test_a_step_after_going_back_is_clipped():
    model = Net()
    optimizer = one_step(model)
    saved = copy.deepcopy(optimizer.state_dict())
    step_again(model, optimizer)
    assert optimizer.clip_qk({"attn": LARGE})
    optimizer.load_state_dict(saved)
    assert optimizer.clip_qk({"attn": LARGE}) == {}
    step_again(model, optimizer)
    assert optimizer.clip_qk({"attn": LARGE}) == {"attn": [0]}


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_a_skipped_step_is_not_clipped():
    model = Net()
    optimizer = one_step(model)
    before = [p.clone() for p in model.parameters()]
    step_again(model, optimizer, math.nan)
    assert optimizer.clip_qk({"attn": LARGE}) == {}
    assert all(map(torch.equal, model.parameters(), before))


def test_rows_that_others_wrote_are_clipped_as_they_are():
    model = Net().to(torch.bfloat16)
    optimizer = one_step(model)
    with torch.no_grad():
        model.attn.q_proj.weight.mul_(4)
    before = model.attn.q_proj.weight.clone()
    optimizer.clip_qk({"attn": [400.0, 1, 1, 1]}, alpha=1.0)
    after = model.attn.q_proj.weight
    assert torch.equal(after[:3], before[:3] / 4)
    assert torch.equal(after[6:], before[6:])


def test_rows_that_cannot_be_scaled_are_an_error():
    model = Net()
    model.attn.q_proj.requires_grad_(False)
    optimizer = one_step(model)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(UsageError, match="q_proj.weight: has rows"):
        optimizer.clip_qk({"attn": LARGE})
    assert all(map(torch.equal, model.parameters(), before))


def test_a_frozen_bias_of_queries_is_an_error():
    model = Net()
    model.attn.q_proj.bias.requires_grad_(False)
    optimizer = one_step(model)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(UsageError, match="q_proj.bias: has rows"):
        optimizer.clip_qk({"attn": LARGE})
    assert all(map(torch.equal, model.parameters(), before))


def test_layers_may_have_the_names_that_wrappers_give_them():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    optimizer = one_step(compiled)
    assert optimizer.clip_qk({"_orig_mod.attn": LARGE}) == {"attn": [0]}
    with pytest.raises(UsageError, match="'attn': is given twice"):
        optimizer.clip_qk({"module.attn": LARGE, "attn": LARGE})


def test_numbers_of_another_attention_do_not_count():
    config = dict(num_attention_heads=8, num_key_value_heads=2, head_dim=9)
    found = blocks(Net(Attention(num_heads=2), config))
    assert found["attn.k_proj.weight"] == [3, 3]
    assert found["attn.q_proj.weight"] == [6, 6]


def test_an_indexer_has_one_key_for_all_heads():
    found = find_heads(Net(Attention(n_heads=2, head_dim=6)))
    assert found["attn.q_proj.weight"].blocks == [6, 6]
    assert found["attn.k_proj.weight"].blocks == [6]
    assert found["attn.k_proj.weight"].groups == 1


def test_every_head_of_latent_attention_has_its_key():
    config = dict(
        num_attention_heads=3,
        num_key_value_heads=1,
        qk_nope_head_dim=4,
        qk_rope_head_dim=2,
        v_head_dim=5,
    )
    found = find_heads(Net(Latent(), config))
    assert {of.groups for of in found.values()} == {3}


@pytest.mark.parametrize(
    "logits, options, message",
    [
        ({"attn": [1, math.nan, 1, 1]}, {}, "logit of head 1 is nan"),
        ({"attn": [1, 1, -math.inf, 1]}, {}, "logit of head 2 is -inf"),
        ({"attn": [1, 1, 1]}, {}, "3 maxima for 4 heads"),
        ({"atn": [1] * 4}, {}, "no attention layer.*did you mean attn"),
        ({"attn": None}, {}, "the largest logits are NoneType"),
        ([1.0], {}, "max_logits is a list"),
        ({3: [1] * 4}, {}, "'3': is no attention layer"),
        ({"attn": [1] * 4}, {"tau": 0.0}, "tau=0.0"),
        ({"attn": [1] * 4}, {"tau": "100"}, "tau='100'"),
        ({"attn": [1] * 4}, {"alpha": 2.0}, "alpha=2.0"),
        ({"attn": [1] * 4}, {"group": "all"}, "group='all'"),
    ],
)
def test_bad_maxima_are_named(logits, options, message):
    model = Net()
    optimizer = one_step(model)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(UsageError, match=message):
        optimizer.clip_qk(logits, **options)
    assert all(map(torch.equal, model.parameters(), before))


class LaidOut(layouts.Model):
    """The model of all layouts, with attention beside the rest."""

    def __init__(self):
        super().__init__()
        self.num_heads = 1  # of its own qkv
        self.attn = Attention()


def clipped(layout, dtype=torch.float32, wrong=None):
    kept, layouts.Model = layouts.Model, LaidOut
    try:
        model, told = layouts.build(layout, dtype)
    finally:
        layouts.Model = kept
    rank = 0
    if torch.distributed.is_initialized():
        rank = torch.distributed.get_rank()
    optimizer = canzona.Muon(
        model, lr=0.02, preset="kimi-k2", heads="auto", **told
    )
    for step in (1, 2, 3):
        layouts.steps(model, optimizer, step, step)
        largest = layouts.numbers("logits", step, (4,)).abs() * 2
        largest[0] = 5
        if rank != step % 2 and layout != "one":  # another rank has them
            largest = largest - 1
        tau = 0.5
        if rank == 1:
            if wrong == "nan":
                largest[3] = math.nan
            elif wrong == "length":
                largest = largest[:2]
            elif wrong == "type":
                largest = None
            elif wrong == "tau":
                tau = 0.25
        names = optimizer._found_heads()
        assert names["attn.q_proj.weight"].heads == 4
        assert optimizer.clip_qk({"attn": largest}, tau=tau)
    return layouts.digest(model, optimizer)


@functools.cache
def alone(dtype):
    return clipped("one", dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "layout", ["ddp2", "fsdp2", "fsdp3", "columns2", "hsdp", "tp2", "fsdp_tp"]
)
def test_clipping_has_the_same_bits_on_every_layout(layout, dtype):
    for rank, got in enumerate(
        spawn(layouts.LAYOUTS[layout], clipped, layout, dtype)
    ):
        unlike = [k for k, v in alone(dtype)[1].items() if got[1].get(k) != v]
        assert not unlike, (rank, unlike)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("nan", "logit of head 3 is nan"),
        ("length", "2 maxima for 4 heads"),
        ("type", "largest logits are NoneType"),
        ("tau", "rank 1 has tau=0.25"),
    ],
)
def test_an_error_of_one_rank_is_everybodys(wrong, message):
    with pytest.raises(RankError, match=message):
        spawn(2, clipped, "fsdp2", torch.float32, wrong)
