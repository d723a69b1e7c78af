"""torchtitan's OptimizersContainer with an optimizer of Canzona's, on FSDP2.

torchrun --standalone --nproc-per-node 2 \
  examples/pytorch/torchtitan_container.py
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.optimizer import (
    OptimizersContainer,
    ParamGroupConfig,
)

import canzona
import tiny

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
folder = [sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()]
dist.broadcast_object_list(folder)


class Container(OptimizersContainer):
    """Knows optimizers of Canzona's by name."""

    @staticmethod
    def _resolve_optimizer_factory(name):
        if name.startswith("canzona."):
            return getattr(canzona, name.removeprefix("canzona."))
        return OptimizersContainer._resolve_optimizer_factory(name)


# torchtitan hands on names and parameters, but no modules: an embedding whose
# name does not tell is named here.
CONFIG = Container.Config(
    param_groups=[
        ParamGroupConfig(
            pattern=r".*",
            optimizer_name="canzona.Muon",
            optimizer_kwargs={"lr": 1e-2},
        )
    ],
    implementation="for-loop",
    optimizer_factory_kwargs_by_name={
        "canzona.Muon": {"rules": {"places.weight": "adamw"}}
    },
)


def prepare():
    model = tiny.Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, Container(CONFIG, model_parts=[model])


model, optimizers = prepare()
tiny.train(model, optimizers, range(30), rank, data=rank)
dcp.save(
    {"model": model.state_dict(), "optimizer": optimizers.state_dict()},
    checkpoint_id=folder[0],
)

model, optimizers = prepare()
saved = {"model": model.state_dict(), "optimizer": optimizers.state_dict()}
dcp.load(saved, checkpoint_id=folder[0])
model.load_state_dict(saved["model"])
optimizers.load_state_dict(saved["optimizer"])
if rank == 0:
    print(f"resumed from {folder[0]}")
tiny.train(model, optimizers, range(30, 60), rank, data=rank)
dist.destroy_process_group()
