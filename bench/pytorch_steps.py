#!/usr/bin/env python3
"""Optimizer steps in PyTorch, of others and ours, taking turns.

  pytorch_steps.py                                  Muon in one process
  pytorch_steps.py --layout ddp --ranks 2           every rank has everything
  pytorch_steps.py --layout fsdp2 --ranks 4         fully_shard
  pytorch_steps.py --device cuda --layers 28 --model 1.7b
  pytorch_steps.py --peers FOLDER                   dion, from FOLDER/dion's sources
  pytorch_steps.py --model gpt-768 --threads 2 --precision fp32
                                                    Muon's products in fp32, beside
                                                    torch's in bf16 and in fp32, and
                                                    the floor that sgemm sets
  pytorch_steps.py --rule adamw                     torch's fused AdamW
  pytorch_steps.py --rule soap --peers FOLDER       Meta's Distributed Shampoo, from
                                                    FOLDER/distributed_shampoo

The matrices of some layers of a Qwen3 model, or of a GPT; gradients are new tensors
in every step, as zero_grad(set_to_none=True) leaves them. Needs torch and the package
(`make python`). Ranks are processes of this machine: gloo with one thread each on
CPUs, NCCL over sockets where they share a GPU. Times are medians of the slowest
rank; where a rule refreshes factors, they are means over whole periods of refreshes.
The ratio is theirs : ours.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn

def qwen3_layer(hidden, queries, keys, inner):
    """Rows and columns of q, k, v, o, gate, up and down."""
    return [(queries, hidden), (keys, hidden), (keys, hidden),
            (hidden, queries), (inner, hidden), (inner, hidden),
            (hidden, inner)]


LAYERS = {
    "0.6b": qwen3_layer(1024, 2048, 1024, 3072),
    "1.7b": qwen3_layer(2048, 2048, 1024, 6144),
    "8b": qwen3_layer(4096, 4096, 1024, 12288),
    # qkv, out, up and down.
    "gpt-768": [(2304, 768), (768, 768), (3072, 768), (768, 3072)],
}

BLOCK = 1024  # longest side of a factor, of Shampoo and SOAP
PERIOD = 10  # steps from refresh to refresh


class Layer(nn.Module):
    def __init__(self, shapes, device):
        super().__init__()
        for number, (rows, columns) in enumerate(shapes):
            self.add_module(f"linear_{number}", nn.Linear(
                columns, rows, bias=False, device=device))

    def forward(self, x):
        return x


def shapes_of(options):
    """The matrices of a layer."""
    return [(rows // options.shrink, columns // options.shrink)
            for rows, columns in LAYERS[options.model]]


def make_model(options, device):
    torch.manual_seed(0)
    return nn.ModuleList(Layer(shapes_of(options), device)
                         for _ in range(options.layers))


def laid_out(options, device):
    """The model as the layout stores it, and what the optimizer gets."""
    model = make_model(options, device)
    if options.layout == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(options.device, (options.ranks,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
    return model


class Contender:
    """An optimizer with a model of its own."""

    def __init__(self, name, options, device, make):
        self.name = name
        self.model = laid_out(options, device)
        self.optimizer = make(self.model)
        self.parameters = list(self.model.parameters())
        generator = torch.Generator(device).manual_seed(1)
        self.gradients = []
        for parameter in self.parameters:
            local = getattr(parameter, "_local_tensor", parameter)
            self.gradients.append(
                torch.randn(local.shape, device=device, generator=generator))

    def new_gradients(self):
        for parameter, gradient in zip(self.parameters, self.gradients):
            value = gradient.clone()
            if hasattr(parameter, "_local_tensor"):
                from torch.distributed.tensor import DTensor

                value = DTensor.from_local(
                    value, parameter.device_mesh, parameter.placements,
                    run_check=False, shape=parameter.shape,
                    stride=parameter.stride())
            parameter.grad = value

    def step(self):
        self.optimizer.step()


def torch_muon(model):
    return torch.optim.Muon(model.parameters(), lr=1e-3)


class Fp32Muon(torch.optim.Muon):
    """torch's, without its rounding to bf16."""

    def step(self, closure=None):
        shorten = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = lambda tensor: tensor.clone()
        try:
            return super().step(closure)
        finally:
            torch.Tensor.bfloat16 = shorten


def torch_fp32_muon(model):
    return Fp32Muon(model.parameters(), lr=1e-3)


