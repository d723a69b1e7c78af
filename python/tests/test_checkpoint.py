"""Checkpoints between layouts: 10 + 10 steps are 20, bit for bit."""

import functools
import os

import pytest
import torch
import torch.distributed as dist

import canzona
import layouts
from conftest import spawn

# Layouts with states of every kind, uneven and empty pieces, replicas.
SOME = [
    "one",
    "ddp2",
    "fsdp3",
    "fsdp4",
    "columns2",
    "hsdp",
    "tp2",
    "fsdp_tp",
    "experts",
]
RULES = ["muon", "soap", "shampoo", "adamw"]


@functools.cache
def twenty(rule):
    return layouts.train("one", rule)


def _dcp(model, optimizer, folder, flat, load):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    state = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(
            model, optimizer, options=options
        ),
    }
    if not load:
        dcp.save(state, checkpoint_id=folder)
        return
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(
        model, optimizer, state["optimizer"], options=options
    )


def save(layout, folder, flat=False, rules=RULES):
    for rule in rules:
        model, told = layouts.build(layout)
        optimizer = layouts.optimizer_of(model, told, rule)
        layouts.steps(model, optimizer, 1, 10)
        _dcp(model, optimizer, f"{folder}/{rule}", flat, load=False)


def resume(layout, folders, flat=False, rules=RULES):
    answers = {}
    for folder in folders:
        for rule in rules:
            model, told = layouts.build(layout)
            optimizer = layouts.optimizer_of(model, told, rule)
            _dcp(model, optimizer, f"{folder}/{rule}", flat, load=True)
            layouts.steps(model, optimizer, 11, 20)
            answers[folder, rule] = layouts.digest(model, optimizer)
    return answers


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dcp")
    for layout in SOME:
        spawn(layouts.LAYOUTS[layout], save, layout, str(folder / layout))
    return folder


@pytest.mark.parametrize("layout", SOME)
def test_every_layout_goes_on_from_every_layouts_checkpoint(saved, layout):
    folders = [str(saved / other) for other in SOME]
    rules = RULES if layout in ("one", "fsdp3") else ["soap"]
    for answers in spawn(
        layouts.LAYOUTS[layout],
        resume,
        layout,
        folders,
        False,
        rules,
        timeout=900,
    ):
        for (folder, rule), got in answers.items():
            assert got == twenty(rule), (os.path.basename(folder), rule)


@pytest.mark.parametrize("layout", ["ddp2", "fsdp3", "hsdp"])
def test_flattened_state_dicts(tmp_path, layout):
    spawn(layouts.LAYOUTS[layout], save, layout, str(tmp_path), True)
    for other in ("one", "fsdp2"):
        for answers in spawn(
            layouts.LAYOUTS[other], resume, other, [str(tmp_path)], True
        ):
            for (_, rule), got in answers.items():
                assert got == twenty(rule), rule


