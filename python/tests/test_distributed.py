"""Ranks: gradients that differ, groups that fail, backward for real."""

import contextlib
import os
import time
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from canzona import _meeting
from conftest import errors, run_ranks, spawn


def mesh(*shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def sharded():
    from torch.distributed.fsdp import fully_shard

    model = layouts.fresh()
    return fully_shard(model, mesh=mesh(dist.get_world_size()))


# Gradients.


def unlike(what):
    model, told = layouts.build("ddp2" if what == "ddp" else "fsdp2")
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2)
    before = layouts.digest(model, optimizer)
    layouts.set_gradients(model, 3)
    parameters = dict(layouts.named(model))
    if dist.get_rank() == 1:
        p = parameters["down.weight"]
        if what in ("missing", "ddp"):
            p.grad = None
        elif what == "shape":
            change(p, torch.zeros(3, 3))
        elif what == "dtype":
            change(p, p.grad.to(torch.float64))
        elif what == "plain":
            change(p, torch.zeros(p.shape))
    try:
        optimizer.step()
        caught = None
    except canzona.UsageError as e:
        caught = str(e)
    assert layouts.digest(model, optimizer) == before
    # It goes on with gradients that are all right.
    layouts.set_gradients(model, 3)
    optimizer.step()
    return caught, layouts.digest(model, optimizer)[0]


def change(p, gradient):
    """As a custom hook might leave it; torch's own setter refuses."""
    type(p).grad.__delete__(p)
    object.__setattr__(p, "_other", gradient)
    p.__class__ = _with_gradient(p.__class__)


def _with_gradient(kind):
    class Changed(kind):
        @property
        def grad(self):
            return self._other

        @grad.setter
        def grad(self, value):
            self.__class__ = kind
            self.grad = value

    return Changed


@pytest.mark.parametrize(
    "what, words",
    [
        ("missing", ["down.weight", "ranks [0]", "None on ranks [1]"]),
        ("ddp", ["down.weight", "ranks [0]", "None on ranks [1]"]),
        ("shape", ["down.weight", "[3, 3]"]),
        ("dtype", ["down.weight", "float64"]),
        ("plain", ["down.weight", "plain tensor"]),
    ],
)
def test_gradients_of_one_rank_that_differ(what, words):
    answers = spawn(2, unlike, what)
    for caught, _ in answers:
        for word in words:
            assert word in (caught or "nothing"), caught
    good = spawn(2, good_steps, "ddp2" if what == "ddp" else "fsdp2")
    assert [a[1] for a in answers] == good


def good_steps(layout):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 3)
    return layouts.digest(model, optimizer)[0]


def missing_everywhere(layout):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2)
    layouts.steps(
        model,
        optimizer,
        3,
        4,
        leave_out=("down.weight", "norm.bias", "odd.weight"),
    )
    layouts.steps(model, optimizer, 5, 6)
    return layouts.digest(model, optimizer)


def test_gradients_missing_on_all_ranks():
    expected = missing_everywhere("one")
    for layout in ("ddp2", "fsdp3", "hsdp"):
        for got in spawn(layouts.LAYOUTS[layout], missing_everywhere, layout):
            assert got == expected, layout


def nonfinite(mode):
    model = sharded()
    optimizer = canzona.Muon(model, nonfinite=mode)
    layouts.steps(model, optimizer, 1, 2)
    before = layouts.digest(model, optimizer)
    layouts.set_gradients(model, 3)
    if dist.get_rank() == 1:
        dict(layouts.named(model))["qkv.weight"].grad._local_tensor[0, 0] = (
            float("nan")
        )
    caught = ""
    try:
        optimizer.step()
    except canzona.NumericalError as e:
        caught = str(e)
    assert layouts.digest(model, optimizer) == before
    return caught, optimizer.skipped_steps


def test_nonfinite_gradients_are_seen_alike():
    assert spawn(2, nonfinite, "skip") == [("", 1)] * 2
    for caught, skipped in spawn(2, nonfinite, "raise"):
        assert "qkv.weight" in caught and skipped == 1


