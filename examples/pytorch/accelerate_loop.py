"""A loop of accelerate's with an optimizer of Canzona's, on DDP ranks.

torchrun --standalone --nproc-per-node 2 examples/pytorch/accelerate_loop.py
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator

import canzona
import tiny

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
model = tiny.Model()
# prepare() wraps the model in DDP; ranks that have it alike are named here.
shared = dist.group.WORLD if dist.is_initialized() else None
optimizer = canzona.Muon(model, lr=1e-2, replicas=shared)
model, optimizer = accelerator.prepare(model, optimizer)
rank = accelerator.process_index
for step in range(60):
    loss = tiny.loss_of(model, 1000 * step + rank)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    if rank == 0 and step in (0, 59):
        print(f"step {step:3}  loss {loss.item():.3f}", flush=True)
accelerator.end_training()
