"""Tensor parallelism inside FSDP2: matrices are cut in both dimensions.

torchrun --standalone --nproc-per-node 4 examples/pytorch/tp_fsdp2.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import canzona
import tiny

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh(
    "cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp")
)

model = tiny.Model()
for block in model.blocks:
    parallelize_module(
        block,
        mesh["tp"],
        {
            "q": ColwiseParallel(),
            "k": ColwiseParallel(),
            "v": ColwiseParallel(),
            "o": RowwiseParallel(),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        },
    )
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
# What tensor parallelism does not cut is alike on the ranks of mesh["tp"].
optimizer = canzona.SOAP(
    model, lr=1e-2, precondition_frequency=5, replicas=mesh["tp"].get_group()
)
tiny.train(model, optimizer, range(60), rank, data=mesh["dp"].get_local_rank())

if rank == 0:
    print(optimizer.routing)
dist.destroy_process_group()
