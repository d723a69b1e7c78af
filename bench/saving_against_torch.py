#!/usr/bin/env python3
"""Saves and loads the same GiB with canzona and with torch.distributed.checkpoint.

    python3 bench/saving_against_torch.py build/bench/saving [--folder DIR]

Needs a Python that has torch (CPU is enough). Both sides have 4 ranks (canzona:
threads; torch: processes over gloo, each with a row shard of every tensor as a
DTensor), the same bytes and the same disk, and take turns; each figure is the
least of 3 rounds:

  pause   how long an asynchronous save stops the run
  save    a save that is waited for
  load    into memory that is there

torch checks no hash, and its save is not synced to disk by default; ours always
does both.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

RANKS = 4
ROUNDS = 3


def torch_rank(rank, folder, mib, results):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29677",
                      RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (RANKS,))
    rows, cols = 1024, 4096
    count = max((mib << 20) // (rows * cols * 4), 1)
    state = {f"layers.{i}.w": distribute_tensor(
        torch.full((rows, cols), 0.125), mesh, [Shard(0)])
        for i in range(count)}
    least = {"pause": 1e9, "save": 1e9, "load": 1e9}

    def timed(name, work):
        dist.barrier()
        begin = time.monotonic()
        out = work()
        if name != "pause":
            dist.barrier()
        least[name] = min(least[name], time.monotonic() - begin)
        return out

    for i in range(ROUNDS):
        for kind in ("sync", "async"):
            path = f"{folder}/{kind}{i}"
            if kind == "sync":
                timed("save", lambda: dcp.save(state, checkpoint_id=path))
            else:
                timed("pause", lambda: dcp.async_save(
                    state, checkpoint_id=path)).result()
            dist.barrier()
            if kind == "sync":
                timed("load", lambda: dcp.load(state, checkpoint_id=path))
            dist.barrier()
            if rank == 0:
                shutil.rmtree(path)
    worst = torch.tensor([least["pause"], least["save"], least["load"]],
                         dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    if rank == 0:
        results.put(dict(zip(("pause", "save", "load"), worst.tolist()),
                         version=torch.__version__))
    dist.destroy_process_group()


def time_torch(folder, mib):
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [context.Process(target=torch_rank, args=(r, folder, mib, results))
             for r in range(RANKS)]
    for r in ranks:
        r.start()
    out = results.get()
    for r in ranks:
        r.join()
    return out


def time_ours(program, folder, mib):
    text = subprocess.run(
        [program, "--json", "--mib", str(mib), "--ranks", str(RANKS),
         "--folder", f"{folder}/ours"],
        check=True, capture_output=True, text=True).stdout
    found = json.loads(text)
    return {"pause": found["pause_s"], "save": found["save_s"],
            "load": found["load_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="build/bench/saving")
    parser.add_argument("--folder", help="where to write; made and removed")
    parser.add_argument("--mib", type=int, default=1024)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(dir=arguments.folder)
    try:
        ours = time_ours(arguments.program, folder, arguments.mib)
        torch = time_torch(folder, arguments.mib)
        again = time_ours(arguments.program, folder, arguments.mib)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{arguments.mib} MiB, {RANKS} ranks, torch {torch['version']}")
    for name in ("pause", "save", "load"):
        best = min(ours[name], again[name])
        print(f"{name:6} canzona {best:.4f} s, torch {torch[name]:.4f} s, "
              f"ours : theirs {best / torch[name]:.2f}")


if __name__ == "__main__":
    sys.exit(main())
