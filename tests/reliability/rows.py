#!/usr/bin/env python3
"""rows.py <canzona> <mpirun> [--tier A|B|C] [--rows R1,R7] [--seed N]
        [--build DIR] [--table FILE]

Hits runs of `canzona train` on processes by the faults of docs/reliability.md
and checks how they end and what they leave. Prints a line per row: its id,
trials, those that held, and the slowest in seconds, with what was timed. Exit
status 0 if all held.

Tier A is quick and asks how runs end, not how soon; B has every place and
kind; C is the soak, and holds rows to their bars in seconds. With --build the
tests of a build folder whose names begin with the id of a row are run by ctest
and counted, too.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from launched import (SMALL, Failure, Launched, descendants, digest_of,
                      require, words_of)

PLACES = ["forward", "backward", "collective", "optimizer", "save"]
DEADLINE = 3.0  # of collectives, in seconds
STEP = "  grad_norm:"  # in the line of every step
# Signals to a rank; ask: SIGTERM to the launcher.
SOAK_KINDS = ["KILL", "SEGV", "ABRT", "STOP", "TERM", "ask"]


class Row:
    """What became of one row."""

    def __init__(self, name, timed):
        self.name = name
        self.timed = timed  # what `slowest` is of
        self.trials = 0
        self.passed = 0
        self.slowest = 0.0
        self.detected = 0.0  # until the first word of a survivor

    def line(self):
        timed = self.timed
        if self.detected > 0:
            timed += f"; the first survivor spoke within {self.detected:.2f} s"
        return (f"| {self.name} | {self.trials} | {self.passed} | "
                f"{self.slowest:.2f} s | {timed} |")


class Bench:
    def __init__(self, arguments):
        self.canzona = arguments.canzona
        self.mpirun = arguments.mpirun
        self.tier = arguments.tier
        self.random = random.Random(arguments.seed)
        self.folder = tempfile.mkdtemp(prefix="canzona-rows-")
        self.count = 0
        self.failures = []
        # For those that mpirun starts without `canzona launch`.
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                     "OMPI_MCA_rmaps_base_oversubscribe"):
            os.environ.setdefault(name, "1")

    def new_run(self):
        self.count += 1
        return os.path.join(self.folder, f"run{self.count}")

    def train(self, run, steps=8, more=(), save_every=2, deadline=DEADLINE):
        return (["train"] + SMALL + list(more) +
                ["--steps", str(steps), "--run", run,
                 "--deadline", f"{deadline:g}s",
                 "--save-every", str(save_every)])

    def launch(self, run, options=(), fault="", **train):
        return Launched(self.canzona, ["--ranks", "4"] + list(options),
                        self.train(run, **train), fault, self.folder)

    def digest(self, steps, **train):
        """Of the run that nothing happens to; computed once."""
        key = (steps, tuple(train.items()))
        if key not in self.digests:
            run = self.new_run()
            launched = self.launch(run, steps=steps, **train)
            require(launched.end(300) == 0, launched.text())
            self.digests[key] = digest_of(run)
        return self.digests[key]

    digests = {}

    def trial(self, row, what, function):
        """One trial; `function` returns what is timed, in seconds."""
        row.trials += 1
        try:
            row.slowest = max(row.slowest, function() or 0.0)
            row.passed += 1
        except Failure as failure:
            self.failures.append(f"{row.name}: {what}: {failure}")
            print(self.failures[-1], file=sys.stderr, flush=True)

    def is_timed(self, seconds, bar, launched=None):
        """Only the soak holds rows to their bars."""
        if self.tier == "C":
            require(seconds <= bar, f"took {seconds:.2f} s, bar {bar} s",
                    launched.text() if launched else "")
        return seconds


def ends_of(launched, attempt=0):
    return launched.report["attempts"][attempt]["ends"]


def time_to_end(launched, victims, attempt=0):
    """From the first victim's end to that of the last rank."""
    ends = ends_of(launched, attempt)
    first = min(ends[victim]["seconds"] for victim in victims)
    return max(end["seconds"] for end in ends) - first


def check_survivors(launched, victims):
    """They say that they lost somebody, and nothing killed them."""
    for end in ends_of(launched):
        if end["rank"] in victims:
            continue
        require(end["exit"] == 4 and end["signal"] is None,
                f"rank {end['rank']} ended with", end, "\n", launched.text())


def check_last_line(launched, *words):
    line = launched.lines[-1][1]
    for word in words:
        require(word in line, f"{word!r} is not in the last line:", line)


