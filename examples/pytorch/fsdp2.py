"""FSDP2: every rank has a part of each weight; owners compute whole matrices.

torchrun --standalone --nproc-per-node 2 examples/pytorch/fsdp2.py [plan.html]
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import canzona
import tiny

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))

model = tiny.Model()
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = canzona.Muon(model, lr=1e-2, wire="bf16")
tiny.train(model, optimizer, range(60), rank, data=rank)

if rank == 0 and len(sys.argv) > 1:
    with open(sys.argv[1], "w") as f:
        f.write(optimizer.plan.html())
    print(f"the plan's picture is in {sys.argv[1]}")
dist.destroy_process_group()