class Sgemm:
    """Products of 1024³ with as many flops as a step of ours: its floor."""

    name = "sgemm, as many flops"

    def __init__(self, options):
        side = 1024
        self.factors = torch.randn(options.threads, side, side)
        self.products = torch.empty_like(self.factors)
        self.turns = fp32_flops(options) / (2 * side**3 * options.threads)

    def new_gradients(self):
        pass

    def step(self):
        for _ in range(round(self.turns)):
            torch.bmm(self.factors, self.factors, out=self.products)


def fp32_flops(options):
    """Counts the flops of a step in the forms that ours chooses: with the Gram matrix or, near
    squares, the symmetric one (canzona/rules/muon/facts.cc)."""
    flops = 0
    for shape in shapes_of(options):
        m, n = min(shape), max(shape)
        gram = m >= 64 and n >= 1.5 * m
        flops += 6 * m * m * n + 14 * m**3 if gram else 15 * m * m * n + 5 * m**3
    return flops * options.layers


def ours(options, **arguments):
    import canzona

    kind = {"muon": canzona.Muon, "adamw": canzona.AdamW,
            "shampoo": canzona.Shampoo, "soap": canzona.SOAP}[options.rule]

    def make(model):
        if options.layout == "ddp":
            arguments["replicas"] = dist.group.WORLD
        return kind(model, lr=1e-3, **arguments)

    return make


def torch_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def meta_shampoo(options):
    """Meta's, with the betas, blocks, period and grafting of ours."""
    sys.path.insert(0, options.peers)
    import distributed_shampoo as meta

    arguments = {"betas": (0.95, 0.95), "epsilon": 1e-8,
                 "preconditioner_config": meta.DefaultSOAPConfig}
    if options.rule == "shampoo":
        arguments = {
            "betas": (0.9, 0.99), "epsilon": 1e-12,
            "preconditioner_config": meta.DefaultShampooConfig,
            "grafting_config": meta.AdamPreconditionerConfig(
                beta2=0.99, epsilon=1e-8)}

    def make(model):
        distributed = meta.DefaultSingleDeviceDistributedConfig
        if options.layout == "ddp":
            distributed = meta.DDPDistributedConfig()
        elif options.layout == "fsdp2":
            distributed = meta.FullyShardDistributedConfig()
        return meta.DistributedShampoo(
            model.parameters(), lr=1e-3, max_preconditioner_dim=BLOCK,
            precondition_frequency=PERIOD, distributed_config=distributed,
            **arguments)

    return make


def dion_muon(options):
    sys.path.insert(0, os.path.join(options.peers, "dion"))
    from dion import Muon

    def make(model):
        mesh = None
        if options.layout == "ddp":
            mesh = dist.group.WORLD
        elif options.layout == "fsdp2":
            mesh = next(model.parameters()).device_mesh
        return Muon(list(model.parameters()), distributed_mesh=mesh, lr=1e-3,
                    nesterov=True, use_polar_express=False,
                    use_triton=options.device == "cuda")

    return make


def chosen_contenders(options):
    if options.rule == "adamw":
        return [("ours", ours(options)), ("torch AdamW, fused", torch_adamw)]
    if options.precision:
        return [("ours", ours(options, precision=options.precision)),
                ("torch.optim.Muon", torch_muon),
                ("torch's in fp32", torch_fp32_muon)]
    if options.rule == "muon":
        chosen = [("ours", ours(options)),
                  ("ours, bf16 wire", ours(options, wire="bf16")),
                  ("torch.optim.Muon", torch_muon)]
        if options.peers:
            chosen.append(("dion", dion_muon(options)))
        return chosen
    settings = {"max_preconditioner_dim": BLOCK,
                "precondition_frequency": PERIOD}
    if options.rule == "soap":
        settings["long_sides"] = "cut"
    chosen = [("ours", ours(options, **settings))]
    if options.peers:
        chosen.append(("Distributed Shampoo", meta_shampoo(options)))
    return chosen


def contenders(options, device):
    sides = [Contender(name, options, device, make)
             for name, make in chosen_contenders(options)]
    return sides + [Sgemm(options)] if options.precision else sides


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()


def seconds_of_a_step(contender, device):
    contender.new_gradients()
    synchronize(device)
    start = time.perf_counter()
    contender.step()
    host = time.perf_counter() - start
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    both = torch.tensor([seconds, host], dtype=torch.float64, device=device)
    if dist.is_initialized():
        dist.all_reduce(both, dist.ReduceOp.MAX)
    return both.tolist()


