"""Lightning with an optimizer of Canzona's, on two DDP ranks.

torchrun --standalone --nproc-per-node 2 examples/pytorch/lightning_module.py
"""

import os
import sys
import tempfile

import lightning
import torch
import torch.distributed as dist
import torch.nn.functional as F

import canzona
import tiny

torch.set_num_threads(1)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = tiny.Model()
        self.losses = []

    def training_step(self, batch, number):
        x, y = batch
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        # Lightning's DDP wraps this module, so its ranks are named here.
        shared = dist.group.WORLD if dist.is_initialized() else None
        return canzona.Muon(self, lr=1e-2, replicas=shared)


x, y = (torch.cat(of) for of in zip(*(tiny.batch(seed) for seed in range(60))))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(x, y), batch_size=16
)
module = Module()
trainer = lightning.Trainer(
    max_steps=60,
    max_epochs=2,
    accelerator="cpu",
    strategy="ddp",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(),
)
trainer.fit(module, loader)
if trainer.is_global_zero:
    print(f"loss {module.losses[0]:.3f}, then {module.losses[-1]:.3f}")
