"""Hugging Face's Trainer with an optimizer of Canzona's, on DDP ranks.

torchrun --standalone --nproc-per-node 2 examples/pytorch/hf_trainer.py
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

import canzona
import tiny

torch.set_num_threads(1)
torch.manual_seed(0)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
arguments = TrainingArguments(
    output_dir=folder,
    max_steps=60,
    per_device_train_batch_size=8,
    logging_steps=10,
    save_strategy="no",
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    lr_scheduler_type="constant",
)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tiny.CHARACTERS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
)
data = [
    {"input_ids": x, "labels": x}
    for seed in range(64)
    for x in tiny.batch(seed)[0]
]
# Trainer wraps the model in DDP later; ranks that have it alike are named here.
shared = dist.group.WORLD if dist.is_initialized() else None
optimizer = canzona.Muon(model, lr=1e-2, replicas=shared)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
trainer = Trainer(
    model, arguments, train_dataset=data, optimizers=(optimizer, scheduler)
)
trainer.train()
if arguments.process_index == 0:
    losses = [e["loss"] for e in trainer.state.log_history if "loss" in e]
    print(f"loss {float(losses[0]):.3f}, then {float(losses[-1]):.3f}")
if dist.is_initialized():
    dist.destroy_process_group()
