"""HSDP, saved halfway by torch.distributed.checkpoint, resumed as plain FSDP2.

torchrun --standalone --nproc-per-node 4 examples/pytorch/hsdp_resume.py FOLDER
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import canzona
import tiny

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
folder = [sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()]
dist.broadcast_object_list(folder)


def prepare(mesh):
    model = tiny.Model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, canzona.Muon(model, lr=1e-2)


def states(model, optimizer):
    weights, of_optimizer = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": of_optimizer}


copies = init_device_mesh(
    "cpu", (2, world // 2), mesh_dim_names=("replicate", "shard")
)
model, optimizer = prepare(copies)
tiny.train(model, optimizer, range(30), rank, data=rank)
dcp.save(states(model, optimizer), checkpoint_id=folder[0])

model, optimizer = prepare(init_device_mesh("cpu", (world,)))
saved = states(model, optimizer)
dcp.load(saved, checkpoint_id=folder[0])
set_state_dict(
    model,
    optimizer,
    model_state_dict=saved["model"],
    optim_state_dict=saved["optimizer"],
)
if rank == 0:
    print(f"resumed from {folder[0]}")
tiny.train(model, optimizer, range(30, 60), rank, data=rank)
dist.destroy_process_group()
