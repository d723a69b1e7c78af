"""A plugin that gives axolotl an optimizer of Canzona's.

Put this file on the PYTHONPATH, and into axolotl's configuration:

    plugins:
      - axolotl_plugin.CanzonaPlugin
    optimizer: adamw_torch      # the plugin's takes its place
    learning_rate: 1e-4
    weight_decay: 0.1

axolotl asks its plugins for an optimizer before it makes its own. Started as
below, this file imitates that by axolotl's interface; axolotl itself has not
been run with it.

torchrun --standalone --nproc-per-node 2 examples/pytorch/axolotl_plugin.py
"""

import types

import torch.distributed as dist

import canzona

try:
    from axolotl.integrations.base import BasePlugin
except ImportError:
    BasePlugin = object


class CanzonaPlugin(BasePlugin):
    def create_optimizer(self, cfg, trainer):
        # Plain tensors are wrapped in DDP later; DTensors say where they lie.
        shared = dist.group.WORLD if dist.is_initialized() else None
        return canzona.Muon(
            trainer.model,
            lr=cfg.learning_rate,
            weight_decay=cfg.weight_decay,
            replicas=shared,
        )


if __name__ == "__main__":
    import torch
    import tiny

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, model = dist.get_rank(), tiny.Model()
    trainer = types.SimpleNamespace(model=model)
    cfg = types.SimpleNamespace(learning_rate=1e-2, weight_decay=0.1)
    optimizer = CanzonaPlugin().create_optimizer(cfg, trainer)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    tiny.train(wrapped, optimizer, range(60), rank, data=rank)
    dist.destroy_process_group()
