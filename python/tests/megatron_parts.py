"""Stand-ins for Megatron-Core: tensors with its attributes, the table of
emerging optimizers, and the wrapper that makes fp32 masters."""

import contextlib
import dataclasses
import inspect
import sys
import types

import torch
import torch.distributed as dist

from layouts import numbers

# Shapes of whole matrices, the dimension that TP cuts, the stride, experts.
HEADS = (4, 2, 2)  # rows of q, k, v for each of four query groups
WHOLE = {
    "decoder.layers.0.self_attention.linear_qkv.weight": ((32, 16), 0, 1),
    "decoder.layers.0.self_attention.linear_proj.weight": ((16, 24), 1, 1),
    "decoder.layers.0.mlp.linear_fc1.weight": ((48, 16), 0, 2),
    "decoder.layers.0.mlp.router.weight": ((4, 16), -1, 1),
    "decoder.layers.0.mlp.experts.linear_fc1.weight": ((24, 16), 0, 2),
    "decoder.layers.0.mlp.experts.linear_fc2.weight": ((16, 12), 1, 1),
}
KINDS = {"qkv": 0, "gated": 2, "replicated": 3, "experts": 4}


def is_qkv(name):
    return "linear_qkv" in name


def alternating(whole):
    """[q; k; v] as Megatron stores it: q, k and v of a query group in turn."""
    rows = [n * 4 for n in HEADS]
    parts = [t.view(4, -1, t.shape[1]) for t in whole.split(rows)]
    return torch.cat(parts, 1).reshape(whole.shape)


def in_order(stored):
    """The same back."""
    of = stored.view(4, sum(HEADS), stored.shape[1])
    parts = of.split(list(HEADS), 1)
    return torch.cat([p.reshape(-1, stored.shape[1]) for p in parts])


def shard(name, whole, rank, size):
    _, dim, stride = WHOLE[name]
    if is_qkv(name):
        whole = alternating(whole)
    if dim < 0:
        return whole.clone()
    parts = [part.chunk(size, dim)[rank] for part in whole.chunk(stride, dim)]
    return torch.cat(parts, dim).contiguous()


def together(name, shards):
    """A whole matrix from the shards of all ranks."""
    _, dim, stride = WHOLE[name]
    if dim < 0:
        assert all(torch.equal(s, shards[0]) for s in shards)
        return shards[0]
    pieces = [[s.chunk(stride, dim)[i] for s in shards] for i in range(stride)]
    whole = torch.cat([torch.cat(of, dim) for of in pieces], dim)
    return in_order(whole) if is_qkv(name) else whole


def gradient(name, step, rank, size):
    return shard(name, numbers(name, step, WHOLE[name][0]), rank, size)


class Model(torch.nn.Module):
    """A chunk, of which only the names of parameters matter."""

    def __init__(self, names, rank, size, dtype=torch.float32):
        super().__init__()
        self.config = types.SimpleNamespace(rows=list(HEADS))
        self._named = []
        for name in names:
            p = torch.nn.Parameter(gradient(name, 0, rank, size).to(dtype))
            p.partition_dim, p.partition_stride = WHOLE[name][1:]
            p.expert_tp = "experts" in name
            if is_qkv(name):
                p.is_qkv = True
            self._named.append((f"module.module.{name}", p))

    def named_parameters(self, *_, **__):
        return iter(self._named)


class TensorParallelMuon(torch.optim.Optimizer):
    """With the arguments of Megatron's."""

    def __init__(
        self,
        params,
        lr=3e-4,
        momentum=0.95,
        nesterov=True,
        weight_decay=0.01,
        use_decoupled_weight_decay=True,
        split_qkv=False,
        is_qkv_fn=None,
        qkv_split_shapes=None,
        fp32_matmul_prec="medium",
        coefficient_type="quintic",
        num_ns_steps=5,
        scale_mode="spectral",
        extra_scale_factor=1.0,
        pg_collection=None,
        tp_mode="duplicated",
    ):
        super().__init__(params, dict(lr=lr))


