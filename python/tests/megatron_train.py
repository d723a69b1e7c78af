"""A small GPT of Megatron-Core, trained on ranks with its own optimizers or
with canzona.megatron: on a GPU that ranks share, or on CPUs (megatron_cpu.py).

build(tp=2, opt="muon", …) and train() are as Megatron's own training loop: DDP
with its buffers, get_megatron_optimizer, finalize_model_grads."""

import hashlib

import torch
import torch.distributed as dist
import torch.nn.functional as F

SMALL = dict(
    num_layers=4,
    hidden_size=128,
    ffn_hidden_size=384,
    num_attention_heads=8,
    num_query_groups=4,
    kv_channels=16,
)
QWEN3_1_7B = dict(
    num_layers=4,
    hidden_size=2048,
    ffn_hidden_size=6144,
    num_attention_heads=16,
    num_query_groups=8,
    kv_channels=128,
)


def start(tp=1, pp=1, ep=1, etp=None):
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import (
        model_parallel_cuda_manual_seed,
    )

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp,
        create_gloo_process_groups=False,
    )
    torch.manual_seed(1234)
    model_parallel_cuda_manual_seed(1234)


def config_of(sizes, tp, pp, ep, etp, experts, bf16, cpu_init):
    from megatron.core.transformer.transformer_config import TransformerConfig

    dtype = torch.bfloat16 if bf16 else torch.float32
    moe = {}
    if experts:
        moe = dict(
            num_moe_experts=experts,
            moe_router_topk=2,
            expert_model_parallel_size=ep,
            expert_tensor_parallel_size=etp,
            moe_token_dispatcher_type="alltoall",
            moe_ffn_hidden_size=sizes["ffn_hidden_size"],
        )
    return TransformerConfig(
        **sizes,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        bf16=bf16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        use_cpu_initialization=cpu_init,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        **moe,
    )


def build(
    tp=1,
    pp=1,
    ep=1,
    etp=None,
    experts=0,
    layer_wise=True,
    layout=True,
    overlap=False,
    sizes=SMALL,
    vocab=512,
    seq=64,
    bf16=True,
    cpu_init=True,
    dist_opt=False,
    **options,
):
    """A model under DDP, and its optimizer."""
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
    )
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    from megatron.core.optimizer.layer_wise_optimizer import (
        LayerWiseDistributedOptimizer,
        tag_params_for_buffer_routing,
    )
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer.module import Float16Module

    start(tp, pp, ep, etp)
    config = config_of(sizes, tp, pp, ep, etp, experts, bf16, cpu_init)
    module = GPTModel(
        config,
        get_gpt_layer_local_spec(
            normalization="RMSNorm", num_experts=experts or None
        ),
        vocab_size=vocab,
        max_sequence_length=seq,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    ).cuda()
    if bf16:
        module = Float16Module(config, module)
    sharded = dist_opt or (layer_wise and layout)
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap,
        use_distributed_optimizer=sharded,
        bucket_size=200_000 if overlap else None,
    )
    kwargs = {}
    if sharded:
        pgs = ProcessGroupCollection.use_mpu_process_groups()
        compute = DistributedOptimizer.compute_full_param_layout
        if layer_wise:
            tag_params_for_buffer_routing([module])
            compute = LayerWiseDistributedOptimizer.compute_full_param_layout
        kwargs["full_param_layout"] = compute(
            [p for p in module.parameters() if p.requires_grad],
            ddp_config.bucket_size,
            pgs.dp_cp.size(),
            ddp_config,
            expert_data_parallel_world_size=pgs.expt_dp.size(),
        )
    model = DistributedDataParallel(config, ddp_config, module, **kwargs)
    options = {
        "optimizer": "muon",
        "muon_tp_mode": "duplicated",
        "muon_extra_scale_factor": 0.2,
        "clip_grad": 1.0,
        **options,
    }
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            lr=1e-3,
            min_lr=0.0,
            weight_decay=0.01,
            bf16=bf16,
            params_dtype=torch.bfloat16 if bf16 else torch.float32,
            use_distributed_optimizer=dist_opt,
            use_layer_wise_distributed_optimizer=layer_wise,
            overlap_param_gather=ddp_config.overlap_param_gather,
            **options,
        ),
        [model],
        use_gloo_process_groups=False,
    )
    return model, optimizer


def batch(step, vocab=512, seq=64, of=8):
    """This data-parallel rank's tokens, of four batches that come again."""
    from megatron.core import parallel_state

    g = torch.Generator().manual_seed(1000 + step % 4)
    tokens = torch.randint(0, vocab, (of, seq + 1), generator=g)
    dp = parallel_state.get_data_parallel_world_size()
    rank = parallel_state.get_data_parallel_rank()
    mine = tokens[rank * of // dp : (rank + 1) * of // dp].cuda()
    at = torch.arange(seq, device=mine.device)
    mask = (at[None, :] > at[:, None])[None, None]
    position = at[None].expand(mine.shape[0], -1)
    return mine[:, :-1], position, mask, mine[:, 1:]


def gradients(model, step, vocab=512, seq=64):
    """Forward and backward of one step, pipelines included; the mean loss, on
    the last stage."""
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func

    tokens, position, mask, labels = batch(step, vocab, seq)

    def forward(_, model):
        out = model(tokens, position, mask, labels=labels)
        return out, lambda t: (t.float().mean(), {"loss": t.detach().float()})

    model.zero_grad_buffer()
    losses = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=None,
        model=[model],
        num_microbatches=1,
        seq_length=seq,
        micro_batch_size=tokens.shape[0],
        forward_only=False,
    )
    finalize_model_grads([model])
    return losses[0]["loss"].mean() if losses else None


def train(model, optimizer, first, last, vocab=512, seq=64):
    """Mean losses over data-parallel ranks, the same on all ranks."""
    from megatron.core import parallel_state

    found = []
    for step in range(first, last + 1):
        optimizer.zero_grad()
        loss = gradients(model, step, vocab, seq)
        ok, _, _ = optimizer.step()
        assert ok
        total = torch.zeros(2, device="cuda")
        if loss is not None:
            total += torch.stack([loss, torch.ones_like(loss)])
        dist.all_reduce(total)
        found.append(float(total[0] / total[1]))
    torch.cuda.synchronize()
    return found


def digest(model):
    """Of this rank's parameters."""
    h = hashlib.sha256()
    for _, p in sorted(model.named_parameters()):
        h.update(p.detach().float().cpu().numpy().tobytes())
    return h.hexdigest()[:12]