def exchange_seconds(options, device):
    """An all_to_all of as many bytes as FSDP2's step sends, there and back."""
    if options.layout != "fsdp2":
        return None
    model = make_model(options, "meta")
    elements = sum(p.numel() for p in model.parameters())
    share = elements // options.ranks // options.ranks * options.ranks
    there = torch.zeros(share, device=device)
    back = torch.zeros_like(there)
    times = []
    for _ in range(5):
        synchronize(device)
        start = time.perf_counter()
        dist.all_to_all_single(back, there)
        dist.all_to_all_single(there, back)
        synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def work(rank, options):
    if options.device == "cuda":
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
        os.environ.update(NCCL_HOSTID=f"h{rank}", NCCL_NET="Socket",
                          NCCL_SOCKET_IFNAME="lo")
    else:
        device = torch.device("cpu")
        torch.set_num_threads(options.threads)
    if options.ranks > 1 or options.layout != "one":
        os.environ.update(MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(options.port))
        dist.init_process_group(
            "nccl" if options.device == "cuda" else "gloo", rank=rank,
            world_size=options.ranks)
    sides = contenders(options, device)
    times = {side.name: [] for side in sides}
    hosts = {side.name: [] for side in sides}
    for turn in range(options.warmup + options.steps):
        for side in sides:
            seconds, host = seconds_of_a_step(side, device)
            if turn >= options.warmup:
                times[side.name].append(seconds)
                hosts[side.name].append(host)
    exchange = exchange_seconds(options, device)
    if rank == 0:
        tell(options, times, hosts, exchange)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def tell(options, times, hosts, exchange):
    refreshes = options.rule in ("shampoo", "soap")
    typical = statistics.mean if refreshes else statistics.median
    medians = {name: typical(t) for name, t in times.items()}
    report = {
        "rule": options.rule, "layout": options.layout, "ranks": options.ranks,
        "device": options.device, "torch": torch.__version__,
        "model": options.model, "layers": options.layers,
        "shrink": options.shrink, "exchange_seconds": exchange,
        "contenders": [
            {"name": name, "seconds": medians[name],
             "least": min(times[name]), "most": max(times[name]),
             "host_seconds": typical(hosts[name]),
             "to_ours": medians[name] / medians["ours"]}
            for name in medians]}
    if options.json:
        print(json.dumps(report))
        return
    print(f"{options.rule}, {options.layout}, {options.ranks} rank(s), {options.device}, "
          f"torch {torch.__version__}, {options.threads} thread(s), "
          f"{options.layers} layers of {options.model} / {options.shrink}")
    print(f"{'':22}{'step':>12}{'host':>12}{': ours':>9}{'from - to':>18}")
    for side in report["contenders"]:
        print(f"{side['name']:22}{1e3 * side['seconds']:9.1f} ms"
              f"{1e3 * side['host_seconds']:9.1f} ms{side['to_ours']:9.2f}"
              f"{1e3 * side['least']:9.1f} -{1e3 * side['most']:7.1f}")
    if exchange is not None:
        print(f"{'all_to_all, both ways':22}{1e3 * exchange:9.1f} ms")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="muon",
                        choices=["muon", "adamw", "shampoo", "soap"])
    parser.add_argument("--layout", choices=["one", "ddp", "fsdp2"],
                        default="one")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", choices=list(LAYERS), default="0.6b",
                        help="Qwen3 of that size, or a GPT of that width")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--shrink", type=int, default=1,
                        help="divide all sizes by this")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=["fp32"],
                        help="compute Muon's products in it, on CPUs with "
                        "faster bf16 as well")
    parser.add_argument("--port", type=int, default=29571)
    parser.add_argument("--peers", default="",
                        help="a folder with the sources of dion in dion/ and of "
                        "Meta's optimizer in distributed_shampoo/")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.layout == "one" and options.ranks != 1:
        parser.error("--layout one has one rank")
    if options.precision and (options.rule, options.layout, options.device) != (
            "muon", "one", "cpu"):
        parser.error("--precision is of Muon in one process on a CPU")
    if options.rule in ("shampoo", "soap") and options.steps % PERIOD != 0:
        parser.error(f"--steps {options.steps}: {options.rule} is measured "
                     f"over whole periods of {PERIOD} steps")
    if options.peers:
        os.environ["TORCH_COMPILE_DISABLE"] = "1"
    return options


if __name__ == "__main__":
    chosen_options = parse_arguments()
    if chosen_options.ranks == 1:
        work(0, chosen_options)
    else:
        multiprocessing.spawn(work, args=(chosen_options,),
                              nprocs=chosen_options.ranks)
