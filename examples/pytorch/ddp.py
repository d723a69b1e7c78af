"""DistributedDataParallel: every rank has all weights; they share the work.

torchrun --standalone --nproc-per-node 2 examples/pytorch/ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import canzona
import tiny

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()

model = DDP(tiny.Model())
optimizer = canzona.Muon(model, lr=1e-2)
tiny.train(model, optimizer, range(60), rank, data=rank)

if rank == 0:
    print(optimizer.plan.explain())
dist.destroy_process_group()
