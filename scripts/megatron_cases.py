"""One rank of the cases of test_megatron.py, which starts it: each trains inside
Megatron-Core, with its Muon and with ours, and compares."""

import argparse
import copy
import json
import os
import shutil
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python", "tests"))

TOLERANCE = 1e-3  # of losses, over the steps of a case
# Bounds updates from the same gradients in fp32, relative to their norm.
CLOSE = 2e-5


def say(**fields):
    import torch.distributed as dist

    if dist.get_rank() == 0:
        print(json.dumps(fields), flush=True)


def built(ours, **how):
    """A model and its optimizer, by Megatron's Muon or by ours."""
    import canzona.megatron
    import megatron_train as m

    (canzona.megatron.register if ours else canzona.megatron.unregister)()
    try:
        return m.build(**{**SIZES, **how})
    finally:
        canzona.megatron.unregister()


def everyones(value):
    import torch.distributed as dist

    all_of = [None] * dist.get_world_size()
    dist.all_gather_object(all_of, value)
    return all_of


PRECISIONS = ("highest", "medium")  # of Newton–Schulz: fp32, or 16 bits


def farthest(some, others):
    return max(abs(a - b) for a, b in zip(some, others))


def losses(name, theirs=None, **how):
    """Ours against Megatron's *duplicated*, or what `theirs` names. Training in
    bf16 makes much of the last digits of an update, so Megatron's own losses
    move with the precision of its Newton–Schulz: ours may move as far, beside
    the tolerance. updates() compares what is the optimizer's alone."""
    import megatron_train as m

    found = {}
    for precision in PRECISIONS:
        for ours in (False, True):
            options = how if ours else {**how, **(theirs or {})}
            model, optimizer = built(
                ours, muon_fp32_matmul_prec=precision, **options
            )
            found[precision, ours] = m.train(model, optimizer, 1, STEPS)
            if ours:
                if how.get("overlap"):  # which waits for the next forward
                    model.start_param_sync(force_sync=True)
                require_replicas(model, how.get("tp", 1), how.get("pp", 1))
    fp32, apart = (
        farthest(found[precision, False], found[precision, True])
        for precision in PRECISIONS
    )
    spread = farthest(*(found[precision, False] for precision in PRECISIONS))
    mine = found["medium", True]
    say(
        case=name,
        apart_fp32=fp32,
        apart=apart,
        spread=spread,
        first=mine[0],
        last=mine[-1],
        theirs=[round(x, 6) for x in found["medium", False]],
    )
    assert max(fp32, apart) <= TOLERANCE + spread, found
    assert mine[-1] < mine[0]


def moved(ours, precision, how):
    """How far three steps from recorded gradients move each of this rank's
    masters, through the whole chain."""
    model, optimizer = built(
        ours, clip_grad=1e9, muon_fp32_matmul_prec=precision, **how
    )
    masters = [
        p
        for base in matrix_optimizers(optimizer)
        for group in base.param_groups
        for p in group["params"]
    ]
    before = [p.detach().clone() for p in masters]
    for step in range(1, 4):
        gradients_by_name(model, step)
        ok, _, _ = optimizer.step()
        assert ok
    return [p.detach() - q for p, q in zip(masters, before)]


def updates(name, **how):
    """Updates from the same gradients: in fp32 ours are Megatron's, and in 16
    bits they are no farther from these than Megatron's own."""

    def apart(some):
        pairs = zip(some, exact)
        far = [float((a - b).norm() / b.norm()) for a, b in pairs]
        return max(everyones(max(far, default=0.0)))

    exact = moved(False, "highest", how)
    fp32 = apart(moved(True, "highest", how))
    mine, theirs = (apart(moved(ours, "medium", how)) for ours in (True, False))
    say(case=name, apart_fp32=fp32, ours_16_bits=mine, theirs_16_bits=theirs)
    assert fp32 <= CLOSE
    assert CPU or mine <= theirs


