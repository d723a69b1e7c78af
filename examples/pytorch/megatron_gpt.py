"""A GPT of Megatron-Core on its mock data, with Megatron's own training loop.

    torchrun --standalone --nproc-per-node 2 -m canzona.megatron \\
        examples/pytorch/megatron_gpt.py --tensor-model-parallel-size 2 \\
        --optimizer muon --muon-tp-mode duplicated --use-distributed-optimizer

Nothing here is of canzona's: without `-m canzona.megatron`, Megatron's own Muon
trains. Needs GPUs, and pip install 'canzona[megatron]'.
"""

import sys
from functools import partial

import torch
from megatron.core.datasets import utils
from megatron.core.datasets.blended_megatron_dataset_builder import (
    BlendedMegatronDatasetBuilder,
)
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
from megatron.core.enums import ModelType
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
from megatron.training import get_args, pretrain
from megatron.training.argument_utils import (
    core_transformer_config_from_args,
    pretrain_cfg_container_from_args,
)
from megatron.training.arguments import parse_and_validate_args

SMALL = """--num-layers 2 --hidden-size 128 --num-attention-heads 8 --swiglu
    --group-query-attention --num-query-groups 4 --normalization RMSNorm
    --disable-bias-linear --position-embedding-type rope --seq-length 64
    --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 8
    --train-iters 20 --lr 1e-3 --bf16 --mock-data --split 100,0,0
    --tokenizer-type NullTokenizer --vocab-size 128 --eval-iters 0
    --transformer-impl local --no-masked-softmax-fusion --log-interval 5
    --no-persist-layer-norm --no-gradient-accumulation-fusion
    --attention-dropout 0 --hidden-dropout 0 --no-rope-fusion""".split()


def model(pre_process=True, post_process=True, **_):
    args = get_args()
    return GPTModel(
        core_transformer_config_from_args(args),
        get_gpt_layer_local_spec(normalization=args.normalization),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        position_embedding_type=args.position_embedding_type,
        share_embeddings_and_output_weights=False,
    )


def datasets(samples, **_):
    args = get_args()
    config = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        split=args.split,
        tokenizer=build_tokenizer(args),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
    )
    here = lambda: True  # every TP rank reads the same samples
    return BlendedMegatronDatasetBuilder(
        MockGPTDataset, samples, here, config
    ).build()


def loss_of(mask, output):
    losses, weights = output.float().view(-1), mask.float().view(-1)
    loss, tokens = (losses * weights).sum(), weights.sum().int()
    told = torch.stack([loss.detach(), tokens.float()])
    return loss, tokens, {"lm loss": told}


def forward(batches, model):
    batch = {k: v.cuda() for k, v in next(batches).items()}
    output = model(
        batch["tokens"],
        batch["position_ids"],
        batch["attention_mask"],
        labels=batch["labels"],
    )
    return output, partial(loss_of, batch["loss_mask"])


if __name__ == "__main__":
    # The wheel has its helpers compiled, and no Makefile to do it again.
    utils.compile_helpers = lambda: None
    sys.argv[1:1] = SMALL
    args = parse_and_validate_args()
    datasets.is_distributed = True
    pretrain(
        pretrain_cfg_container_from_args(args),
        datasets,
        ModelType.encoder_or_decoder,
        forward,
        model,
    )