def full(layout, path, rule, load):
    """Whole state dicts on rank 0, as people hand them on."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, rule)
    if not load:
        layouts.steps(model, optimizer, 1, 10)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = (
            get_model_state_dict(model, options=options),
            get_optimizer_state_dict(model, optimizer, options=options),
        )
        if layout == "one" or dist.get_rank() == 0:
            torch.save(state, path)
            return sorted(
                f"{n} {k}" for n, s in state[1]["state"].items() for k in s
            )
        return None
    rank = 0 if layout == "one" else dist.get_rank()
    spread = layout != "one"
    state = torch.load(path) if rank == 0 or not spread else ({}, {})
    options = StateDictOptions(
        full_state_dict=True, broadcast_from_rank0=spread
    )
    set_model_state_dict(model, state[0], options=options)
    set_optimizer_state_dict(model, optimizer, state[1], options=options)
    layouts.steps(model, optimizer, 11, 20)
    return layouts.digest(model, optimizer)


@pytest.mark.parametrize("rule", ["muon", "soap"])
@pytest.mark.parametrize("layout", ["ddp2", "fsdp3", "fsdp_tp"])
def test_full_state_dicts_are_complete(tmp_path, layout, rule):
    path = str(tmp_path / "full.pt")
    keys = spawn(layouts.LAYOUTS[layout], full, layout, path, rule, False)[0]
    model, told = layouts.build("one")
    optimizer = layouts.optimizer_of(model, told, rule)
    layouts.steps(model, optimizer, 1, 1)
    names = optimizer._names()
    assert keys == sorted(
        f"{names[i]} {k}"
        for i, s in optimizer.state_dict()["state"].items()
        for k in s
    )
    for other in ("one", "fsdp2", "ddp3"):
        if other == "one":
            # In this process there is no group to ask torch's functions for.
            continue
        for got in spawn(layouts.LAYOUTS[other], full, other, path, rule, True):
            assert got == twenty(rule), other


def per_rank(layout, rule, path, load):
    """optimizer.state_dict() and torch.save by every rank."""
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, rule)
    file = f"{path}.{dist.get_rank()}"
    if not load:
        layouts.steps(model, optimizer, 1, 10)
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        return None
    weights, state = torch.load(file, weights_only=False)
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    layouts.steps(model, optimizer, 11, 20)
    return layouts.digest(model, optimizer)


@pytest.mark.parametrize("layout", ["ddp2", "fsdp3"])
def test_state_dicts_of_every_rank(tmp_path, layout):
    for rule in ("muon", "soap"):
        path = str(tmp_path / rule)
        world = layouts.LAYOUTS[layout]
        spawn(world, per_rank, layout, rule, path, False)
        for got in spawn(world, per_rank, layout, rule, path, True):
            assert got == twenty(rule)


def consolidated(layout, rule, path):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, rule)
    layouts.steps(model, optimizer, 1, 10)
    refused = ""
    if told.get("share_states"):
        try:
            optimizer.state_dict()
        except canzona.UsageError as e:
            refused = str(e)
        assert "consolidate(to=0)" in refused
    optimizer.consolidate(to=0)
    if dist.get_rank() == 0:
        torch.save((model.module.state_dict(), optimizer.state_dict()), path)
    else:
        with pytest.raises(canzona.UsageError, match="rank 0"):
            optimizer.state_dict()


def load_whole(layout, rule, path):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, rule)
    weights, state = torch.load(path)
    (model if layout == "one" else model.module).load_state_dict(weights)
    optimizer.load_state_dict(state)
    layouts.steps(model, optimizer, 11, 20)
    return layouts.digest(model, optimizer)


@pytest.mark.parametrize("rule", RULES)
def test_shared_states_are_consolidated(tmp_path, rule):
    path = str(tmp_path / "whole.pt")
    spawn(2, consolidated, "shared2", rule, path)
    assert load_whole("one", rule, path) == twenty(rule)
    for layout in ("shared3", "ddp2"):
        for got in spawn(
            layouts.LAYOUTS[layout], load_whole, layout, rule, path
        ):
            assert got == twenty(rule), layout


def resume_before_first_step(layout, path):
    """A state dict that torch's functions ask a fresh optimizer for."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, told = layouts.build(layout)
    before = {n: layouts.whole(p).clone() for n, p in layouts.named(model)}
    optimizer = layouts.optimizer_of(model, told, "soap")
    state = get_optimizer_state_dict(model, optimizer)
    assert state["state"]["up.weight"]["step"] == 0
    for n, p in layouts.named(model):
        assert torch.equal(before[n], layouts.whole(p))
        assert p.grad is None
    return sorted(state["state"]["up.weight"])


def test_fresh_optimizers_have_states_to_load_into():
    keys, _ = spawn(2, resume_before_first_step, "fsdp2", "")
    assert {"L", "Q_L", "R", "Q_R", "exp_avg", "step"} <= set(keys)


def one_ranks_mistake():
    model, told = layouts.build("fsdp2")
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2)
    before = layouts.digest(model, optimizer)
    layouts.steps(model, optimizer, 3, 3)
    state = optimizer.state_dict()
    layouts.steps(model, optimizer, 4, 4)
    after = layouts.digest(model, optimizer)
    if dist.get_rank() == 1:
        state["state"][0]["momentum_buffer"] = None
    try:
        optimizer.load_state_dict(state)
    except canzona.UsageError as error:
        assert layouts.digest(model, optimizer) == after != before
        return str(error)


