"""Plain tensors of ranks that others need not know of, and those they must."""

import contextlib
import time
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import canzona
import layouts
from canzona import _meeting
from conftest import errors, spawn
from layouts import mesh, sharded


def plain():
    model = layouts.fresh()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = layouts.optimizer_of(model, {}, "muon")
        layouts.steps(model, optimizer, 1, 3)
    found = [w for w in caught if "canzona" in str(w.message)]
    texts = [f"{Path(w.filename).name}: {w.message}" for w in found]
    return texts, layouts.digest(model, optimizer), optimizer.plan.world


def test_plain_tensors_are_updated_by_every_rank_with_one_warning():
    """Rank 0 alone prints it, and it points at the line that steps."""
    expected = layouts.train("one", "muon", count=3)
    (texts, *first), (none, *second) = spawn(2, plain)
    assert first == second == [expected, 1]
    assert len(texts) == 1 and not none
    assert "replicas=group" in texts[0]
    assert texts[0].startswith("layouts.py: ")


def mixed(clip):
    from torch.distributed.fsdp import fully_shard

    model = layouts.fresh()
    fully_shard(model.up, mesh=mesh(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = layouts.optimizer_of(model, {}, "soap", clip_norm=clip)
        layouts.steps(model, optimizer, 1, 4)
    return layouts.digest(model, optimizer)


def test_plain_tensors_beside_sharded_ones():
    expected = layouts.train("one", "soap", count=4)
    assert spawn(2, mixed, None) == [expected] * 2
    for kind, text in errors(2, mixed, 1.0):
        assert kind == "UsageError" and "replicas=group" in text


@contextlib.contextmanager
def patience(seconds):
    """Of ranks that wait for one which updates its parameters for itself."""
    usual, _meeting.PATIENCE = _meeting.PATIENCE, seconds
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _meeting.PATIENCE = usual


def plain_on_rank_1():
    """Rank 1 has left its model unsharded, and steps for itself."""
    with patience(0.2):
        if dist.get_rank() == 0:
            return canzona.Muon(sharded()).plan
        model = layouts.fresh()
        optimizer = canzona.Muon(model)
        while True:  # others tell it
            layouts.steps(model, optimizer, 1, 1)
            time.sleep(0.05)


def test_plain_tensors_where_others_have_sharded_ones():
    for kind, text in errors(2, plain_on_rank_1):
        assert kind == "UsageError", text
        assert "parameter up.weight: is a plain tensor on rank 1" in text
        assert "on rank 0 (a DTensor" in text


def alone_then_together():
    """A copy of the model that rank 0 updates for itself comes first."""
    with patience(300):
        if dist.get_rank() == 0:
            assert layouts.train("one", "muon", count=3)
        found = layouts.train("fsdp2", "muon", count=3)
        if dist.get_rank() == 1:  # nobody else steps, and nobody need
            assert layouts.train("one", "muon", count=3) == found
        return found


def test_a_rank_may_have_optimizers_of_its_own():
    expected = layouts.train("one", "muon", count=3)
    assert spawn(2, alone_then_together) == [expected] * 2


def own_stage():
    """A pipeline whose second stage has no other rank."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model, told = layouts.fresh(), {}
    if dist.get_rank() < 2:
        fully_shard(model, mesh=DeviceMesh("cpu", [0, 1]))
    else:
        told["replicas"] = [2]
    with patience(300):
        return canzona.Muon(model, **told).plan.world


def test_a_rank_with_plain_tensors_takes_part_if_it_names_itself():
    assert spawn(3, own_stage) == [2, 2, 1]


def owners(layout):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon")
    return optimizer.plan.json["decisions"]["owners"]


def test_replicas_share_the_work():
    assert set(spawn(3, owners, "ddp3")[0]) == {0, 1, 2}


# Tensors of a rank's own: replicas=[rank].


def experts_of_its_own(rule, replicas, clip=None, leave_out=()):
    """A dense part under FSDP2 and experts that each rank has for itself; the
    norm, and what is left of each rank's experts."""
    from torch.distributed.fsdp import fully_shard

    rank = dist.get_rank()
    model = layouts.fresh()
    fully_shard(
        model,
        mesh=mesh(dist.get_world_size()),
        ignored_params={model.experts.w},
    )
    told = {"replicas": replicas(rank)} if replicas else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = layouts.optimizer_of(model, told, rule, clip_norm=clip)
        for step in (1, 2, 3):
            set_own_gradients(model, step, rank)
            if (rank, step) in leave_out:
                model.experts.w.grad = None
            optimizer.step()
    return model, optimizer


def set_own_gradients(model, step, rank):
    layouts.set_gradients(model, step)
    model.experts.w.grad = layouts.numbers(f"own{rank}", step, (4, 6, 8))


def alone(rule, rank, leave_out=()):
    """A rank's experts, updated by an optimizer that has nothing else."""
    model = layouts.fresh()
    optimizer = layouts.optimizer_of(
        [("experts.w", model.experts.w)], {}, rule, splits={}
    )
    for step in (1, 2, 3):
        set_own_gradients(model, step, rank)
        if (rank, step) in leave_out:
            model.experts.w.grad = None
        optimizer.step()
    return model.experts.w.detach()


def itself(rank):
    return [rank]


def by_pattern(rank):
    return {"experts.*": [rank]}


def norm_of_own(rule, replicas):
    model, optimizer = experts_of_its_own(rule, replicas, clip=1e6)
    return optimizer.grad_norm


def test_the_norm_counts_tensors_of_a_ranks_own_on_each_rank():
    model = layouts.fresh()
    layouts.set_gradients(model, 3)
    squares = sum(
        p.grad.double().square().sum()
        for n, p in layouts.named(model)
        if n != "experts.w"
    )
    for rank in range(2):
        own = layouts.numbers(f"own{rank}", 3, (4, 6, 8))
        squares += own.double().square().sum()
    for rule in ("adamw", "muon"):
        for replicas in (itself, by_pattern):
            for norm in spawn(2, norm_of_own, rule, replicas):
                assert abs(norm - squares.sqrt().item()) < 1e-3 * norm


def test_norms_that_are_not_clear_are_refused():
    for rule in ("adamw", "muon"):
        for kind, text in errors(2, norm_of_own, rule, None):
            assert kind == "UsageError"
            assert "experts.w" in text and "replicas=[rank]" in text


def weights_of_own(rule, leave_out):
    model, _ = experts_of_its_own(rule, itself, leave_out=leave_out)
    return model.experts.w.detach()


def test_a_gradient_of_a_ranks_own_tensor_is_its_own_matter():
    """It is missing on rank 1 in two steps, and nobody minds."""
    leave_out = {(1, 1), (1, 3)}
    for rule in ("adamw", "muon", "soap"):
        for rank, found in enumerate(spawn(3, weights_of_own, rule, leave_out)):
            assert found.equal(alone(rule, rank, leave_out)), (rule, rank)


def resumed(rule, how):
    """Two steps, a state dict that another optimizer loads, a third step."""
    model, optimizer = experts_of_its_own(rule, itself)
    rank, weights = dist.get_rank(), model.experts.w.detach().clone()
    names = optimizer.state_dict()["param_groups"][0]["param_names"]
    assert f"experts.w@rank{rank}" in names and "experts.w" not in names
    if how == "whole":
        optimizer.consolidate(to=0)
    saved = [optimizer.state_dict() if how == "own" or rank == 0 else None]
    if how == "whole":
        dist.broadcast_object_list(saved, src=0)
    again = layouts.optimizer_of(model, {"replicas": [rank]}, rule)
    if how == "others":
        for group in saved[0]["param_groups"] if saved[0] else ():
            group["param_names"] = [
                n.replace(f"@rank{rank}", f"@rank{rank + 5}")
                for n in group["param_names"]
            ]
        dist.broadcast_object_list(saved, src=0)
    again.load_state_dict(saved[0])
    found = []
    for of in (optimizer, again):
        with torch.no_grad():
            model.experts.w.copy_(weights)
        set_own_gradients(model, 4, rank)
        of.step()
        found.append(model.experts.w.detach().clone())
    return found


def test_state_dicts_have_the_rank_in_the_name_of_its_own_tensors():
    for rule in ("adamw", "soap"):
        for how in ("own", "whole"):
            for rank, (usual, again) in enumerate(spawn(2, resumed, rule, how)):
                assert usual.equal(again), (rule, how, rank)


def test_state_dicts_of_other_ranks_own_tensors_are_refused():
    for kind, text in errors(2, resumed, "muon", "others"):
        assert kind == "UsageError" and "experts.w" in text
        assert "no saved state" in text


def test_own_tensors_of_another_run_load_where_their_name_is_clear():
    model = layouts.fresh()
    optimizer = layouts.optimizer_of(model, {}, "muon")
    layouts.steps(model, optimizer, 1, 2)
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        group["param_names"] = [f"{n}@rank2" for n in group["param_names"]]
    other = layouts.optimizer_of(layouts.fresh(), {}, "muon")
    other.load_state_dict(saved)
    assert other.state_dict()["param_groups"][0]["param_names"] == [
        n.removesuffix("@rank2")
        for n in saved["param_groups"][0]["param_names"]
    ]
    group = saved["param_groups"][0]
    group["param_names"][1] = group["param_names"][0].replace("2", "3")
    with pytest.raises(canzona.UsageError, match="two ranks' own tensors"):
        other.load_state_dict(saved)


def unfrozen_beside_own():
    """Replicas that share states, and experts of a rank's own."""
    rank, model = dist.get_rank(), layouts.fresh()
    model.up.weight.requires_grad_(False)
    told = {"replicas": {"*": dist.group.WORLD, "experts.*": [rank]}}
    optimizer = layouts.optimizer_of(model, told, "muon", share_states=True)
    for step in (1, 2, 3):
        set_own_gradients(model, step, rank)
        if step < 3:
            model.up.weight.grad = None
        optimizer.step()
    return model.experts.w.detach()


def test_unfreezing_keeps_the_states_of_a_ranks_own_tensors():
    for rank, found in enumerate(spawn(2, unfrozen_beside_own)):
        assert found.equal(alone("muon", rank)), rank
