#!/usr/bin/env python3
"""Ranks of `canzona bench step` of which one fails, again and again.

  test_nccl_faults.py build-cuda/canzona --trials 50
  test_nccl_faults.py build/canzona --transport tcp --trials 12

Four processes share a GPU (--transport nccl) or talk over sockets on CPUs
(tcp). In every trial one of them, at a random collective, is killed, is
stopped, throws, has a CUDA error or launches another operation than the others
(with --check-collectives), or does not start at all. The others must say so
within the deadline and a grace, in words that name it, and end by themselves
with exit status 4 (2 where an operation differs). Processes that share a GPU
get some seconds more to be gone, because the driver takes their kernels down one
slice of time after another. Prints a table; the exit status is 1 if a trial
failed. Trials run side by side (--jobs).
"""

import argparse
import concurrent.futures
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 4
# Processes may take so long to start, before any deadline begins.
START = 60.0
KILLED = ("killed", "stopped", "throws", "CUDA error")
KINDS = {"killed": "kill", "stopped": "stop", "throws": "throw",
         "CUDA error": "cuda"}
# One rank is told one of these, the others are not.
OTHER_WORDS = (["--wire", "bf16"], ["--clip", "0.5"], ["--steps", "4"])


class Ports:
    """Free ports of the loopback device, none twice."""

    def __init__(self):
        self.lock = threading.Lock()
        self.given = set()

    def take(self):
        with self.lock:
            while True:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = probe.getsockname()[1]
                if port not in self.given:
                    self.given.add(port)
                    return port


class Trial:
    def __init__(self, options, number, fault, ports):
        self.options, self.number, self.fault = options, number, fault
        chance = random.Random(f"{options.seed} {number}")
        self.victim = chance.randrange(RANKS)
        self.place = chance.randint(1, options.places)
        self.mesh = chance.choice(["dp=4", "dp=2,tp=2"])
        self.strategy = chance.choice(["balanced", "layerwise", "replicated"])
        self.other = chance.choice(OTHER_WORDS)
        self.port = ports.take()
        self.problems = []
        self.told = self.seconds = 0.0

    def name(self):
        return (f"trial {self.number}: rank {self.victim} {self.fault} at "
                f"collective {self.place}, {self.mesh}, {self.strategy}")

    def words(self, rank):
        words = [self.options.program, "bench", "step", "--model", "qwen3-0.6b",
                 "--scale", "1/16", "--layers", "2", "--mesh", self.mesh,
                 "--strategy", self.strategy, "--iterations", "0", "--compute",
                 "0", "--quiet", "--deadline", f"{self.options.deadline}s",
                 "--transport", self.options.transport]
        if self.options.transport == "nccl":
            words += ["--device", "cuda", "--share-gpu"]
        if self.fault == "other operation":
            words += ["--check-collectives"]
            if rank == self.victim:
                words += self.other
        return words + ([] if "--steps" in words else ["--steps", "30"])

    def environment(self, rank, folder):
        own = dict(os.environ)
        for name in list(own):
            if name.startswith(("OMPI_", "PMI", "SLURM_", "CANZONA_")):
                del own[name]
        own.update(CANZONA_RANK=str(rank), CANZONA_NUM_RANKS=str(RANKS),
                   CANZONA_LOCAL_RANK=str(rank),
                   CANZONA_RENDEZVOUS=f"127.0.0.1:{self.port}",
                   CANZONA_JOB_TOKEN=f"trial {self.number}",
                   OPENBLAS_NUM_THREADS="1")
        if rank == self.victim and self.fault in KILLED:
            own["CANZONA_TEST_FAULT"] = (
                f"rank={rank},at=collective,number={self.place},"
                f"kind={KINDS[self.fault]},once={folder}/happened")
        return own

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = {}
            began = time.time()
            for rank in range(RANKS):
                if self.fault == "never comes" and rank == self.victim:
                    continue
                errors = open(f"{folder}/{rank}.errors", "w")
                ranks[rank] = subprocess.Popen(
                    self.words(rank), env=self.environment(rank, folder),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=errors)
            try:
                self.watch(ranks, folder, began)
            finally:
                for process in ranks.values():
                    if process.poll() is None:
                        process.send_signal(signal.SIGKILL)
                        process.wait()
        return self

    def watch(self, ranks, folder, began):
        others = [r for r in ranks if r != self.victim]
        ended = {}
        limit = began + START + self.options.deadline + self.options.grace
        while len(ended) < len(others) and time.time() < limit:
            for rank in others:
                if rank not in ended and ranks[rank].poll() is not None:
                    ended[rank] = time.time()
            time.sleep(0.01)
        happened = began
        if self.fault in KILLED:
            if not os.path.exists(f"{folder}/happened"):
                self.problems.append("the fault did not happen" + "".join(
                    f"; rank {r}: status {p.poll()}, "
                    f"{open(f'{folder}/{r}.errors').read()[-200:]!r}"
                    for r, p in ranks.items()))
                return
            happened = os.path.getmtime(f"{folder}/happened")
        allowed = self.options.deadline + self.options.grace
        if self.fault in ("never comes", "other operation"):
            allowed += START  # nobody knows when the ranks were ready
        for rank in others:
            self.check_rank(rank, ranks[rank], ended.get(rank), happened,
                            allowed, f"{folder}/{rank}.errors")

    def check_rank(self, rank, process, ended, happened, allowed, errors):
        if ended is None:
            self.problems.append(f"rank {rank} has not ended")
            return
        self.seconds = max(self.seconds, ended - happened)
        told = os.path.getmtime(errors)
        self.told = max(self.told, told - happened)
        if told - happened > allowed:
            self.problems.append(
                f"rank {rank} said so after {told - happened:.2f} s, not "
                f"{allowed:.2f} s")
        allowed += self.options.teardown
        if ended - happened > allowed:
            self.problems.append(
                f"rank {rank} was gone after {ended - happened:.2f} s, not "
                f"{allowed:.2f} s")
        good = (2, 4) if self.fault == "other operation" else (4,)
        with open(errors) as file:
            said = file.read()
        if process.returncode not in good:
            self.problems.append(
                f"rank {rank} has exit status {process.returncode}: "
                f"{said[-400:]}")
        named = rf"\branks?\b[^\n]*\b{self.victim}\b"
        if self.fault == "never comes":  # who waits for rank 0 may give up first
            named += "|did not connect all ranks|cannot be reached"
        if not re.search(named, said):
            self.problems.append(
                f"rank {rank} does not name rank {self.victim}: {said[-400:]}")


