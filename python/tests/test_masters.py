"""Masters of bf16 weights as remainders: the bits of fp32 masters, on every
layout, through state dicts of both forms, in whatever order things are loaded."""

import copy
import functools
import pickle
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from canzona import _masters
from conftest import spawn

FORMS = ("fp32", "remainder")
RULES = ("muon", "soap", "shampoo", "adamw")
OF_MASTERS = ("master", "remainder", "weight_checksum")


def run(rule, form, **options):
    return (rule, {"master": form, **options}, torch.bfloat16)


RUNS = {rule: run(rule, "remainder") for rule in RULES}
RUNS["muon, bf16 wire"] = run("muon", "remainder", wire="bf16")
RUNS["muon, l2"] = run(
    "muon", "remainder", weight_decay=0.1, decay_form="l2"
)


def but_masters(parts):
    return {k: v for k, v in parts.items() if k.split()[-1] not in OF_MASTERS}


@functools.cache
def alone():
    return layouts.train_all("one", RUNS)


def test_both_forms_have_the_same_bits():
    for name, (rule, options, dtype) in RUNS.items():
        options = {**options, "master": "fp32"}
        expected = layouts.train("one", rule, options, dtype=dtype)[1]
        assert but_masters(alone()[name][1]) == but_masters(expected), name


@pytest.mark.parametrize(
    "layout",
    ["ddp3", "shared2", "fsdp2", "fsdp3", "columns2", "hsdp", "tp2", "fsdp_tp"],
)
def test_layouts_do_not_change_a_bit(layout):
    for got in spawn(
        layouts.LAYOUTS[layout], layouts.train_all, layout, RUNS
    ):
        for name in RUNS:
            assert got[name] == alone()[name], name


# Numbers.


def test_remainders_restore_masters():
    bits = torch.arange(-(2**31), 2**31, 65521, dtype=torch.int64)
    halves = (torch.arange(-(2**15), 2**15) << 16) + 0x8000
    masters = torch.cat([bits, halves]).to(torch.int32).view(torch.float32)
    weights, rest = _masters.split(masters)
    back = _masters.exact(weights, rest)
    nan = masters.isnan()
    assert torch.equal(back.isnan(), nan)
    same = back.view(torch.int32) == masters.view(torch.int32)
    assert bool((same | nan).all())
    error = (weights.double() - masters.double()).abs()
    finite = masters.isfinite() & weights.isfinite()
    nearest = (masters.bfloat16().double() - masters.double()).abs()
    assert torch.equal(error[finite], nearest[finite])
    half = torch.tensor([1 + 2**-8, -1 - 2**-8])
    assert _masters.round_to_weights(half).tolist() == [1 + 2**-7, -1 - 2**-7]


def test_a_checksum_is_the_sum_of_its_parts():
    class Tensor:
        shape = (5, 7, 3)
        stored = [
            [((0, 0, 0), (5, 7, 3))],
            [((0, 0, 0), (2, 7, 3)), ((4, 0, 0), (1, 4, 3))],
            [((2, 0, 0), (2, 7, 3)), ((4, 4, 0), (1, 3, 3))],
        ]

    whole = torch.randn(Tensor.shape).bfloat16()

    def part(rank):
        return torch.cat(
            [
                whole[tuple(slice(a, a + n) for a, n in zip(*box))].reshape(-1)
                for box in Tensor.stored[rank]
            ]
        )

    sums = [_masters.checksum(Tensor, r, part(r)) for r in range(3)]
    assert (sums[1] + sums[2] - sums[0]) % 2**64 == 0
    swapped = whole.clone()
    swapped[0, 0, 0], swapped[0, 0, 1] = whole[0, 0, 1], whole[0, 0, 0]
    assert _masters.checksum(Tensor, 0, swapped) != sums[0]


# Scripts.


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16, bias=False), nn.LayerNorm(16), nn.Linear(16, 8)
    ).bfloat16()


def steps(model, optimizer, count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator).bfloat16()
        optimizer.step()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_same(some, others):
    assert all(map(torch.equal, some, others))


def made(form, model=None):
    model = model or net()
    return model, canzona.Muon(model, lr=0.02, master=form)


def test_a_remainder_takes_two_bytes():
    model, optimizer = made("remainder")
    steps(model, optimizer, 1)
    for p in model.parameters():
        state = optimizer.state[p]
        assert "master" not in state
        assert state["remainder"].dtype == torch.bfloat16
        assert state["remainder"].shape == p.shape
    of_fp32, of_remainder = (
        canzona.Muon(net(), lr=0.02, master=form).plan for form in FORMS
    )
    assert of_fp32 != of_remainder


