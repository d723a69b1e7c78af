"""An optimizer of Canzona's in verl's FSDP2 worker.

verl makes the class that its configuration names, from the parameters alone:

    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.optim.optimizer_impl=verl_worker
    actor_rollout_ref.actor.optim.optimizer=Muon
    actor_rollout_ref.actor.optim.lr=1e-6

Parameters have no names, so that embeddings and heads are told by their shape
here. Started as below, this file imitates what the worker does; verl itself has
not been run with it.

torchrun --standalone --nproc-per-node 2 examples/pytorch/verl_worker.py
"""

import importlib

import canzona

# Rows of the embedding and the head: the size of the vocabulary.
VOCABULARY = 151936


class Muon(canzona.Muon):
    def __init__(self, params, lr, betas=(0.9, 0.999), weight_decay=0.01):
        named, rules = [], {}
        for number, p in enumerate(params):
            name = f"parameter{number}"
            named.append((name, p))
            if p.dim() == 2 and p.shape[0] == VOCABULARY:
                rules[name] = "adamw"
        super().__init__(
            named,
            lr=lr,
            weight_decay=weight_decay,
            adamw={"betas": tuple(betas)},
            rules=rules,
        )


def build_optimizer(parameters, config):
    """As verl does it."""
    module = importlib.import_module(config["optimizer_impl"])
    kind = getattr(module, config["optimizer"])
    return kind(
        parameters,
        lr=config["lr"],
        betas=config["betas"],
        weight_decay=config["weight_decay"],
    )


if __name__ == "__main__":
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import tiny
    import verl_worker

    verl_worker.VOCABULARY = len(tiny.CHARACTERS)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, model = dist.get_rank(), tiny.Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = build_optimizer(
        model.parameters(),
        {
            "optimizer_impl": "verl_worker",
            "optimizer": "Muon",
            "lr": 1e-2,
            "betas": (0.9, 0.95),
            "weight_decay": 0.01,
        },
    )
    tiny.train(model, optimizer, range(60), rank, data=rank)
    dist.destroy_process_group()