def faults_of(options):
    kinds = list(KILLED) + ["never comes", "other operation"]
    if options.transport != "nccl":
        kinds.remove("CUDA error")
    return kinds


def table(trials, faults):
    lines = [f"{'fault':18}{'trials':>8}{'passed':>8}{'told after':>12}"
             f"{'gone after':>12}"]
    for fault in faults:
        own = [t for t in trials if t.fault == fault]
        passed = sum(not t.problems for t in own)
        told = max((t.told for t in own), default=0.0)
        gone = max((t.seconds for t in own), default=0.0)
        lines.append(f"{fault:18}{len(own):8}{passed:8}{told:10.2f} s"
                     f"{gone:10.2f} s")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--transport", default="nccl",
                        choices=["nccl", "tcp"])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--deadline", type=float, default=5.0,
                        help="seconds of every collective [5]")
    parser.add_argument("--grace", type=float, default=2.0,
                        help="seconds beyond it until ranks have said so [2]")
    parser.add_argument("--teardown", type=float,
                        help="seconds more until they are gone [nccl: 3, tcp: 0]")
    parser.add_argument("--places", type=int, default=60,
                        help="collectives among which a fault is put [60]")
    parser.add_argument("--jobs", type=int, default=2,
                        help="trials side by side [2]")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    if options.teardown is None:
        options.teardown = 3.0 if options.transport == "nccl" else 0.0
    faults = faults_of(options)
    ports = Ports()
    trials = [Trial(options, i, faults[i % len(faults)], ports)
              for i in range(options.trials)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for trial in pool.map(Trial.run, trials):
            print(f"{trial.name()}: told after {trial.told:.1f} s, gone after "
                  f"{trial.seconds:.1f} s", file=sys.stderr, flush=True)
            for problem in trial.problems:
                print(f"  {problem}", file=sys.stderr, flush=True)
    print(table(trials, faults))
    failed = sum(bool(t.problems) for t in trials)
    print(f"{len(trials)} trials over {options.transport}, deadline "
          f"{options.deadline:g} s: " +
          ("all passed" if failed == 0 else f"{failed} failed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
