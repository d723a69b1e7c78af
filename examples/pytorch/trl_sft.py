"""TRL's SFTTrainer with an optimizer of Canzona's, on DDP ranks.

torchrun --standalone --nproc-per-node 2 examples/pytorch/trl_sft.py
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from trl import SFTConfig, SFTTrainer

import canzona
import tiny

torch.set_num_threads(1)
torch.manual_seed(0)
words = {c: i for i, c in enumerate([*tiny.CHARACTERS, "<end>"])}
letters = Tokenizer(models.WordLevel(words, unk_token="<end>"))
letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=letters, eos_token="<end>", pad_token="<end>"
)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=words["<end>"],
        pad_token_id=words["<end>"],
    )
)
pieces = [x.tolist() for seed in range(64) for x in tiny.batch(seed)[0]]
arguments = SFTConfig(
    output_dir=sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(),
    max_steps=60,
    per_device_train_batch_size=8,
    logging_steps=10,
    save_strategy="no",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    report_to=[],
    disable_tqdm=True,
    lr_scheduler_type="constant",
)
# The trainer wraps the model in DDP later; ranks that have it alike are named
# here.
shared = dist.group.WORLD if dist.is_initialized() else None
optimizer = canzona.Muon(model, lr=1e-2, replicas=shared)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
trainer = SFTTrainer(
    model,
    arguments,
    train_dataset=Dataset.from_dict({"input_ids": pieces}),
    processing_class=tokenizer,
    optimizers=(optimizer, scheduler),
)
trainer.train()
if arguments.process_index == 0:
    losses = [e["loss"] for e in trainer.state.log_history if "loss" in e]
    print(f"loss {float(losses[0]):.3f}, then {float(losses[-1]):.3f}")
if dist.is_initialized():
    dist.destroy_process_group()