def fault_at(rank, place, kind, step=4):
    return f"rank={rank},step={step},at={place},kind={kind}"


# --- R1, R6, R7, R8: one rank, at a place that is known.

def one_fault(bench, rank, place, kind, status, words, more=()):
    run = bench.new_run()
    launched = bench.launch(run, ["--max-restarts", "0"],
                            fault_at(rank, place, kind), more=more)
    require(launched.end() == status, "expected status", status, "\n",
            launched.text())
    check_survivors(launched, [rank])
    check_last_line(launched, f"rank {rank} ", words, f"exit {status}")
    return time_to_end(launched, [rank])


def r1(bench):
    row = Row("R1", "from the kill to the end of the last rank")
    pairs = [(rank, place) for place in PLACES for rank in range(4)]
    if bench.tier == "A":
        pairs = [(i % 4, place) for i, place in enumerate(PLACES)]
    for rank, place in pairs:
        bench.trial(row, f"rank {rank} at {place}", lambda: bench.is_timed(
            one_fault(bench, rank, place, "kill", 4, "lost (SIGKILL)"), 2))
    for rank in [2] if bench.tier == "A" else range(4):
        bench.trial(row, f"rank {rank}, sockets", lambda: bench.is_timed(
            one_fault(bench, rank, "collective", "kill", 4, "lost (SIGKILL)",
                      ("--transport", "tcp")), 2))
    return row


def r6(bench):
    row = Row("R6", "from the fault to the end of the last rank")
    kinds = [("segv", 4, "lost (SIGSEGV"), ("abort", 4, "lost (SIGABRT"),
             ("exit0", 4, "ended before the others"),
             ("throw", 1, "failed (exit status 1)")]
    places = {"A": ["collective"]}.get(bench.tier, PLACES[:4])
    for kind, status, words in kinds:
        for i, place in enumerate(places):
            bench.trial(row, f"{kind} at {place}", lambda: bench.is_timed(
                one_fault(bench, (i + 1) % 4, place, kind, status, words), 2))
    if bench.tier == "A":
        return row
    # Out of threads that send in the background.
    for zero in ("zero1", "zero2", "zero3", "hier:2"):
        for overlap in ("main", "background"):
            bench.trial(row, f"throw, {zero}, {overlap}", lambda: one_fault(
                bench, 2, "collective", "throw", 1, "failed (exit status 1)",
                ("--zero", zero, "--overlap", overlap)))
    return row


def stopped(bench, rank, place):
    run = bench.new_run()
    launched = bench.launch(run, ["--max-restarts", "0", "--grace", "1s"],
                            fault_at(rank, place, "stop"))
    require(launched.end() == 4, launched.text())
    check_survivors(launched, [rank])
    check_last_line(launched, f"rank {rank} stopped", "exit 4")
    told = launched.wait_for("did not")
    require(any(f"rank {rank} did not" in line or "given up" in line
                for _, line in launched.lines), launched.text())
    steps = [when for when, line in launched.lines if STEP in line]
    return told - steps[-1]


def r7(bench):
    row = Row("R7", "from the last step to who did not come (deadline 3 s)")
    places = ["collective"] if bench.tier == "A" else PLACES[:4]
    for i, place in enumerate(places):
        bench.trial(row, f"at {place}", lambda: bench.is_timed(
            stopped(bench, (i + 2) % 4, place), DEADLINE + 1))
    return row


def paused(bench, rank, whole):
    run = bench.new_run()
    launched = bench.launch(run, ["--max-restarts", "0"], deadline=20)
    launched.wait_for(STEP)
    pid = launched.rank_pid(rank)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(pid, signal.SIGCONT)
    require(launched.end() == 0, launched.text())
    require(digest_of(run) == whole, "another digest than without the pause")


def r8(bench):
    row = Row("R8", "-")
    whole = bench.digest(8)
    for i in range(1 if bench.tier == "A" else 10):
        bench.trial(row, f"rank {i % 4}",
                    lambda: paused(bench, i % 4, whole))
    return row


# --- R3, R11: started again.

def restarted(bench, rank, place, whole):
    run = bench.new_run()
    once = run + ".once"
    launched = bench.launch(run, [], fault_at(rank, place, "kill", 6) +
                            f",once={once}", steps=12)
    require(launched.end() == 0, launched.text())
    require(launched.report["restarts"] == 1, launched.text())
    require(digest_of(run) == whole,
            "another digest than without the fault:\n", launched.text())
    killed = launched.wait_for("restart 1 of")
    after = next(i for i, (_, line) in enumerate(launched.lines)
                 if "restart 1 of" in line)
    return launched.wait_for(STEP, after=after) - killed


