"""A GPT of Megatron-Core on its mock data, with Megatron's own training loop.

    torchrun --standalone --nproc-per-node 2 -m canzona.megatron \\
        examples/pytorch/megatron_gpt.py --tensor-model-parallel-size 2 \\
        --optimizer muon --muon-tp-mode duplicated --use-distributed-optimizer

Nothing here is canzona's: without `-m canzona.megatron`, Megatron's own Muon
trains. Needs GPUs, and pip install 'canzona[megatron]'.
"""

import sys

import torch
from megatron.core.datasets import blended_megatron_dataset_builder, utils
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
from megatron.core.enums import ModelType
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
from megatron.training import argument_utils, arguments, get_args, pretrain

SMALL = """--num-layers 2 --hidden-size 128 --num-attention-heads 8 --swiglu
    --group-query-attention --num-query-groups 4 --normalization RMSNorm
    --disable-bias-linear --position-embedding-type rope --seq-length 64
    --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 8
    --train-iters 20 --lr 1e-3 --bf16 --mock-data --split 100,0,0
    --tokenizer-type NullTokenizer --vocab-size 128 --log-interval 5
    --eval-iters 0 --eval-interval 1000 --transformer-impl local
    --no-masked-softmax-fusion --no-persist-layer-norm --no-rope-fusion
    --no-gradient-accumulation-fusion""".split()


def model(pre_process=True, post_process=True, **_):
    args = get_args()
    return GPTModel(
        argument_utils.core_transformer_config_from_args(args),
        get_gpt_layer_local_spec(normalization=args.normalization),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.seq_length,
        pre_process=pre_process,
        post_process=post_process,
        position_embedding_type=args.position_embedding_type,
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
    return blended_megatron_dataset_builder.BlendedMegatronDatasetBuilder(
        MockGPTDataset, samples, lambda: True, config
    ).build()


def forward(batches, model):
    of = {k: v.cuda() for k, v in next(batches).items()}
    words = (of["tokens"], of["position_ids"], of["attention_mask"])

    def loss(output):
        mask = of["loss_mask"].view(-1)
        total, tokens = (output.float().view(-1) * mask).sum(), mask.sum().int()
        told = torch.stack([total.detach(), tokens.float()])
        return total, tokens, {"lm loss": told}

    return model(*words, labels=of["labels"]), loss


if __name__ == "__main__":
    # The wheel has its helpers compiled, and no Makefile to do it again.
    utils.compile_helpers = lambda: None
    sys.argv[1:1] = SMALL
    args = arguments.parse_and_validate_args()
    settings = argument_utils.pretrain_cfg_container_from_args(args)
    kind, datasets.is_distributed = ModelType.encoder_or_decoder, True
    pretrain(settings, datasets, kind, forward, model)