def test_a_mistake_in_one_ranks_state_dict_is_raised_on_all():
    first, second = spawn(2, one_ranks_mistake)
    assert second.startswith("load_state_dict(): state 'momentum_buffer' of")
    assert first == "rank 1: " + second


def whole_states(path):
    """Ten steps of plain Muon on one rank, and what they saved."""
    model, told = layouts.build("one")
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 10)
    torch.save((model.state_dict(), optimizer.state_dict()), path)
    return model, optimizer.state_dict()


def begin_second_moments(layout, path, missing):
    """Loads into NorMuon; the digests before and after ten more steps."""
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(
        model, told, "muon", second_moment="normuon", beta2=0.5
    )
    weights, states = torch.load(path)
    shaped = model.module if hasattr(model, "module") else model
    with torch.no_grad():
        for name, p in shaped.named_parameters():
            p.copy_(layouts.like(p, weights[name]))
    layouts.steps(model, optimizer, 21, 22)  # what loading must forget
    with torch.no_grad():
        for name, p in shaped.named_parameters():
            p.copy_(layouts.like(p, weights[name]))
    optimizer.load_state_dict(states, missing=missing)
    assert optimizer.param_groups[0]["second_moment"] == "normuon"
    assert optimizer.param_groups[0]["beta2"] == 0.5
    before = layouts.digest(model, optimizer)
    layouts.steps(model, optimizer, 11, 20)
    return before, layouts.digest(model, optimizer)


def test_states_that_were_not_saved_begin_if_asked(tmp_path):
    path = str(tmp_path / "plain.pt")
    model, saved = whole_states(path)
    with pytest.raises(canzona.UsageError) as e:
        begin_second_moments("one", path, "error")
    for word in ("lacks state 'second_moment'", "missing='init'"):
        assert word in str(e.value)
    with pytest.raises(canzona.UsageError, match="missing='maybe'"):
        begin_second_moments("one", path, "maybe")

    # The same by hand: the saved states and zeros beside them.
    other = layouts.optimizer_of(
        model, {}, "muon", second_moment="normuon", beta2=0.5
    )
    by_name = {
        n: saved["state"][k]
        for g in saved["param_groups"]
        for n, k in zip(g["param_names"], g["params"])
    }
    assert other.plan
    for name, p in model.named_parameters():
        for key, value in by_name[name].items():
            other.state[p][key].copy_(value)
    expected = layouts.digest(model, other)
    layouts.steps(model, other, 11, 20)
    expected = expected, layouts.digest(model, other)
    assert begin_second_moments("one", path, "init") == expected
    for layout in ("fsdp3", "ddp2", "shared2", "fsdp_tp"):
        for got in spawn(
            layouts.LAYOUTS[layout], begin_second_moments, layout, path, "init"
        ):
            assert got == expected, layout


@pytest.mark.parametrize("steps", [0, 1])
def test_a_preset_without_states_stays_if_asked(steps):
    options = dict(lr=0.01, momentum=0.9)
    model = torch.nn.Linear(8, 8, bias=False)
    plain = canzona.Muon(model, **options)
    if steps:
        model.weight.grad = torch.ones_like(model.weight)
        plain.step()
    other = canzona.Muon(model, preset="muonh", lr=0.02)
    before = dict(other.param_groups[0])
    other.load_state_dict(plain.state_dict(), missing="init")
    group = other.param_groups[0]
    assert group["lr"] == 0.01
    changed = {k for k in before if group[k] is not before[k]}
    assert changed <= {"lr", "initial_lr", "params", "param_names"}
    assert group["preset"] == "muonh"


def ranks_that_disagree(path):
    rank = dist.get_rank()
    return begin_second_moments("fsdp2", path, "init" if rank else "error")


def test_ranks_that_disagree_on_missing_states_all_refuse(tmp_path):
    path = str(tmp_path / "plain.pt")
    whole_states(path)
    from conftest import errors

    for kind, text in errors(2, ranks_that_disagree, path):
        assert kind == "UsageError" and "lacks state 'second_moment'" in text