def _to_kwargs(config, model_chunks, pg_collection):
    arguments = inspect.signature(TensorParallelMuon).parameters
    given = {}
    for name in arguments:
        for key in (f"muon_{name}", name):
            if name != "params" and hasattr(config, key):
                given.setdefault(name, getattr(config, key))
    given["is_qkv_fn"] = lambda p: getattr(p, "is_qkv", False)
    given["qkv_split_shapes"] = model_chunks[0].config.rows
    return {**given, "pg_collection": pg_collection}


@dataclasses.dataclass
class EmergingOptimizerEntry:
    optimizer_cls: type
    init_state_fn: object = None
    config_to_kwargs: object = None
    default_param_overrides: dict = dataclasses.field(default_factory=dict)


def config(**options):
    return types.SimpleNamespace(
        **{
            "lr": 1e-2,
            "weight_decay": 0.1,
            "optimizer_cuda_graph": False,
            "muon_momentum": 0.9,
            "muon_nesterov": True,
            "muon_split_qkv": True,
            "muon_scale_mode": "spectral",
            "muon_fp32_matmul_prec": "medium",
            "muon_coefficient_type": "quintic",
            "muon_num_ns_steps": 5,
            "muon_tp_mode": "duplicated",
            "muon_extra_scale_factor": 0.2,
            **options,
        }
    )


@contextlib.contextmanager
def megatron(
    version="0.19.2", entry=EmergingOptimizerEntry, cls=TensorParallelMuon
):
    """Modules by Megatron's names; yields its table."""
    table = {"muon": entry(cls, config_to_kwargs=_to_kwargs)}
    name = "megatron.core.optimizer.emerging_optimizers"
    made = {
        "megatron": types.ModuleType("megatron"),
        "megatron.core": types.ModuleType("megatron.core"),
        "megatron.core.optimizer": types.ModuleType("megatron.core.optimizer"),
        name: types.ModuleType(name),
    }
    made["megatron.core"].__version__ = version
    made[name]._EMERGING_OPTIMIZERS = table
    kept = {n: sys.modules.get(n) for n in made}
    sys.modules.update(made)
    try:
        yield table
    finally:
        import canzona.megatron

        canzona.megatron._replaced = None
        for n, module in kept.items():
            if module is None:
                del sys.modules[n]
            else:
                sys.modules[n] = module


def optimizer_of(table, of, model, group, params=None, more=()):
    """As Megatron makes it: groups by options, some of them empty."""
    params = (
        [p for _, p in model.named_parameters()] if params is None else params
    )
    groups = [
        {"params": params[:2], "lr": 1e-2, "weight_decay": 0.1},
        {"params": params[2:], "lr": 3e-3, "weight_decay": 0.0},
        {"params": [], "lr": 1.0, "weight_decay": 0.0},
    ]
    pgs = types.SimpleNamespace(tp=group, expt_tp=group)
    entry = table["muon"]
    kwargs = entry.config_to_kwargs(of, [model, *more], pgs)
    return entry.optimizer_cls(groups, **kwargs), entry.init_state_fn


def with_masters(optimizer):
    """As Float16OptimizerWithFloat16Params: fp32 clones take the places of
    parameters, without names and without requires_grad."""
    for group in optimizer.param_groups:
        for i, p in enumerate(group["params"]):
            master = p.detach().clone().float()
            for name in (
                "expert_tp",
                "is_qkv",
                "partition_dim",
                "partition_stride",
            ):
                if hasattr(p, name):
                    setattr(master, name, getattr(p, name))
            p.main_param = master
            group["params"][i] = master
            assert p not in optimizer.state


def members(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def step(optimizer, names, number, rank, size):
    for name, p in zip(names, members(optimizer)):
        p.grad = gradient(name, number, rank, size)
    optimizer.step()


def gathered(names, tensors, group):
    """Whole matrices by name."""
    found = {}
    for name, t in zip(names, tensors):
        everyones = [t]
        if group is not None:
            everyones = [None] * group.size()
            dist.all_gather_object(everyones, t.detach().clone(), group=group)
        found[name] = together(name, [t.detach() for t in everyones])
    return found