def clipped(layout):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "adamw", clip_norm=0.5)
    norms = []
    for step in range(1, 4):
        layouts.set_gradients(model, step)
        optimizer.step()
        norms.append(optimizer.grad_norm)
    return norms, layouts.digest(model, optimizer)[0]


def test_norms_are_the_same_numbers_everywhere():
    expected = clipped("one")
    for layout in ("ddp2", "fsdp3", "hsdp", "tp2", "fsdp_tp"):
        for got in spawn(layouts.LAYOUTS[layout], clipped, layout):
            assert got == expected, layout


# Backward.


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def learns(way, rule):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from torch.nn.parallel import DistributedDataParallel as DDP

    model = Trained()
    if way == "ddp":
        model = DDP(model)
    elif way == "fsdp":
        fully_shard(model, mesh=mesh(2))
    else:
        parallelize_module(
            model, mesh(2), {"up": ColwiseParallel(), "down": RowwiseParallel()}
        )
    options = {"replicas": dist.group.WORLD} if way == "tp" else {}
    optimizer = layouts.optimizer_of(model, options, rule, splits={})
    torch.manual_seed(0 if way == "tp" else dist.get_rank())
    x = torch.randn(32, 8)
    y = x[:, :4] * x[:, 4:]
    losses = []
    for _ in range(40):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("way", ["ddp", "fsdp", "tp"])
@pytest.mark.parametrize("rule", ["muon", "soap", "shampoo", "adamw"])
def test_models_learn(way, rule):
    for losses in spawn(2, learns, way, rule):
        assert losses[-1] < 0.7 * losses[0]


class Linear(nn.Module):
    """Its gradients do not depend on its weights, and are small integers."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 12, bias=False)
        self.odd = nn.Linear(8, 7)

    def forward(self, x):
        up = torch.arange(12.0) % 5 - 2
        odd = torch.arange(7.0) % 3 - 1
        return (self.up(x) * up).sum() + (self.odd(x) * odd).sum()


def exact_sums(layout, rule):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP

    world = layouts.LAYOUTS[layout]
    rank = dist.get_rank() if world > 1 else 0
    model = Linear()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(layouts.numbers(name, 0, p.shape))
    if layout.startswith("ddp"):
        model = DDP(model)
    elif layout == "hsdp":
        fully_shard(model, mesh=mesh(2, 2, names=("r", "s")))
    elif world > 1:
        fully_shard(model, mesh=mesh(world))
    optimizer = layouts.optimizer_of(model, {}, rule, splits={})
    for step in range(20):
        x = (layouts.numbers("x", step, (8, 8)) * 4).round()
        optimizer.zero_grad()
        (model(x.chunk(world)[rank]) * world).backward()
        optimizer.step()
    return layouts.digest(model, optimizer)


@pytest.mark.parametrize("rule", ["muon", "soap", "shampoo", "adamw"])
def test_one_hash_through_real_backward(rule):
    expected = exact_sums("one", rule)
    for layout in ("ddp2", "ddp4", "fsdp2", "fsdp4", "hsdp"):
        for got in spawn(layouts.LAYOUTS[layout], exact_sums, layout, rule):
            assert got == expected, layout


def scaled():
    """One rank's gradients are not finite: all leave the step out."""
    model = sharded()
    optimizer = canzona.Muon(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.zeros(()))
    unchanged = []
    for step in range(1, 4):
        layouts.set_gradients(model, step)
        if step == 2 and dist.get_rank() == 1:
            dict(layouts.named(model))["up.weight"].grad._local_tensor[0] = (
                float("inf")
            )
        before = layouts.digest(model, optimizer)
        scaler.step(optimizer)
        scaler.update()
        unchanged.append(before == layouts.digest(model, optimizer))
    return unchanged, scaler.get_scale()


def test_grad_scaler_and_ranks():
    assert spawn(2, scaled) == [([False, True, False], 2.0)] * 2


# Plain tensors.


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
    for kind, text in errors(2, plain_on_rank_1, timeout=60):
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
    assert spawn(3, own_stage, timeout=60) == [2, 2, 1]


def owners(layout):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon")
    return optimizer.plan.json["owners"]


