"""Ranks that fail, differ or change: all hear of it."""

import os
import time
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from canzona import _layout
from conftest import errors, run_ranks, spawn
from layouts import sharded


def planned():
    return canzona.Muon(layouts.fresh(), replicas=[0, 1]).plan


def test_parameters_on_a_device_without_backend():
    for kind, text in errors(2, planned, backend="cuda:gloo"):
        assert kind == "UsageError" and "on cpu" in text
        assert "cpu:gloo,cuda:nccl" in text


def not_in_replicas():
    return canzona.Muon(layouts.fresh(), replicas=[1 - dist.get_rank()]).plan


def test_replicas_without_this_rank():
    for kind, text in errors(2, not_in_replicas):
        assert kind == "UsageError" and "but not this one" in text


def made_before_sharding(looked):
    from torch.distributed.fsdp import fully_shard

    model = layouts.fresh()
    optimizer = canzona.Muon(model)
    if looked:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of plain tensors
            optimizer.plan
    fully_shard(model, mesh=layouts.mesh(2))
    layouts.set_gradients(model, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


@pytest.mark.parametrize("looked", [False, True])
def test_an_optimizer_made_before_sharding_is_refused(looked):
    for kind, text in errors(2, made_before_sharding, looked):
        assert kind == "UsageError" and "parameter up.weight: " in text
        assert "make the optimizer after fully_shard" in text


def broken(when):
    model = sharded()
    optimizer = canzona.Muon(model)
    layouts.steps(model, optimizer, 1, 2)
    if dist.get_rank() == 1:
        os._exit(3)
    time.sleep(0.5)
    layouts.set_gradients(model, 3)
    texts = []
    for _ in range(2):
        try:
            optimizer.step()
        except Exception as e:
            texts.append((type(e).__name__, str(e)))
    return texts


def test_a_rank_that_dies_ends_the_optimizer():
    answers = run_ranks(2, broken, 3)
    assert answers[1][:2] == ("error", "Died")
    (_, first), (kind, second) = answers[0][1]
    assert first.startswith("optimizer step, look at gradients:")
    assert kind == "Error" and "start again from a checkpoint" in second


def caught_twice(optimizer):
    """What two steps raise: (class, text) each."""
    caught = []
    for _ in range(2):
        try:
            optimizer.step()
            caught.append(None)
        except Exception as error:
            caught.append((type(error).__name__, str(error)))
    return caught


def factors_not_finite():
    model = sharded()
    optimizer = canzona.SOAP(
        model, nonfinite="propagate", precondition_frequency=1
    )
    layouts.steps(model, optimizer, 1, 2)
    layouts.set_gradients(model, 3)
    _layout.local(model.up.weight.grad).fill_(float("nan"))
    owner = next(
        row["owner"]
        for row in optimizer.plan.audit
        if row["name"] == "up.weight"
    )
    return caught_twice(optimizer), owner


def test_a_rank_that_cannot_compute_ends_the_optimizer_on_all():
    for rank, ((first, second), owner) in enumerate(
        spawn(2, factors_not_finite)
    ):
        assert first[0] == "NumericalError" and "not finite" in first[1]
        if rank != owner:
            assert first[1].startswith(f"rank {owner} failed in the middle")
        assert second[0] == "Error" and "from a checkpoint" in second[1]


def injected(layout, call, kind, clip):
    """Rank 1 of several fails in a call to the library."""
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon", clip_norm=clip)
    layouts.steps(model, optimizer, 1, 2)
    layouts.set_gradients(model, 3)
    if dist.get_rank() == 1:
        step = optimizer._run._step
        usual = getattr(step, call)

        def fails(*arguments):
            usual(*arguments)
            raise kind("as asked for")

        setattr(step, call, fails)
    return caught_twice(optimizer)


@pytest.mark.parametrize(
    "layout, call, kind",
    [
        ("fsdp3", "run", RuntimeError),
        ("ddp3", "run", MemoryError),
        ("hsdp", "run", RuntimeError),
        ("fsdp3", "end", canzona.NumericalError),
        ("fsdp3", "squares", RuntimeError),
        ("fsdp3", "clip", MemoryError),
        ("fsdp3", "judge", canzona.UsageError),
    ],
)
def test_failures_of_one_rank_are_raised_on_all(layout, call, kind):
    answers = spawn(layouts.LAYOUTS[layout], injected, layout, call, kind, 1.0)
    told = {RuntimeError: "Error"}.get(kind, kind.__name__)
    for rank, (first, second) in enumerate(answers):
        assert "as asked for" in first[1], first
        assert first[0] == (kind.__name__ if rank == 1 else told)
        assert rank == 1 or first[1].startswith("rank 1 failed in the middle")
        assert second[0] == "Error" and "from a checkpoint" in second[1]


def refused_at_begin(call):
    """Rank 1 fails before anything changes: all raise, and may go on."""
    model = sharded()
    optimizer = canzona.Muon(model)
    layouts.steps(model, optimizer, 1, 2)
    before = layouts.digest(model, optimizer)
    layouts.set_gradients(model, 3)
    step = optimizer._run._step
    if dist.get_rank() == 1:

        def fails(*_):
            delattr(step, call)
            raise canzona.UsageError("as asked for")

        setattr(step, call, fails)
    try:
        optimizer.step()
    except canzona.UsageError as error:
        assert layouts.digest(model, optimizer) == before
        layouts.steps(model, optimizer, 3, 3)
        return str(error), layouts.digest(model, optimizer)


@pytest.mark.parametrize("call", ["begin", "look"])
def test_failures_before_anything_changes_leave_the_optimizer_usable(call):
    good = spawn(2, muon_steps, 3)
    answers = spawn(2, refused_at_begin, call)
    assert [a[0] for a in answers] == ["rank 1: as asked for", "as asked for"]
    assert [a[1] for a in answers] == good


def out_of_memory():
    """Rank 1 has no memory for a plan's states, then for one more group."""
    model = sharded()
    optimizer = canzona.Muon(model)
    caught = []

    def tried(call):
        usual = canzona._run_memory.RunMemory._make_memory

        def fails(*_):
            raise MemoryError("as asked for")

        if dist.get_rank() == 1:
            canzona._run_memory.RunMemory._make_memory = fails
        try:
            call()
        except MemoryError as error:
            caught.append(str(error))
        finally:
            canzona._run_memory.RunMemory._make_memory = usual

    layouts.set_gradients(model, 1)
    tried(optimizer.step)
    layouts.steps(model, optimizer, 1, 2)
    more = nn.Parameter(layouts.numbers("more", 0, (4, 4)))
    group = {"params": [("more", more)], "lr": 0.0}
    tried(lambda: optimizer.add_param_group(group))
    layouts.steps(model, optimizer, 3, 3)
    return caught, layouts.digest(model, optimizer)


def test_a_rank_without_memory_for_a_plan_ends_nothing():
    good = spawn(2, muon_steps, 3)
    answers = spawn(2, out_of_memory, timeout=300)
    for rank, (caught, digest) in enumerate(answers):
        said = "as asked for" if rank == 1 else "rank 1: as asked for"
        assert caught == [said, said] and digest == good[rank]


def muon_steps(count):
    model = sharded()
    optimizer = canzona.Muon(model)
    layouts.steps(model, optimizer, 1, count)
    return layouts.digest(model, optimizer)


def other_order():
    model = nn.Module()
    model.a, model.b = nn.Linear(4, 4), nn.Linear(4, 4)
    named = list(model.named_parameters())
    if dist.get_rank() == 1:
        named = named[2:] + named[:2]
    return canzona.Muon(named, replicas=dist.group.WORLD).plan


def other_options():
    model = layouts.fresh()
    return canzona.Muon(
        model,
        replicas=dist.group.WORLD,
        momentum=0.9 if dist.get_rank() else 0.95,
    ).plan


def other_nodes():
    return canzona.Muon(
        layouts.fresh(),
        replicas=dist.group.WORLD,
        ranks_per_node=1 + dist.get_rank(),
    ).plan


def meta_on_one_rank():
    model = sharded()
    if dist.get_rank() == 1:
        model.to("meta")
    return canzona.Muon(model).plan


@pytest.mark.parametrize(
    "function, words",
    [
        (other_order, ["different models", "a.weight", "b.weight"]),
        (other_options, ["different options", "0.95", "0.9"]),
        (other_nodes, ["different options", "ranks_per_node is 1 and 2"]),
        (meta_on_one_rank, ["meta device", "to_empty"]),
    ],
)
def test_ranks_that_differ_are_refused_everywhere(function, words):
    for kind, text in errors(2, function):
        assert kind == "UsageError", text
        for word in words:
            assert word in text


# Parameters that are unfrozen.


def unfrozen(layout, everywhere):
    names = ("up.weight", "up.bias", "qkv.weight")
    model, told = layouts.build(layout)
    by_name = dict(layouts.named(model))
    for name in names:
        by_name[name].requires_grad_(False)
    optimizer = layouts.optimizer_of(model, told, "soap")
    layouts.steps(model, optimizer, 1, 2, leave_out=names)
    if everywhere or dist.get_rank() == 1:
        for name in names:
            by_name[name].requires_grad_(True)
    else:
        layouts.set_gradients(model, 3, leave_out=names)
        return optimizer.step()
    layouts.steps(model, optimizer, 3, 4)
    return layouts.digest(model, optimizer)


def never_frozen():
    model, told = layouts.build("one")
    optimizer = layouts.optimizer_of(model, told, "soap")
    names = ("up.weight", "up.bias", "qkv.weight")
    layouts.steps(model, optimizer, 1, 2, leave_out=names)
    layouts.steps(model, optimizer, 3, 4)
    return layouts.digest(model, optimizer)


@pytest.mark.parametrize("layout", ["one", "ddp2", "shared2", "fsdp3"])
def test_unfrozen_parameters_are_trained_on_all_ranks(layout):
    world = layouts.LAYOUTS[layout]
    found = spawn(world, unfrozen, layout, True, group=world > 1)
    assert found == [never_frozen()] * world


def test_parameters_unfrozen_on_some_ranks_are_an_error_on_all():
    for kind, text in errors(2, unfrozen, "ddp2", False):
        assert kind == "UsageError", text
        assert "parameter qkv.weight: required no gradient at first" in text
        assert "now on ranks [1], but not on ranks [0]" in text


def unfrozen_in_one_stage():
    """A pipeline of two ranks and of one, whose first stage alone unfreezes
    parameters; the last rank has left meanwhile."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    last = dist.get_rank() == 2
    model, told = layouts.fresh(), {"replicas": [2]} if last else {}
    if not last:
        fully_shard(model, mesh=DeviceMesh("cpu", [0, 1]))
    by_name = dict(layouts.named(model))
    names = ("up.weight", "up.bias", "qkv.weight")
    for name in names:
        by_name[name].requires_grad_(False)
    optimizer = layouts.optimizer_of(model, told, "soap")
    layouts.steps(model, optimizer, 1, 2, leave_out=names)
    if last:
        return None
    for name in names:
        by_name[name].requires_grad_(True)
    layouts.steps(model, optimizer, 3, 4)
    return {n: p.to_local().detach() for n, p in by_name.items()}


def test_a_stage_that_unfreezes_parameters_waits_for_no_other():
    found = spawn(3, unfrozen_in_one_stage, timeout=300)
    assert found[2] is None
    model, told = layouts.build("one")
    optimizer = layouts.optimizer_of(model, told, "soap")
    names = ("up.weight", "up.bias", "qkv.weight")
    layouts.steps(model, optimizer, 1, 2, leave_out=names)
    layouts.steps(model, optimizer, 3, 4)
    for name, p in layouts.named(model):
        parts = [part for part in (found[0][name], found[1][name]) if len(part)]
        assert torch.cat(parts).equal(p), name