def r3(bench):
    row = Row("R3", "from the end of the run to its next step")
    whole = bench.digest(12)
    places = ["optimizer"] if bench.tier == "A" else PLACES
    for i, place in enumerate(places):
        bench.trial(row, f"at {place}", lambda: bench.is_timed(
            restarted(bench, (i + 3) % 4, place, whole), 5))
    return row


def shrunk(bench):
    run = bench.new_run()
    once = run + ".once"
    more = ("--set", "batch.global=12")
    launched = Launched(
        bench.canzona, ["--elastic", "2:4"], bench.train(run, 12, more),
        fault_at(1, "forward", "kill", 6) + f",once={once}", bench.folder)
    require(launched.end() == 0, launched.text())
    require(launched.report["restarts"] == 1, launched.text())
    require(launched.report["ranks"] == 3, launched.text())
    after = next(i for i, (_, line) in enumerate(launched.lines)
                 if "on 3 ranks" in line)
    return (launched.wait_for(STEP, after=after) -
            launched.lines[after][0])


def r11(bench):
    row = Row("R11", "from the end of the run to its next step, on 3 ranks")
    bench.trial(row, "4 to 3", lambda: bench.is_timed(shrunk(bench), 8))
    return row


# --- R2, R5: from outside, at any moment.

def wait_a_while(bench, launched):
    """Until the run has saved, and then for some part of a step or more."""
    launched.wait_for(STEP)
    end = time.monotonic() + 30
    while not os.path.exists(os.path.join(launched.run, "ckpt", "latest")):
        require(time.monotonic() < end, "nothing saved:\n", launched.text())
        time.sleep(0.01)
    time.sleep(bench.random.random() * 0.5)


def killed_outside(bench, ranks, victims, row):
    """Kills ranks; the launcher starts the run again, and it goes on."""
    run = bench.new_run()
    launched = Launched(
        bench.canzona, ["--ranks", str(ranks), "--max-restarts", "1"],
        bench.train(run, 100000), "", bench.folder)
    launched.run = run
    wait_a_while(bench, launched)
    pids = [launched.rank_pid(victim) for victim in victims]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    gone = launched.wait_for("restart 1 of 1")
    after = next(i for i, (_, line) in enumerate(launched.lines)
                 if "restart 1 of 1" in line)
    words = [when for when, line in launched.lines[:after]
             if "] error:" in line and when >= killed]
    if words:
        row.detected = max(row.detected, words[0] - killed)
    launched.wait_for(STEP, after=after)
    launched.process.send_signal(signal.SIGTERM)
    require(launched.end() == 143, launched.text())
    check_survivors(launched, victims)
    require("lost (SIGKILL)" in launched.lines[after][1],
            launched.lines[after])
    shutil.rmtree(run, ignore_errors=True)
    return gone - killed


def r2(bench):
    row = Row("R2", "from the kill until all processes are gone; each run was "
              "then resumed")
    for i in range(200):
        ranks = (2, 4, 8)[i % 3]
        victim = bench.random.randrange(ranks)
        bench.trial(row, f"rank {victim} of {ranks}", lambda: bench.is_timed(
            killed_outside(bench, ranks, [victim], row), 2))
    return row


def killed_launcher(bench, kills_mpirun):
    run = bench.new_run()
    launched = bench.launch(run, ["--max-restarts", "0"], steps=100000)
    launched.wait_for(STEP)
    below = descendants(launched.process.pid)
    mpirun = next(pid for pid in below if "mpirun" in words_of(pid)[0])
    os.kill(mpirun if kills_mpirun else launched.process.pid, signal.SIGKILL)
    begin = time.monotonic()
    if kills_mpirun:
        require(launched.end() == 4, launched.text())
        check_last_line(launched, "mpirun ended before its ranks (SIGKILL)")
    while time.monotonic() < begin + 30:
        left = [pid for pid in below if len(words_of(pid)) > 0]
        if not left:
            return time.monotonic() - begin
        time.sleep(0.01)
    raise Failure(f"orphans: {[words_of(pid) for pid in left]}")


