"""Trains inside the real Megatron-Core, with its Muon and with ours.

    python3 scripts/test_megatron.py [--worlds 1,2,4] [--only WORD,…] [--cpu]
                                     [--out FOLDER]

Needs megatron-core 0.19.2 and emerging-optimizers 0.3.0 (scripts/
test_megatron.sh gets them), and on a GPU, which all ranks share, the package's
library for CUDA (CANZONA_LIBRARY). --cpu runs smaller models on gloo. Every case
of megatron_cases.py is a line of JSON; the last line says how many failed."""

import argparse
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "megatron_cases.py")


def launch(given):
    os.makedirs(given.out, exist_ok=True)
    lines = []
    for world in map(int, given.worlds.split(",")):
        words = [CASES, "--only", given.only, "--out", given.out]
        words += ["--cpu"] * given.cpu
        lines += run_world(world, words, given, f"world{world}")
    if not given.cpu and given.only in "example":
        lines += run_example(given)
    failed = [x for x in lines if x.get("failed")]
    bits = {x["hash"] for x in lines if "hash" in x}
    if len(bits) > 1:
        failed.append({"failed": f"TP sizes differ: {sorted(bits)}"})
    print(
        f"test_megatron: {len(lines)} cases, {len(failed)} failed", flush=True
    )
    return 1 if failed or not lines else 0


def run_example(given):
    """Megatron's own training loop, by -m canzona.megatron."""
    script = os.path.join(HERE, "../examples/pytorch/megatron_gpt.py")
    words = ["-m", "canzona.megatron", script, "--optimizer", "muon"]
    words += ["--muon-tp-mode", "duplicated", "--use-distributed-optimizer"]
    words += ["--tensor-model-parallel-size", "2"]
    failed = run_world(2, words, given, "example")
    found = []
    for rank in range(2):  # Megatron's last rank prints losses
        with open(os.path.join(given.out, f"example.{rank}.out")) as f:
            found += re.findall(r"lm loss: ([0-9.E+-]+)", f.read())
    case = {"case": "example", "losses": found}
    if failed or len(found) < 2 or float(found[-1]) >= float(found[0]):
        case["failed"] = "example"
    print(json.dumps(case))
    return [case]


def run_world(world, words, given, name):
    """Starts ranks that share a GPU; the JSON lines that rank 0 has printed."""
    began, ranks = time.time(), []
    for rank in range(world):
        env = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK="0",
            WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(29500 + world),
            NCCL_HOSTID=f"h{rank}",
            NCCL_NET="Socket",
            NCCL_SOCKET_IFNAME="lo",
            GLOO_SOCKET_IFNAME="lo",
            CUDA_DEVICE_MAX_CONNECTIONS="1",
            OMP_NUM_THREADS="1" if given.cpu else "2",
            PYTHONUNBUFFERED="1",
            PYTHONWARNINGS="ignore",
            TORCHINDUCTOR_COMPILE_THREADS="1",
            TORCHDYNAMO_DISABLE=str(int(given.cpu)),
        )
        # Files, no pipes: writers of checkpoints outlive their rank.
        text = os.path.join(given.out, f"{name}.{rank}")
        ranks.append(
            subprocess.Popen(
                [sys.executable, *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=open(f"{text}.out", "w"),
                stderr=open(f"{text}.log", "w"),
            )
        )
    limit = time.time() + (3600 if given.cpu else 240)
    for each in ranks:
        try:
            each.wait(timeout=max(1, limit - time.time()))
        except subprocess.TimeoutExpired:
            each.kill()
    codes = [each.wait() for each in ranks]
    with open(os.path.join(given.out, f"{name}.0.out")) as f:
        out = f.read()
    print(out if name != "example" else "", end="")
    print(f"# {name}: {time.time() - began:.0f} s, codes {codes}", flush=True)
    lines = [json.loads(x) for x in out.splitlines() if x.startswith("{")]
    if any(codes):
        lines.append({"failed": f"{name} ended with {codes}"})
        for rank in range(world):
            with open(os.path.join(given.out, f"{name}.{rank}.log")) as f:
                print(f"-- rank {rank}\n{f.read()[-1500:]}")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worlds", default="1,2,4")
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", default="build/megatron/out")
    sys.exit(launch(parser.parse_args()))