def test_replicas_share_the_work():
    assert set(spawn(3, owners, "ddp3")[0]) == {0, 1, 2}


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
    for kind, text in errors(2, unfrozen, "ddp2", False, timeout=60):
        assert kind == "UsageError", text
        assert "parameter qkv.weight: required no gradient at first" in text
        assert "now on ranks [1], but not on ranks [0]" in text


# Groups.


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
    layouts._layout.local(model.up.weight.grad).fill_(float("nan"))
    owner = next(
        row["owner"]
        for row in optimizer.plan.audit
        if row["name"] == "up.weight"
    )
    return caught_twice(optimizer), owner


def test_a_rank_that_cannot_compute_ends_the_optimizer_on_all():
    for rank, ((first, second), owner) in enumerate(
        spawn(2, factors_not_finite, timeout=60)
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
    answers = spawn(
        layouts.LAYOUTS[layout], injected, layout, call, kind, 1.0, timeout=60
    )
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
    answers = spawn(2, refused_at_begin, call, timeout=60)
    assert [a[0] for a in answers] == ["rank 1: as asked for", "as asked for"]
    assert [a[1] for a in answers] == good


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


def one_after_another():
    """Process groups before and after optimizers that were closed."""
    import pytest

    groups = dist.distributed_c10d._world.pg_map
    model = sharded()
    before = len(groups)
    for step in range(1, 4):
        optimizer = canzona.Muon(model)
        layouts.set_gradients(model, step)
        optimizer.step()
        optimizer.close()
        with pytest.raises(canzona.UsageError, match="closed"):
            optimizer.step()
    return len(groups) - before


def test_closed_optimizers_leave_no_process_group():
    assert spawn(2, one_after_another) == [0, 0]


def two_optimizers():
    """Two models, each with an optimizer, stepping in turns and threads."""
    import threading

    first, second = sharded(), sharded()
    a, b = canzona.Muon(first), canzona.Muon(second)
    for step in range(1, 4):
        for model in (first, second):
            layouts.set_gradients(model, step)
        if step == 1:
            a.step()
            b.step()
            continue
        threads = [threading.Thread(target=o.step) for o in (a, b)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return layouts.digest(first, a)[0] == layouts.digest(second, b)[0]


def in_groups_of_its_own(count):
    for _ in range(count):
        dist.new_group([0])
    found = layouts.train("fsdp2", "muon", count=2)
    model, told = layouts.build("fsdp2")
    if dist.get_rank() == 1:
        dist.new_group([1], use_local_synchronization=True)
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2)
    assert layouts.digest(model, optimizer) == found
    return found


def test_a_rank_may_be_in_more_groups_than_others():
    assert len(set(f[0] for f in spawn(2, in_groups_of_its_own, 3))) == 1


def test_two_optimizers_at_once():
    assert spawn(2, two_optimizers) == [True, True]


def bytes_sent(layout, wire):
    """Bytes that cross between ranks, counted at torch.distributed."""
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon", wire=wire)
    layouts.steps(model, optimizer, 1, 1)
    sent = 0
    all_to_all, broadcast = dist.all_to_all_single, dist.broadcast

    def counted(got, give, receive, send, **options):
        nonlocal sent
        own = send[dist.get_group_rank(options["group"], dist.get_rank())]
        sent += (sum(send) - own) * give.element_size()
        return all_to_all(got, give, receive, send, **options)

    def passed_on(block, root, group=None, **options):
        nonlocal sent
        if root == dist.get_rank():
            sent += (
                (dist.get_world_size(group) - 1)
                * block.numel()
                * block.element_size()
            )
        return broadcast(block, root, group=group, **options)

    dist.all_to_all_single, dist.broadcast = counted, passed_on
    try:
        layouts.set_gradients(model, 2)
        optimizer.step()
    finally:
        dist.all_to_all_single, dist.broadcast = all_to_all, broadcast
    return sent, optimizer.plan.json["predicted"]["bytes_per_rank_max"]


@pytest.mark.parametrize("layout", ["fsdp3", "ddp2", "hsdp"])
@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_bytes_are_the_plans(layout, wire):
    answers = spawn(layouts.LAYOUTS[layout], bytes_sent, layout, wire)
    assert max(a[0] for a in answers) == answers[0][1]