def r5(bench):
    row = Row("R5", "from the kill to the end of the last process")
    for victims in ([1, 2], [0, 3], [0, 1, 2, 3]):
        bench.trial(row, f"ranks {victims}", lambda: bench.is_timed(
            killed_outside(bench, 4, victims, row), 3))
    for kills_mpirun in (False, True):
        bench.trial(row, "mpirun" if kills_mpirun else "the launcher",
                    lambda: bench.is_timed(
                        killed_launcher(bench, kills_mpirun), 3))
    return row


# --- R10: who is not there from the start.

def wrong_world(bench):
    done = subprocess.run(
        [bench.mpirun, "-n", "3", bench.canzona] +
        ["train"] + SMALL + ["--steps", "2", "--mesh", "dp=4"],
        capture_output=True, timeout=60, text=True, cwd=bench.folder)
    require(done.returncode == 2, done.returncode, done.stderr)
    for word in ("dp=4", "4 ranks", "expected 3"):
        require(word in done.stderr, word, "is not in", done.stderr)


def never_comes(bench):
    """One of four processes is no rank: the others wait in MPI's start."""
    begin = time.monotonic()
    rank = [bench.canzona, "train"] + SMALL + ["--steps", "2",
                                               "--deadline", "3s"]
    done = subprocess.run(
        [bench.mpirun, "-n", "3"] + rank + [":", "-n", "1", "sleep", "60"],
        capture_output=True, timeout=120, text=True, cwd=bench.folder)
    require(done.returncode != 0, done.stdout)
    require("has not started within 3.00 s" in done.stderr and
            "of the 4 ranks" in done.stderr, done.stderr)
    return time.monotonic() - begin


def r10(bench):
    row = Row("R10", "to the message (deadline 3 s) and mpirun's end")
    bench.trial(row, "3 processes for 4 ranks", lambda: wrong_world(bench))
    bench.trial(row, "one never comes", lambda: never_comes(bench))
    return row


# --- R12, R13: asked to end, or to save.

def asked(bench, number, whom, status, twice=False):
    run = bench.new_run()
    launched = bench.launch(run, [], steps=100000)
    launched.wait_for(STEP)
    pid = (launched.process.pid if whom == "launcher"
           else launched.rank_pid(whom))
    os.kill(pid, number)
    begin = time.monotonic()
    if twice:
        time.sleep(0.4)
        os.kill(pid, number)
    require(launched.end() == status, "expected", status, "\n",
            launched.text())
    require(launched.report["restarts"] == 0, launched.text())
    if not twice:
        require(launched.report["last_checkpoint"] is not None,
                "no checkpoint:\n", launched.text())
    shutil.rmtree(run, ignore_errors=True)
    return launched.ended - begin


def r12(bench):
    row = Row("R12", "from SIGTERM to the end of the launcher")
    for whom in ("launcher", 2):
        bench.trial(row, f"to {whom}", lambda: bench.is_timed(
            asked(bench, signal.SIGTERM, whom, 143), 15))
    return row


def saved_now(bench):
    run = bench.new_run()
    launched = bench.launch(run, [], steps=100000,
                            save_every=1000000)
    launched.wait_for(STEP)
    launched.process.send_signal(signal.SIGUSR1)
    begin = time.monotonic()
    while not os.path.exists(os.path.join(run, "ckpt", "latest")):
        require(time.monotonic() < begin + 30, "nothing saved:\n",
                launched.text())
        time.sleep(0.01)
    took = time.monotonic() - begin
    launched.process.send_signal(signal.SIGTERM)
    require(launched.end() == 143, launched.text())
    return took


def r13(bench):
    row = Row("R13", "to the end, or to the checkpoint")
    bench.trial(row, "SIGINT once", lambda: bench.is_timed(
        asked(bench, signal.SIGINT, "launcher", 130), 5))
    bench.trial(row, "SIGINT twice", lambda: bench.is_timed(
        asked(bench, signal.SIGINT, "launcher", 130, twice=True), 2))
    bench.trial(row, "SIGUSR1", lambda: bench.is_timed(saved_now(bench), 5))
    return row


# --- R14: all of them, one after the other.

def last_step(launched):
    for _, line in reversed(list(launched.lines)):
        found = re.search(r"step: *([0-9]+) .*grad_norm:", line)
        if found:
            return int(found.group(1))
    return 0