@pytest.mark.parametrize("saved", FORMS)
@pytest.mark.parametrize("loaded", FORMS)
@pytest.mark.parametrize("order", ["model first", "optimizer first"])
@pytest.mark.parametrize("into", ["new", "used"])
def test_loading_in_either_order(saved, loaded, order, into):
    model, optimizer = made(saved)
    steps(model, optimizer, 3)
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    steps(model, optimizer, 3, seed=2)
    other, its = made(loaded)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.5)
    if into == "used":
        steps(other, its, 2, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if order == "model first":
            other.load_state_dict(state[0])
        its.load_state_dict(state[1])
        if order == "optimizer first":
            other.load_state_dict(state[0])
        steps(other, its, 3, seed=2)
    assert_same(weights(other), weights(model))


def test_a_state_dict_that_was_only_loaded_is_saved_as_it_was():
    model, optimizer = made("remainder")
    steps(model, optimizer, 3)
    state = copy.deepcopy(optimizer.state_dict())
    other, its = made("remainder")
    its.load_state_dict(state)
    again = its.state_dict()["state"]
    for i, of in state["state"].items():
        assert of["weight_checksum"] == again[i]["weight_checksum"]
        assert torch.equal(
            of["remainder"].view(torch.int16),
            again[i]["remainder"].view(torch.int16),
        )


@pytest.mark.parametrize("loaded", FORMS)
def test_other_weights_count_with_one_warning(loaded):
    model, optimizer = made("remainder")
    steps(model, optimizer, 3)
    state = optimizer.state_dict()
    results = []
    for form in (loaded, "fp32"):
        other, its = made(form)
        if form != loaded:  # masters are the weights
            for i, p in enumerate(other.parameters()):
                del state["state"][i]["remainder"]
        if form == loaded:
            its.load_state_dict(state)
            with pytest.warns(UserWarning, match="have other weights") as found:
                steps(other, its, 3)
            assert len(found) == 1
        else:
            its.load_state_dict(state)
            steps(other, its, 3)
        results.append(weights(other))
    assert_same(*results)


@pytest.mark.parametrize("how", ["write", "move"])
def test_weights_that_scripts_write_count(how):
    results = []
    for form in FORMS:
        model, optimizer = made(form)
        steps(model, optimizer, 3)
        with torch.no_grad():
            for p in model.parameters():
                if how == "write":
                    p.add_(1)
                else:
                    p.data = p.data + 1
        steps(model, optimizer, 3, seed=2)
        results.append(weights(model))
    assert_same(*results)


def test_weights_that_were_written_are_saved_as_their_own_masters():
    model, optimizer = made("remainder")
    steps(model, optimizer, 3)
    with torch.no_grad():
        model[0].weight.add_(1)
    rest = optimizer.state_dict()["state"]
    assert not rest[0]["remainder"].any()
    assert rest[1]["remainder"].view(torch.int16).any()


def pickled(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("by", [copy.deepcopy, pickled])
@pytest.mark.parametrize("form", FORMS)
def test_copies_go_on(by, form):
    model, optimizer = made(form)
    steps(model, optimizer, 3)
    other, its = by((model, optimizer))
    for of in ((model, optimizer), (other, its)):
        steps(*of, 3, seed=2)
    assert_same(weights(model), weights(other))


def test_a_deleted_remainder_begins_anew():
    results = []
    for form in FORMS:
        model, optimizer = made(form)
        steps(model, optimizer, 3)
        for p in model.parameters():
            del optimizer.state[p]["master" if form == "fp32" else "remainder"]
        steps(model, optimizer, 3, seed=2)
        results.append(weights(model))
    assert_same(*results)


def test_refusals():
    with pytest.raises(canzona.UsageError, match="master='half'"):
        canzona.Muon(net(), master="half")
    model, optimizer = made("remainder")
    steps(model, optimizer, 1)
    state = optimizer.state_dict()
    state["state"][0]["weight_checksum"] = "none"
    with pytest.raises(canzona.UsageError, match="'weight_checksum'"):
        made("fp32")[1].load_state_dict(state)


# Checkpoints between layouts, in both forms.


def optimizer_of(layout, form):
    model, told = layouts.build(layout, torch.bfloat16)
    return model, layouts.optimizer_of(model, told, "muon", master=form)


def save_and_resume(layout, form, folder, load):
    from test_checkpoint import _dcp

    model, optimizer = optimizer_of(layout, form)
    if load:
        _dcp(model, optimizer, folder, False, load=True)
    layouts.steps(model, optimizer, *((11, 20) if load else (1, 10)))
    if not load:
        _dcp(model, optimizer, folder, False, load=False)
        return None
    return but_masters(layouts.digest(model, optimizer)[1])


@pytest.mark.parametrize(
    "saved, loaded", [("fsdp3", "tp2"), ("ddp2", "hsdp"), ("fsdp_tp", "fsdp2")]
)
def test_checkpoints_between_layouts(tmp_path, saved, loaded):
    folder = str(tmp_path / "saved")
    how = ("remainder", folder)
    spawn(layouts.LAYOUTS[saved], save_and_resume, saved, *how, False)
    for got in spawn(
        layouts.LAYOUTS[loaded], save_and_resume, loaded, *how, True
    ):
        assert got == but_masters(alone()["muon"][1])


def per_rank(layout, first, then):
    model, optimizer = optimizer_of(layout, first)
    layouts.steps(model, optimizer, 1, 10)
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    model, optimizer = optimizer_of(layout, then)
    optimizer.load_state_dict(state[1])
    model.load_state_dict(state[0])
    layouts.steps(model, optimizer, 11, 20)
    return but_masters(layouts.digest(model, optimizer)[1])


@pytest.mark.parametrize("layout", ["ddp2", "fsdp3", "tp2"])
@pytest.mark.parametrize(
    "first, then", [("fp32", "remainder"), ("remainder", "fp32")]
)
def test_state_dicts_of_ranks_in_the_other_form(layout, first, then):
    for got in spawn(layouts.LAYOUTS[layout], per_rank, layout, first, then):
        assert got == but_masters(alone()["muon"][1])


def rank_zero_alone():
    """Under DDP a state dict is no collective."""
    model, optimizer = optimizer_of("ddp2", "remainder")
    layouts.steps(model, optimizer, 1, 2)
    return len(optimizer.state_dict()["state"]) if dist.get_rank() == 0 else 0


def test_under_ddp_rank_zero_saves_alone():
    assert spawn(2, rank_zero_alone)[0] > 0
