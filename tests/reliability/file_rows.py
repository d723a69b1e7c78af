"""Rows C1, C2 and C10 of docs/reliability.md: a real run is killed at every
call of the system that its saves make, and every such call fails, by strace or,
for calls that strace cannot single out and where ptrace is refused, by a library
that is preloaded (faulty_files.cc)."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from functools import partial

from started import SMALL, Failure, digest_of, require
from trials import Row

CALLS = ["openat", "close", "write", "pwrite64", "fsync", "fdatasync",
         "ftruncate", "rename", "renameat", "renameat2", "mkdir", "mkdirat",
         "unlink", "unlinkat", "rmdir"]
ERRORS = ["ENOSPC", "EIO", "EINTR"]
STEPS = 4  # of the run; it saves after 2 and 4
STOPPED = 3  # the step at which strace joins in


def status_words(status):
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def has_strace():
    """True if it is there and may trace."""
    if not shutil.which("strace"):
        return False
    return subprocess.run(["strace", "-o", os.devnull, "-e", "trace=openat",
                           "true"], capture_output=True).returncode == 0


def names_in(run):
    """Lists what its checkpoints left, but for the lock, which may stay."""
    return sorted(name for name in os.listdir(os.path.join(run, "ckpt"))
                  if name != "canzona.lock")


class TracedCall:
    """A line of strace: the n-th such call of its thread."""

    def __init__(self, name, number, thread, line):
        self.name = name
        self.number = number
        self.thread = thread
        self.line = line


def traced_calls(log):
    """All of them, in order. A call that another thread interrupts counts where
    it begins."""
    count, calls = {}, []
    with open(log, errors="replace") as file:
        for line in file:
            found = re.match(r"(\d+) +([a-z0-9]+)\(", line)
            if not found:
                continue
            thread, name = found.groups()
            count[thread, name] = count.get((thread, name), 0) + 1
            calls.append(TracedCall(name, count[thread, name], thread, line))
    return calls


def first_of_their_number(calls):
    """Those that strace hits when it is asked for the n-th call of a name: it
    counts in each thread and takes the first thread that comes so far."""
    seen, first = set(), []
    for call in calls:
        if (call.name, call.number) not in seen:
            seen.add((call.name, call.number))
            first.append(call)
    return first


class SavedRun:
    """A run that was killed after its first checkpoint, and what becomes of
    copies of it that go on under a fault. Made once, when it is needed."""

    def __init__(self, bench):
        self.bench = bench
        self.lock = threading.Lock()
        self.whole = None

    def command(self, run, *more, keep_last=1):
        return (["train"] + SMALL + ["--ranks", "1", "--transport", "thread",
                                     "--steps", str(STEPS), "--run", run,
                                     "--save-every", "2", "--save", "sync",
                                     "--keep-last", str(keep_last)] +
                list(more))

    def prepare(self):
        with self.lock:
            if self.whole is not None:
                return
            whole = self.bench.new_run()
            self.start(self.command(whole)).finish(0)
            self.base = self.bench.new_run()
            self.start(self.command(self.base), fault=(
                f"rank=0,step={STOPPED},at=forward,kind=kill")).finish(-9)
            self.whole = digest_of(whole)

    def start(self, command, fault="", **more):
        return Process([self.bench.canzona] + command, self.bench.folder,
                       fault, more)

    def copy(self):
        self.prepare()
        run = self.bench.new_run()
        shutil.copytree(self.base, run, symlinks=True)
        return run

    def go_on(self, run, **more):
        return self.command(run, "--resume", "auto", **more)

    def check(self, run, what):
        """It goes on without the fault, and nothing is lost or left over."""
        done = self.start(self.go_on(run))
        done.finish(0, what)
        require(digest_of(run) == self.whole, what,
                "another digest than without the fault\n", done.text)
        left = names_in(run)
        # A run that is killed between its last save and pruning has nothing
        # left to do.
        require(left in (["latest", "step_00000004"],
                         ["latest", "step_00000002", "step_00000004"]), what,
                "left over:", left)
        self.start(["ckpt", "verify", run]).finish(0, what)
        shutil.rmtree(run, ignore_errors=True)


class Process:
    """A program with a fault, until it has ended."""

    def __init__(self, command, folder, fault, more):
        environment = dict(os.environ, **more)
        environment.pop("CANZONA_TEST_FAULT", None)
        if fault:
            environment["CANZONA_TEST_FAULT"] = fault
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=environment, cwd=folder, text=True)

    def wait(self, seconds=60):
        if self.process.returncode is not None:
            return self.process.returncode
        try:
            self.text, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.text, _ = self.process.communicate()
            raise Failure(f"not over after {seconds} s:\n{self.text}")
        return self.process.returncode

    def finish(self, status, what=""):
        got = self.wait()
        require(got == status, what, f"expected {status_words(status)}, got",
                status_words(got), "\n", self.text)


def preloaded(bench, run, call, kind, rank=""):
    """The environment of a run whose call fails by the library."""
    return {"LD_PRELOAD": bench.faulty_files,
            "CANZONA_FAULTY_FILES": os.path.join(run, "ckpt"),
            "CANZONA_FAULTY_CALL": str(call), "CANZONA_FAULTY_KIND": kind,
            "CANZONA_FAULTY_RANK": rank}


def count_calls(bench, saved, run):
    """The calls of a run that nothing happens to: lines "number call name"."""
    log = run + ".calls"
    done = saved.start(saved.go_on(run), CANZONA_FAULTY_LOG=log,
                       **preloaded(bench, run, 0, ""))
    done.finish(0)
    with open(log) as file:
        return file.read().splitlines()


def check_end(process, kind, what):
    """Killed, or ended by itself with a word about it."""
    status = process.wait()
    if kind == "KILL":
        require(status == -9, what, status_words(status), "\n", process.text)
        return
    if kind in ("EINTR", "SHORT"):
        require(status == 0, what, status_words(status), "\n", process.text)
        return
    require(status in (0, 2, 3, 6), what, status_words(status), "\n",
            process.text)
    if status != 0:
        require("error: " in process.text, what, process.text)


def hit_by_library(bench, saved, call, kind):
    run = saved.copy()
    what = f"{kind} at call {call}:"
    process = saved.start(saved.go_on(run),
                          **preloaded(bench, run, call, kind))
    check_end(process, kind, what)
    saved.check(run, what)


# --- strace

def attach(process, log, *options):
    """strace, once it has the process; or None if that is refused."""
    strace = subprocess.Popen(
        ["strace", "-f", "-y", "-s", "0", "-o", log, "-p", str(process.pid),
         "-e", "trace=" + ",".join("?" + call for call in CALLS),
         *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True)
    for line in strace.stderr:
        if "attached" in line:
            threading.Thread(target=strace.stderr.read, daemon=True).start()
            return strace
    strace.wait()
    return None


def wait_until_stopped(pid):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] == "T":
                return
        time.sleep(0.005)
    raise Failure("the run did not come to its fault")


def run_traced(saved, run, log, *options):
    """A run that strace has joined before it saves."""
    started = saved.start(saved.go_on(run), fault=(
        f"rank=0,step={STOPPED},at=optimizer,kind=stop"))
    wait_until_stopped(started.process.pid)
    strace = attach(started.process, log, *options)
    os.kill(started.process.pid, signal.SIGCONT)
    require(strace is not None, "strace may not trace another process")
    started.wait()
    strace.wait()
    return started


def hit_by_strace(bench, saved, call, kind):
    run = saved.copy()
    log = run + ".trace"
    what = f"{kind} at {call.name} {call.number} ({call.line.strip()}):"
    injected = "signal=SIGKILL" if kind == "KILL" else f"error={kind}"
    process = run_traced(
        saved, run, log, "-e",
        f"inject={call.name}:{injected}:when={call.number}")
    with open(log, errors="replace") as file:
        hits = [line for line in file
                if "(INJECTED)" in line or "killed by SIGKILL" in line]
    require(hits, what, "strace did not reach it\n", process.text)
    # strace counts in every thread: others' calls fail, too, such as the one
    # that would say so.
    if kind == "KILL" or all(run + "/ckpt" in line for line in hits):
        check_end(process, kind, what)
    else:
        require(process.wait() >= 0, what, status_words(process.wait()))
    saved.check(run, what)


class Points:
    """Points at which a save can be hit: by the library every call, by strace
    those that it can single out."""

    def __init__(self, bench, saved):
        self.bench = bench
        self.saved = saved
        require(os.path.isfile(bench.faulty_files),
                f"no library {bench.faulty_files!r}: build the target "
                "canzona_faulty_files and name it by --faulty-files or --build")
        saved.prepare()
        self.calls = count_calls(bench, saved, saved.copy())
        self.traced = self.find_traced() if has_strace() else []

    def find_traced(self):
        run = self.saved.copy()
        log = run + ".trace"
        try:
            process = run_traced(self.saved, run, log)
        except Failure:
            return []
        require(process.wait() == 0, process.text)
        below = os.path.join(run, "ckpt")
        calls = first_of_their_number(traced_calls(log))
        return [call for call in calls if below in call.line]

    def add_to(self, row, kinds):
        for kind in kinds:
            for i in range(1, len(self.calls) + 1):
                row.add(f"{kind} at call {i}", partial(
                    hit_by_library, self.bench, self.saved, i, kind), 1)
            if kind == "SHORT":
                continue
            for call in self.traced:
                row.add(f"{kind} by strace at {call.name} {call.number}",
                        partial(hit_by_strace, self.bench, self.saved, call,
                                kind), 1)
        row.notes.append(
            f"{len(self.calls)} calls of a run that goes on, saves and prunes, each by a library that is "
            "preloaded; " +
            (f"{len(self.traced)} of them by strace, too" if self.traced else
             "not by strace, which is not here or may not trace"))


def points_of(bench):
    if bench.points is None:
        bench.points = Points(bench, SavedRun(bench))
    return bench.points


# --- Four ranks: one of them is killed at a call of its own.

def run_preloaded(bench, run, call, kind, rank, more):
    """Started again by the loop of docs/resuming.md."""
    started = bench.start(
        run, restarts=1, more=("--save", "sync", "--resume", "auto"),
        variables={**preloaded(bench, run, call, kind, rank), **more})
    require(started.end() == 0, started.text())
    require(digest_of(run) == bench.digest(8), started.text())
    return started


def points_of_ranks(bench):
    """20 of (rank, call): most of rank 0, which commits."""
    run = bench.new_run()
    log = run + ".calls"
    run_preloaded(bench, run, 0, "", "", {"CANZONA_FAULTY_LOG": log})
    points = []
    for rank, wanted in enumerate([14, 2, 2, 2]):
        with open(f"{log}.{rank}") as file:
            count = len(file.readlines())
        points += [(rank, 1 + i * (count - 1) // wanted)
                   for i in range(wanted)]
    return points


def hit_rank(bench, rank, call):
    run = bench.new_run()
    started = run_preloaded(bench, run, call, "KILL", str(rank),
                            {"CANZONA_FAULTY_ONCE": run + ".once"})
    require(137 in [end.status for end in started.ends], started.text())
    shutil.rmtree(run, ignore_errors=True)


def c1(bench):
    row = Row("C1", "the old or the new checkpoint loads, and the run goes on "
              "with the same bits")
    points_of(bench).add_to(row, ["KILL"])
    for rank, call in points_of_ranks(bench):
        row.add(f"rank {rank} of 4 at call {call}",
                partial(hit_rank, bench, rank, call))
    row.notes.append("20 of 4 ranks")
    return row


def c2(bench):
    row = Row("C2", "the save fails as a whole, the run goes on or says why "
              "not, and nothing is lost")
    points_of(bench).add_to(row, ERRORS + ["SHORT"])
    return row


# --- C10: prune.

def prune_command(run):
    return ["ckpt", "prune", run, "--keep-last", "1"]


def pruned(bench, saved, call, kind):
    run = bench.new_run()
    shutil.copytree(saved.full, run, symlinks=True)
    command = prune_command(run)
    process = saved.start(command, **preloaded(bench, run, call, kind))
    check_end(process, kind, f"{kind} at call {call} of prune:")
    saved.start(["ckpt", "verify", run]).finish(0)
    saved.start(command).finish(0)
    left = names_in(run)
    require(left == ["latest", "step_00000004"], left)
    shutil.rmtree(run, ignore_errors=True)


def c10(bench):
    row = Row("C10", "enough checkpoints that verify remain")
    saved = points_of(bench).saved
    saved.full = saved.copy()
    saved.start(saved.go_on(saved.full, keep_last=9)).finish(0)
    run = bench.new_run()
    shutil.copytree(saved.full, run, symlinks=True)
    log = run + ".calls"
    saved.start(prune_command(run), CANZONA_FAULTY_LOG=log,
                **preloaded(bench, run, 0, "")).finish(0)
    with open(log) as file:
        count = len(file.readlines())
    for kind in ["KILL", "EIO"]:
        for call in range(1, count + 1):
            row.add(f"{kind} at call {call}",
                    partial(pruned, bench, saved, call, kind), 1)
    return row


FILE_ROWS = {"C1": c1, "C2": c2, "C10": c10}