def hit(bench, launched, kinds):
    """One fault, to a rank or to the launcher."""
    kind = bench.random.choice(kinds)
    time.sleep(0.1 * bench.random.random())
    if kind == "ask":
        launched.process.send_signal(signal.SIGTERM)
    else:
        launched.kill_rank(bench.random.randrange(4),
                           getattr(signal, "SIG" + kind))
    return kind


def soak(bench, steps, num_faults, interval):
    """Faults when the run comes to some of its steps for the first time."""
    whole = bench.digest(steps, save_every=interval)
    run = bench.new_run()
    command = bench.train(run, steps, save_every=interval)
    marks = sorted(bench.random.sample(range(2, steps - 5), num_faults))
    begin, steps_run, kinds = time.monotonic(), 0, []
    status, resume = 143, []
    while status == 143:
        launched = Launched(
            bench.canzona,
            ["--ranks", "4", "--max-restarts", "100", "--grace", "1s"],
            command + resume, "", bench.folder)
        resume = ["--resume", "auto"]
        while launched.process.poll() is None:
            if marks and last_step(launched) >= marks[0]:
                marks.pop(0)
                try:
                    kinds.append(hit(bench, launched, SOAK_KINDS))
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        status = launched.end(600)
        require(status in (0, 143), launched.text())
        steps_run += sum(STEP in line for _, line in launched.lines)
    require(len(kinds) == num_faults, "only", len(kinds), "faults")
    require(digest_of(run) == whole, "another digest than without faults")
    print("R14:", ", ".join(f"{kinds.count(kind)} {kind}"
                            for kind in SOAK_KINDS), flush=True)
    return time.monotonic() - begin, steps_run


def r14(bench):
    row = Row("R14", "all of it")
    steps, faults, interval = 500, 20, 10

    def trial():
        seconds, steps_run = soak(bench, steps, faults, interval)
        redone = steps_run - steps
        print(f"R14: {redone} of {steps} steps done again", flush=True)
        # The steps that were under way, and those since the last save.
        require(redone <= faults * (interval + 2), f"{redone} steps again")
        return bench.is_timed(seconds, 600)
    bench.trial(row, f"{steps} steps, {faults} faults", trial)
    return row


ROWS = {"R1": r1, "R2": r2, "R3": r3, "R5": r5, "R6": r6, "R7": r7, "R8": r8,
        "R10": r10, "R11": r11, "R12": r12, "R13": r13, "R14": r14}
TIERS = {"A": ["R1", "R3", "R6", "R7", "R8", "R10", "R12"],
         "B": ["R1", "R3", "R5", "R6", "R7", "R8", "R10", "R11", "R12", "R13"],
         "C": list(ROWS)}


def row_of_test(name):
    """"checkpoint.Damage.C5_EveryByte" is of C5; "" for a test of no row."""
    found = re.search(r"[./]([RDCS][0-9]+)_?(?=[A-Z])", name)
    return found.group(1) if found else ""


def rows_of_tests(bench, build):
    """Those of the tests of a build folder, by id."""
    path = os.path.join(bench.folder, "tests.xml")
    subprocess.run(
        ["ctest", "--test-dir", build, "-R", r"[./][RDCS][0-9]+_?[A-Z]",
         "--output-junit", path, "--timeout", "600"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = row_of_test(case.get("name"))
        if not name:
            continue
        row = rows.setdefault(name, Row(name, "the slowest test"))
        row.trials += 1
        row.passed += case.get("status") == "run"
        row.slowest = max(row.slowest, float(case.get("time")))
        if case.get("status") != "run":
            bench.failures.append(case.get("name"))
            print(f"{name}: {case.get('name')} failed", file=sys.stderr)
    return [rows[name] for name in sorted(
        rows, key=lambda name: (name[0], int(name[1:])))]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("canzona", type=os.path.abspath)
    parser.add_argument("mpirun")
    parser.add_argument("--tier", choices=list(TIERS), default="A")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="")
    parser.add_argument("--table", default="")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    names = arguments.rows.split(",") if arguments.rows else \
        TIERS[arguments.tier]
    lines = ["| row | trials | passed | slowest | timed |",
             "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for name in names:
        lines.append(ROWS[name](bench).line())
        print(lines[-1], flush=True)
    for row in rows_of_tests(bench, arguments.build) if arguments.build else []:
        lines.append(row.line())
        print(lines[-1], flush=True)
    shutil.rmtree(bench.folder, ignore_errors=True)
    if arguments.table:
        with open(arguments.table, "w") as file:
            file.write("\n".join(lines) + "\n")
    sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
