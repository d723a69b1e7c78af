"""Ranks: gradients, backward for real, plain tensors, bytes."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from conftest import spawn
from layouts import mesh, sharded

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


# Groups.


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


def groups_of_one():
    """Names and timeouts of an optimizer's groups, by their ranks."""
    from datetime import timedelta

    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=77))
    model, told = layouts.build("hsdp")
    optimizer = layouts.optimizer_of(model, told, "muon")
    assert optimizer.plan
    cpu = torch.device("cpu")
    return {
        members: (
            group.group_name,
            group._get_backend(cpu).options._timeout.total_seconds(),
        )
        for members, group in optimizer._groups.items()
    }


def test_groups_have_our_names_and_the_timeout_of_the_default_group():
    """torch has no public way to name a group (_run_exchange.py)."""
    everyones = spawn(4, groups_of_one)
    assert all(len(groups) > 1 for groups in everyones)
    for groups in everyones:
        for members, (name, seconds) in groups.items():
            assert name.startswith("canzona"), torch.__version__
            assert name.endswith(f"_{members}"), torch.__version__
            assert seconds == 77


def named_beside_another():
    """Another thread's group keeps the name that torch gives it."""
    import threading

    from canzona._run_exchange import _named_group

    names = []

    def make():
        names.append(dist.new_group([0]).group_name)

    with _named_group("ours"):
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        names.append(dist.new_group([0]).group_name)
    return names


def test_groups_of_other_threads_keep_their_names():
    (other, ours), *_ = spawn(1, named_beside_another)
    assert ours == "ours" and other != "ours"


def ignored_by_ddp():
    """DDP leaves one matrix alone, which every rank trains for itself."""
    rank, model = dist.get_rank(), layouts.fresh()
    ignore = nn.parallel.DistributedDataParallel
    ignore._set_params_and_buffers_to_ignore_for_model(model, ["up.weight"])
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = canzona.Muon(ddp)
    layouts.set_gradients(ddp, 1)
    model.up.weight.grad *= 1 - 2 * rank
    before = model.up.weight.detach().clone()
    optimizer.step()
    moved = model.up.weight.detach() - before
    found = [torch.empty_like(moved) for _ in range(2)]
    dist.all_gather(found, moved)
    return "up.weight" in optimizer._replicas, (found[0] + found[1]).abs().max()


def test_what_ddp_ignores_is_each_ranks_own():
    for is_shared, rest in spawn(2, ignored_by_ddp):
        assert not is_shared and rest < 1e-3


def closed_after_its_groups():
    model = sharded()
    optimizer = canzona.Muon(model)
    layouts.steps(model, optimizer, 1, 1)
    dist.destroy_process_group()
    optimizer.close()
    optimizer.close()
    with pytest.raises(canzona.UsageError, match="was closed"):
        optimizer.step()


def test_a_script_may_destroy_the_process_group_first():
    spawn(2, closed_after_its_groups)


def test_two_optimizers_at_once():
    assert spawn(2, two_optimizers) == [True, True]


def with_capacity(capacity):
    """Bits, and elements of the slots, under DDP."""
    model, told = layouts.build("ddp3")
    optimizer = layouts.optimizer_of(
        model, told, "muon", capacity_bytes=capacity
    )
    layouts.steps(model, optimizer, 1, 2)
    slots = optimizer._run._step.layout["slot_elements"]
    return layouts.digest(model, optimizer), slots


def test_a_capacity_that_is_given_is_kept_by_replicas():
    usual, kept = spawn(3, with_capacity, None), spawn(3, with_capacity, 500)
    for (bits, slots), (same, fewer) in zip(usual, kept):
        assert bits == same and fewer < slots


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


# Copies of optimizers whose plan changes.


def copied_and_unfrozen(layout, way):
    """A copy that gets more parameters goes on as the optimizer itself does."""
    import copy

    model, told = layouts.build(layout)
    names = ("up.weight", "qkv.weight")
    by_name = dict(layouts.named(model))
    for name in names:
        by_name[name].requires_grad_(False)
    optimizer = layouts.optimizer_of(model, told, "soap")
    layouts.steps(model, optimizer, 1, 3, leave_out=names)
    if way == "copied":
        model, optimizer = copy.deepcopy((model, optimizer))
        by_name = dict(layouts.named(model))
    for name in names:
        by_name[name].requires_grad_(True)
    layouts.steps(model, optimizer, 4, 6)
    return layouts.digest(model, optimizer)


@pytest.mark.parametrize("layout", ["ddp2", "ddp3"])
def test_copies_may_unfreeze_parameters(layout):
    world = layouts.LAYOUTS[layout]
    own = spawn(world, copied_and_unfrozen, layout, "own")
    assert spawn(world, copied_and_unfrozen, layout, "copied") == own