def the_table(name):
    """The entry that we replace is what the tests' stand-in says."""
    import dataclasses
    import inspect
    import warnings

    import canzona.megatron
    import megatron_parts as parts
    from megatron.core.optimizer import emerging_optimizers as real

    def recorded(entry, cls):
        of = inspect.signature(cls).parameters.values()
        fields = {f.name for f in dataclasses.fields(entry)}
        return fields, [(p.name, p.default) for p in of]

    entry = real._EMERGING_OPTIMIZERS["muon"]
    stand_in = parts.EmergingOptimizerEntry, parts.TensorParallelMuon
    assert recorded(type(entry), entry.optimizer_cls) == recorded(*stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canzona.megatron.register()
    canzona.megatron.unregister()
    assert real._EMERGING_OPTIMIZERS["muon"] is entry
    say(case=name, version=canzona.megatron._version())


def life(name, **how):
    """Two models in a process, through a move to the host and back, and through
    steps that Megatron skips: weights equal those of an undisturbed run."""
    import megatron_train as m

    expected, optimizer = built(True, **how)
    m.train(expected, optimizer, 1, 4)
    first, second = built(True, **how), built(True, **how)
    for model, optimizer in (first, second):
        m.train(model, optimizer, 1, 1)
    for model, optimizer in (second, first):
        optimizer.offload_to_cpu()
        optimizer.restore_from_cpu()
        m.train(model, optimizer, 2, 2)
    skipped(*first)
    m.train(*first, 3, 4)
    m.train(*second, 3, 4)
    trained = (expected, first[0], second[0])
    digests = [everyones(m.digest(of)) for of in trained]
    assert digests[0] == digests[1] == digests[2], digests
    say(case=name)


def skipped(model, optimizer):
    """A step that Megatron leaves out, as it does after an overflow."""
    from unittest import mock

    with mock.patch.object(optimizer, "prepare_grads", lambda *_, **__: True):
        gradients_by_name(model, 9)
        ok, _, _ = optimizer.step()
        assert not ok


def require_replicas(model, tp, pp):
    """Data-parallel ranks have the same dense weights."""
    import hashlib

    h = hashlib.sha256()
    for n, p in sorted(model.named_parameters()):
        if "experts" not in n:
            h.update(p.detach().float().cpu().numpy().tobytes())
    seen = everyones(h.hexdigest())
    each = len(seen) // pp
    for rank, one in enumerate(seen):
        assert one == seen[rank // each * each + rank % tp], seen


def gradients_by_name(model, step):
    """Recorded gradients, cut as the parameter is: the same for all meshes."""
    import zlib

    import torch
    from megatron.core import parallel_state

    rank = parallel_state.get_tensor_model_parallel_rank()
    size = parallel_state.get_tensor_model_parallel_world_size()
    for name, p in model.named_parameters():
        dim = getattr(p, "partition_dim", -1)
        stride = getattr(p, "partition_stride", 1)
        shape = list(p.shape)
        if dim >= 0:
            shape[dim] *= size
        g = torch.Generator().manual_seed(zlib.crc32(name.encode()) + step)
        whole = torch.randn(shape, generator=g) * 1e-3
        if dim >= 0:
            parts = [c.chunk(size, dim)[rank] for c in whole.chunk(stride, dim)]
            whole = torch.cat(parts, dim)
        p.main_grad.copy_(whole)


def whole_weights(model):
    """A hash of whole matrices, gathered over the TP group."""
    import hashlib

    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    group = parallel_state.get_tensor_model_parallel_group()
    h = hashlib.sha256()
    for name, p in sorted(model.named_parameters()):
        dim = getattr(p, "partition_dim", -1)
        stride = getattr(p, "partition_stride", 1)
        value = getattr(p, "main_param", p).detach().float().contiguous()
        shards = [torch.empty_like(value) for _ in range(group.size())]
        dist.all_gather(shards, value, group=group)
        if dim < 0:
            whole = shards[0]
        else:
            whole = torch.cat(
                [
                    torch.cat([s.chunk(stride, dim)[i] for s in shards], dim)
                    for i in range(stride)
                ],
                dim,
            )
        h.update(whole.cpu().numpy().tobytes())
    return h.hexdigest()[:16]


def bits(name, tp):
    """Whole matrices after steps from recorded gradients, through the whole
    chain: the launcher compares the hashes of all TP sizes."""
    from megatron.core import parallel_state

    model, optimizer = built(True, tp=tp, clip_grad=1e9)
    for step in range(1, 4):
        gradients_by_name(model, step)
        ok, _, _ = optimizer.step()
        assert ok
    assert parallel_state.get_data_parallel_world_size() == 1
    say(case=name, hash=whole_weights(model))


class Counted:
    """Collectives that a block calls, and bytes that it sends to others."""

    NAMES = (
        "all_gather all_gather_into_tensor all_reduce reduce_scatter_tensor "
        "all_to_all_single broadcast all_gather_object"
    ).split()

    def __enter__(self):
        import torch.distributed as dist

        self.calls, self.kept, self.sent = {}, {}, 0
        for name in self.NAMES:
            self.kept[name] = getattr(dist, name)
            setattr(dist, name, self.counting(name))
        return self

    def counting(self, name):
        import torch.distributed as dist

        call = self.kept[name]

        def counted(*words, **options):
            self.calls[name] = self.calls.get(name, 0) + 1
            if name == "all_to_all_single":
                own = dist.get_group_rank(options["group"], dist.get_rank())
                others = sum(words[3]) - words[3][own]
                self.sent += others * words[1].element_size()
            return call(*words, **options)

        return counted

    def __exit__(self, *_):
        import torch.distributed as dist

        for name, call in self.kept.items():
            setattr(dist, name, call)


def collectives(name, **how):
    """Calls of optimizer.step() by Megatron's modes and by ours."""
    import canzona.megatron
    import megatron_train as m

    for mode in ("duplicated", "distributed", "ours"):
        options = {} if mode == "ours" else {"muon_tp_mode": mode}
        model, optimizer = built(mode == "ours", **how, **options)
        m.train(model, optimizer, 1, 2)
        optimizer.zero_grad()
        m.gradients(model, 3)
        with Counted() as counted:
            optimizer.step()
        sent = everyones(counted.sent)
        say(case=f"{name}, {mode}", calls=counted.calls, sent=sent)
        if mode == "ours":
            plans = canzona.megatron.plan(optimizer)
            most = sum(p.json["predicted"]["bytes_per_rank_max"] for p in plans)
            every = everyones((counted.sent, most))
            mine = [s for s, planned in every if planned == most]
            assert max(mine) == most, every


def resumed(name, first, then, saved, loaded=None, same=True):
    """Steps after a torch_dist checkpoint against those without it. `first`
    and `then`: by ours or by Megatron's Muon; `saved`, `loaded`: meshes."""
    import megatron_train as m
    import torch.distributed as dist
    from megatron.core import dist_checkpointing

    folder = os.path.join(OUT, "checkpoint")
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    dist.barrier()

    def parts(model, optimizer, loading):
        of = model.module.module.sharded_state_dict(prefix="")
        metadata = {
            "distrib_optim_sharding_type": "fully_reshardable",
            "chained_optim_avoid_prefix": True,
        }
        states = optimizer.sharded_state_dict(
            of, is_loading=loading, metadata=metadata
        )
        return {"model": of, "optimizer": states}

    half = STEPS // 2
    # Without Transformer Engine, Megatron's DistributedOptimizer loads no states
    # of AdamW; the older layout does without it.
    model, optimizer = built(first, layout=False, **saved)
    m.train(model, optimizer, 1, half)
    dist_checkpointing.save(parts(model, optimizer, False), folder)
    a = m.train(model, optimizer, half + 1, STEPS)
    before = m.digest(model)
    model, optimizer = built(then, layout=False, **(loaded or saved))
    state = dist_checkpointing.load(parts(model, optimizer, True), folder)
    model.module.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    b = m.train(model, optimizer, half + 1, STEPS)
    apart = max(abs(x - y) for x, y in zip(a, b))
    assert apart <= TOLERANCE, (a, b)
    if same:
        assert everyones(before) == everyones(m.digest(model))
    say(case=name, apart=apart)


def timing(name, layers):
    """Milliseconds of the matrices' step alone and of the whole step, of
    Megatron's blockwise and of ours, taking turns."""
    import megatron_train as m
    import torch

    sides = {}
    for ours in (False, True):
        sizes = dict(m.QWEN3_1_7B, num_layers=layers)
        how = {} if ours else {"muon_tp_mode": "blockwise"}
        model, optimizer = built(ours, sizes=sizes, cpu_init=False, **how)
        m.train(model, optimizer, 1, 2)
        base = next(matrix_optimizers(optimizer))
        for group in base.param_groups:
            for p in group["params"]:
                p.grad = torch.randn_like(p) * 1e-3
        sides[ours] = model, optimizer, base
    inner = {ours: [] for ours in sides}
    whole = {ours: [] for ours in sides}
    for turn in range(12):
        for ours, (_, optimizer, base) in sides.items():
            a, b = timed(base.step), timed(optimizer.step)
            if turn > 1:
                inner[ours].append(a)
                whole[ours].append(b)

    def middle(values):
        return round(sorted(values)[len(values) // 2], 2)

    theirs, mine = middle(inner[False]), middle(inner[True])
    say(
        case=name,
        emerging_ms=theirs,
        ours_ms=mine,
        ratio=round(theirs / mine, 3),
        emerging_whole_ms=middle(whole[False]),
        ours_whole_ms=middle(whole[True]),
    )
    if layers == 4:
        profile(sides[True][2])


def timed(act):
    import torch

    if CPU:
        began = time.monotonic()
        act()
        return 1e3 * (time.monotonic() - began)
    a, b = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    torch.cuda.synchronize()
    a.record()
    act()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b)


def profile(base):
    """Where the milliseconds of one of our steps are."""
    import torch
    from torch.profiler import ProfilerActivity

    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        base.step()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda r: -r.self_device_time_total)[
        :14
    ]
    for r in rows:
        ms = r.self_device_time_total / 1e3
        print(f"#   {ms:8.3f} ms  {r.count:5}  {r.key[:90]}", flush=True)


def matrix_optimizers(optimizer):
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        if hasattr(one, "chained_optimizers"):
            yield from matrix_optimizers(one)
        elif "Muon" in type(one.optimizer).__name__:
            yield one.optimizer


EXPERTS = dict(experts=4, ep=2, etp=1)
GPU_ONLY = "gpu"  # cases that a CPU cannot run, or not in reasonable time

CASES = {
    1: [
        (losses, "one rank", {}),
        (the_table, "the table", {}),
        (updates, "updates, one rank", {}),
        (life, "life, one rank", {}),
        (bits, "bits, TP 1", dict(tp=1)),
        (resumed, "resume", dict(first=True, then=True, saved={})),
        (timing, "1.7B × 4 layers", dict(layers=4), GPU_ONLY),
        (timing, "1.7B × 28 layers", dict(layers=28), GPU_ONLY),
    ],
    2: [
        (losses, "DP 2", {}),
        (losses, "TP 2", dict(tp=2)),
        (
            losses,
            "TP 2 against distributed",
            dict(tp=2, theirs=dict(muon_tp_mode="distributed")),
        ),
        (losses, "TP 2 blockwise", dict(tp=2, muon_tp_mode="blockwise")),
        (losses, "DP 2, overlapped", dict(overlap=True)),
        (losses, "PP 2", dict(pp=2)),
        (losses, "EP 2", EXPERTS),
        (updates, "updates, TP 2", dict(tp=2)),
        (updates, "updates, EP 2", EXPERTS),
        (life, "life, TP 2", dict(tp=2)),
        (bits, "bits, TP 2", dict(tp=2)),
        (
            resumed,
            "Megatron's to ours, TP 2",
            dict(first=False, then=True, saved=dict(tp=2), same=False),
        ),
        (
            resumed,
            "ours to Megatron's, TP 2",
            dict(first=True, then=False, saved=dict(tp=2), same=False),
        ),
        (
            resumed,
            "TP 2 to TP 1",
            dict(
                first=True,
                then=True,
                saved=dict(tp=2),
                loaded=dict(tp=1),
                same=False,
            ),
            GPU_ONLY,  # gloo gathers no uneven shards
        ),
    ],
    4: [
        (losses, "DP 2 × TP 2", dict(tp=2)),
        (losses, "DP 2 × EP 2", EXPERTS),
        (bits, "bits, TP 4", dict(tp=4)),
        (collectives, "a step at DP 2 × TP 2", dict(tp=2)),
        (
            resumed,
            "resume, DP 2 × TP 2",
            dict(first=True, then=True, saved=dict(tp=2)),
            GPU_ONLY,
        ),
    ],
}


def rank(given):
    global CPU, OUT, SIZES, STEPS
    import contextlib
    import datetime

    import torch
    import torch.distributed as dist

    import megatron_train as m

    CPU, OUT = given.cpu, given.out
    STEPS = 6 if CPU else 20
    SIZES = {}
    surrounded = contextlib.nullcontext()
    if CPU:
        torch.set_num_threads(1)
        small = dict(hidden_size=64, ffn_hidden_size=96, kv_channels=8)
        SIZES = {"sizes": {**m.SMALL, **small, "num_layers": 2}}
    else:
        torch.cuda.set_device(0)
    dist.init_process_group(
        "gloo" if CPU else "nccl",
        timeout=datetime.timedelta(seconds=600 if CPU else 60),
    )
    import megatron.core

    if CPU:
        from megatron_cpu import on_cpu

        surrounded = on_cpu()
    say(megatron=megatron.core.__version__, torch=torch.__version__)
    failed = 0
    with surrounded:
        for act, name, how, *where in CASES[dist.get_world_size()]:
            words = given.only.split(",")
            if CPU and where or not any(w in name for w in words):
                continue
            fault, began = "", time.time()
            try:
                act(name, **copy.deepcopy(how))
            except Exception:
                fault = traceback.format_exc()
            faults = everyones(fault[-1800:])
            bad = [r for r, text in enumerate(faults) if text]
            if bad:
                failed += 1
                say(failed=name, ranks=bad, trace=faults[bad[0]])
            if dist.get_rank() == 0:
                print(f"#   {name}: {time.time() - began:.1f} s", flush=True)
            if 0 < len(bad) < dist.get_world_size():
                break  # ranks may wait for each other
    sys.stdout.flush()
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", default="build/megatron/out")
    sys.exit(rank(parser.parse_args()))
