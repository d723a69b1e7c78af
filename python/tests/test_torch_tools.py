"""torch.compile, activation checkpointing, no_sync and zero_grad beside a step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import canzona
import pytest
from conftest import spawn
from nets import same, values


class Block(nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        self.up, self.down = nn.Linear(8, 24), nn.Linear(24, 8, bias=False)
        self.recompute = recompute

    def inner(self, x):
        return x + self.down(self.up(x).relu())

    def forward(self, x):
        if self.recompute:
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)


class Net(nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block(recompute) for _ in range(2))
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(model, step):
    tokens = torch.arange(step, step + 20).view(4, 5) % 11
    return model(tokens).square().mean()


def train(model, optimizer, steps=4, set_to_none=True):
    for step in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model, step).backward()
        optimizer.step()


def plainly_trained():
    model = Net()
    optimizer = canzona.Muon(model, lr=0.02)
    train(model, optimizer)
    return model, optimizer


def compiled(model, per_block):
    """By a backend with the bits of the model itself."""
    if not per_block:
        return torch.compile(model, backend="aot_eager")
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model


@pytest.mark.parametrize("first", ["optimizer", "compile"])
@pytest.mark.parametrize("per_block", [False, True])
def test_a_compiled_model(per_block, first):
    plain, expected = plainly_trained()
    model = Net()
    if first == "optimizer":
        optimizer = canzona.Muon(model, lr=0.02)
        runs = compiled(model, per_block)
    else:
        runs = compiled(model, per_block)
        optimizer = canzona.Muon(runs, lr=0.02)
    train(runs, optimizer)
    assert optimizer.routing == expected.routing
    assert same(values(model), values(plain))
    assert list(optimizer.state_dict()["state"]) == list(
        expected.state_dict()["state"]
    )


def test_blocks_that_torch_compiles_one_by_one_as_modules():
    """torch.compile(block) wraps it, and puts _orig_mod into names."""
    plain, expected = plainly_trained()
    model = Net()
    for number, block in enumerate(model.blocks):
        model.blocks[number] = torch.compile(block, backend="aot_eager")
    optimizer = canzona.Muon(model, lr=0.02)
    assert optimizer.routing == expected.routing
    train(model, optimizer)
    assert same(values(model), values(plain))
    optimizer.load_state_dict(expected.state_dict())


def test_a_step_inside_a_compiled_function_runs_outside_of_its_graph():
    plain, _ = plainly_trained()
    model = Net()
    optimizer = canzona.Muon(model, lr=0.02)

    @torch.compile(backend="aot_eager")
    def whole_step(step):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()

    for step in range(4):
        whole_step(step)
    assert same(values(model), values(plain))


def test_activation_checkpointing():
    plain, _ = plainly_trained()
    model = Net(recompute=True)
    train(model, canzona.Muon(model, lr=0.02))
    assert same(values(model), values(plain))


def test_zero_grad_that_keeps_the_tensors():
    plain, _ = plainly_trained()
    model = Net()
    optimizer = canzona.Muon(model, lr=0.02)
    train(model, optimizer, steps=1)
    places = [p.grad.data_ptr() for p in model.parameters()]
    for step in range(1, 4):
        optimizer.zero_grad(set_to_none=False)
        assert all(not p.grad.any() for p in model.parameters())
        loss_of(model, step).backward()
        optimizer.step()
    assert places == [p.grad.data_ptr() for p in model.parameters()]
    assert same(values(model), values(plain))


def test_zero_grad_is_one_call():
    model = Net()
    optimizer = canzona.Muon(model, lr=0.02)
    loss_of(model, 0).backward()
    model.head.weight.grad = model.head.weight.grad.clone().requires_grad_()
    with torch.profiler.profile() as profile:
        optimizer.zero_grad(set_to_none=False)
    calls = {e.key: e.count for e in profile.key_averages()}
    assert calls["aten::_foreach_zero_"] == 1
    assert not model.head.weight.grad.requires_grad


def accumulated(layout):
    """Three micro-batches, synchronised with the last alone; weights of this
    rank, and of an optimizer that got the same gradients on one rank."""
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP

    import layouts

    model = Net()
    if layout == "ddp":
        runs = DDP(model)
    else:
        runs = fully_shard(model, mesh=layouts.mesh(dist.get_world_size()))
    alone = Net()
    alone_optimizer = canzona.Muon(alone, lr=0.02)
    optimizer = canzona.Muon(runs, lr=0.02)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(3):
            last = part == 2
            if layout == "fsdp2":
                runs.set_requires_gradient_sync(last)
            elif not last:
                with runs.no_sync():
                    loss_of(runs, 10 * step + part + dist.get_rank()).backward()
                continue
            loss_of(runs, 10 * step + part + dist.get_rank()).backward()
        for p, q in zip(model.parameters(), alone.parameters()):
            q.grad = layouts.whole(p.grad).clone()
        optimizer.step()
        alone_optimizer.step()
    return same(
        [layouts.whole(p) for p in model.parameters()], values(alone)
    ), [layouts.whole(p).tolist() for p in model.parameters()]


@pytest.mark.parametrize("layout", ["ddp", "fsdp2"])
def test_gradients_that_are_accumulated_without_synchronising(layout):
    first, second = spawn(2, accumulated, layout)
    assert first[0] and second[0]
    assert first[1] == second[1]
