"""Hugging Face's accelerate: prepare() of a model and an optimizer of ours."""

import importlib.util
import os
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
from conftest import spawn

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None,
    reason="accelerate is not installed",
)


def accelerator(way):
    """On CPU ranks; accelerate itself lets FSDP2 be chosen on GPUs alone."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    if way == "ddp":
        return Accelerator(cpu=True)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="no_wrap",
        cpu_ram_efficient_loading=False,
    )
    made = Accelerator(cpu=True, fsdp_plugin=plugin)
    made.state.fsdp_plugin = plugin
    made.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    return made


def trained(way, folder):
    """Losses, the plan's ranks, and a loss that is the same after a load."""
    from accelerate.state import AcceleratorState

    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    try:
        accelerate = accelerator(way)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        # Before the model is sharded, as their examples do.
        optimizer = canzona.Muon(
            model,
            lr=0.02,
            replicas=dist.group.WORLD if way == "ddp" else None,
        )
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
        model, optimizer, scheduler = accelerate.prepare(
            model, optimizer, scheduler
        )
        torch.manual_seed(dist.get_rank())
        x = torch.randn(64, 8)
        y = x[:, :4] * x[:, 4:]

        def train(count):
            losses = []
            for _ in range(count):
                loss = (model(x) - y).square().mean()
                optimizer.zero_grad()
                accelerate.backward(loss)
                accelerate.clip_grad_norm_(model.parameters(), 10.0)
                optimizer.step()
                scheduler.step()
                losses.append(loss.item())
            return losses

        losses = train(40)
        accelerate.save_state(folder)
        later = train(3)
        accelerate.load_state(folder)
        world = optimizer.optimizer.plan.world
        return losses, world, later == train(3)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("way", ["fsdp2", "ddp"])
def test_a_prepared_model_learns_and_goes_on(way, tmp_path):
    for losses, world, goes_on in spawn(2, trained, way, str(tmp_path)):
        assert losses[-1] < 0.7 * losses[0]
        assert world == 2
        assert goes_on
