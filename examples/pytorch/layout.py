"""A layout that `canzona plan --mesh auto` prints: its flags go here.

torchrun --standalone --nproc-per-node 4 examples/pytorch/layout.py --layout hsdp:2 --share-states

The model is a small one on CPUs; put your own in its place, its blocks and its
device.
"""

import argparse
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import canzona
import tiny

parser = argparse.ArgumentParser()
parser.add_argument("--layout", default="fsdp2", help="ddp, fsdp2 or hsdp:N")
parser.add_argument("--tp", type=int, default=1, help="tensor parallelism")
parser.add_argument("--share-states", action="store_true")
parser.add_argument(
    "--keep-parameters",
    action="store_true",
    help="gathered once in a step, not in every micro-batch",
)
parser.add_argument("--recompute", action="store_true", help="whole layers")
parser.add_argument("--micro-batches", type=int, default=1)
parser.add_argument("--rule", default="muon")
parser.add_argument("--steps", type=int, default=60)
asked, _ = parser.parse_known_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if world % asked.tp:
    raise SystemExit(f"--tp {asked.tp} does not divide {world} ranks")

# Ranks count tp fastest, as the plan does; then those that share a copy.
homes = world // asked.tp
kind, _, shared = asked.layout.partition(":")
shared = int(shared) if kind == "hsdp" else 1 if kind == "ddp" else homes
if homes % shared:
    raise SystemExit(f"--layout hsdp:{shared} does not divide {homes} ranks")
mesh = init_device_mesh(
    "cpu",
    (homes // shared, shared, asked.tp),
    mesh_dim_names=("replicate", "shard", "tp"),
)
data = rank // asked.tp

BLOCK = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
BLOCK.update({name: RowwiseParallel() for name in ("o", "down")})


def prepare(model):
    """The model under the layout, block by block."""
    is_ddp = kind == "ddp" and asked.tp == 1  # which takes no DTensors
    over = mesh["shard"] if kind == "fsdp2" else mesh["replicate", "shard"]
    how = {"mesh": over, "reshard_after_forward": not asked.keep_parameters}
    for block in model.blocks:
        if asked.tp > 1:
            parallelize_module(block, mesh["tp"], BLOCK)
        if asked.recompute:
            block.forward = partial(
                checkpoint, block.forward, use_reentrant=False
            )
        if not is_ddp:
            fully_shard(block, **how)
    if is_ddp:
        return DistributedDataParallel(model)
    return fully_shard(model, **how)


model = prepare(tiny.Model(width=max(64, 16 * asked.tp)))
options = {"share_states": True} if asked.share_states else {}
if asked.tp > 1:  # what it does not cut is alike on these ranks
    options["replicas"] = mesh["tp"].get_group()
rules = {name.lower(): getattr(canzona, name) for name in canzona.__all__}
optimizer = rules[asked.rule](model, lr=1e-2, **options)

for step in range(asked.steps):
    optimizer.zero_grad()
    total = 0.0
    for number in range(asked.micro_batches):
        if asked.keep_parameters:
            last = number == asked.micro_batches - 1
            model.set_reshard_after_backward(last)
        seed = (1000 * step + data) * asked.micro_batches + number
        loss = tiny.loss_of(model, seed) / asked.micro_batches
        loss.backward()
        total += loss.item()
    optimizer.step()
    if rank == 0 and (step % 10 == 0 or step == asked.steps - 1):
        print(f"step {step:3}  loss {total:.3f}", flush=True)
if rank == 0:
    print(f"{asked.layout} over {mesh}")
dist.destroy_process_group()
