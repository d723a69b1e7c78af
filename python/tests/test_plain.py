"""Plain tensors of ranks that others need not know of, and those they must."""

import contextlib
import time
import warnings

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
    texts = [str(w.message) for w in caught if "canzona" in str(w.message)]
    return texts, layouts.digest(model, optimizer), optimizer.plan.json["world"]


def test_plain_tensors_are_updated_by_every_rank_with_one_warning():
    expected = layouts.train("one", "muon", count=3)
    for texts, got, world in spawn(2, plain):
        assert len(texts) == 1 and "replicas=group" in texts[0]
        assert got == expected and world == 1


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
        return canzona.Muon(model, **told).plan.json["world"]


def test_a_rank_with_plain_tensors_takes_part_if_it_names_itself():
    assert spawn(3, own_stage) == [2, 2, 1]


def owners(layout):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon")
    return optimizer.plan.json["owners"]


def test_replicas_share_the_work():
    assert set(spawn(3, owners, "ddp3")[0]) == {0, 1, 2}
