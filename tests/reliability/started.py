"""Runs of `canzona train` on processes for tests of faults: started by mpirun,
torchrun or a script, watched from outside, and hit while they run. Python's
standard library only."""

import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SMALL = [
    "--data", "synthetic",
    "--set", "model.layers=2", "--set", "model.hidden=32",
    "--set", "model.ffn=48", "--set", "model.heads=4",
    "--set", "model.kv_heads=4", "--set", "model.head_dim=8",
    "--set", "model.length=16", "--set", "eval.sequences=8",
    "--set", "log.every=1",
]

HERE = os.path.dirname(os.path.abspath(__file__))
RESUMING = os.path.join(HERE, "..", "..", "docs", "resuming.md")
RANK_VARIABLES = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "CANZONA_RANK", "RANK"]


class Failure(Exception):
    """A row that did not hold, with what was seen."""


def require(holds, *what):
    if not holds:
        raise Failure(" ".join(str(word) for word in what))


def children_of():
    """Processes by their parent."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                words = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if words[0] != "Z":
            children.setdefault(int(words[1]), []).append(int(name))
    return children


def descendants(pid):
    children = children_of()
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def variables_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(word.decode(errors="replace").split("=", 1)
                for word in words if b"=" in word)


def words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def documented_loop(command, restarts):
    """The loop of docs/resuming.md with this command, as often as asked."""
    with open(RESUMING) as file:
        loop = re.search(r"```sh\n(for restart in .*?)```", file.read(),
                         re.DOTALL).group(1)
    # The line that starts the run.
    loop, count = re.subn(r"(?m)^  mpirun .*$",
                          lambda _: "  " + shlex.join(command), loop)
    require(count == 1, "no mpirun in the loop:", loop)
    numbers = " ".join(str(number) for number in range(restarts + 1))
    return loop.replace("restart in 0 1 2 3;", f"restart in {numbers};")


class RankEnd:
    """How a rank has ended, and when: as a shell says it, 137 after SIGKILL."""

    def __init__(self, rank, status, seconds):
        self.rank = rank
        self.status = status
        self.seconds = seconds


class Started:
    """One run with its lines and when they came. `starter`: mpirun, torchrun,
    or script, whose ranks meet over sockets. Ranks that are watched tell how
    they ended; torchrun's, those that mpirun starts bare, and those below a
    wrapper script, which ends at SIGTERM before its rank, do not. With restarts, torchrun starts the run again, and for mpirun the loop of
    docs/resuming.md."""

    def __init__(self, bench, command, starter="mpirun", ranks=4, restarts=0,
                 fault="", bare=False, patience=2, variables=(),
                 wrapper=False):
        environment = dict(os.environ, **dict(variables))
        environment.pop("CANZONA_TEST_FAULT", None)
        if fault:
            environment["CANZONA_TEST_FAULT"] = fault
        # Seconds between mpirun's signals.
        environment["OMPI_MCA_odls_base_sigkill_timeout"] = str(patience)
        self.bench = bench
        self.starter = starter
        self.ranks = ranks
        self.watched = starter != "torchrun" and not bare and not wrapper
        self.wrapper = wrapper
        self.lines = []  # (time, text)
        self.ends = []  # RankEnd, in their order, of all attempts
        self.folder = tempfile.mkdtemp(dir=bench.folder, prefix="pipes-")
        words = self._words([bench.canzona] + command, restarts, environment)
        self.pipes = self._open_pipes()
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=environment, cwd=bench.folder)
        self.pipes[self.process.stdout.fileno()] = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _words(self, program, restarts, environment):
        if self.wrapper:
            program = ["sh", "-c", shlex.join(program) + "; exit $?"]
        if self.starter == "torchrun":
            return [self.bench.torchrun, "--standalone", "--no-python",
                    "--nproc-per-node", str(self.ranks),
                    "--max-restarts", str(restarts),
                    "--monitor-interval", "0.1", "--"] + program
        if self.watched:
            program = [sys.executable, os.path.join(HERE, "rank.py"),
                       self.folder] + program
        if self.starter == "script":
            environment.update(
                CANZONA_NUM_RANKS=str(self.ranks),
                CANZONA_NUM_LOCAL=str(self.ranks),
                CANZONA_RENDEZVOUS=f"127.0.0.1:{free_port()}")
            numbers = " ".join(str(rank) for rank in range(self.ranks))
            return ["sh", "-c", f"for CANZONA_RANK in {numbers}; do "
                    f"export CANZONA_RANK; {shlex.join(program)} & done; wait"]
        words = [self.bench.mpirun, "-n", str(self.ranks)] + program
        if restarts == 0:
            return words
        return ["sh", "-c", documented_loop(words, restarts)]

    def _open_pipes(self):
        """Ranks by the pipes that they write to, which stay open."""
        pipes = {}
        for rank in range(self.ranks if self.watched else 0):
            path = os.path.join(self.folder, f"r{rank}")
            os.mkfifo(path)
            pipes[os.open(path, os.O_RDWR | os.O_NONBLOCK)] = rank
        return pipes

    def _read(self):
        rest = {pipe: b"" for pipe in self.pipes}
        own = self.process.stdout.fileno()
        is_open = True
        while is_open:
            ready, _, _ = select.select(list(rest), [], [])
            # The end of the starter's lines comes after all else.
            for pipe in sorted(ready, key=lambda one: one == own):
                data = os.read(pipe, 1 << 16)
                is_open = is_open and (pipe != own or data != b"")
                *lines, rest[pipe] = (rest[pipe] + data).split(b"\n")
                for line in lines:
                    self._take(self.pipes[pipe],
                               line.decode(errors="replace").rstrip())
        for pipe in self.pipes:
            if pipe != own:
                os.close(pipe)

    def _take(self, rank, line):
        now = time.monotonic()
        found = re.fullmatch(r"ended: ([0-9]+)", line)
        if rank is not None and found:
            self.ends.append(RankEnd(rank, int(found.group(1)), now))
        if line:
            self.lines.append((now, line))

    def wait_for(self, text, seconds=60, after=0, count=1):
        """When a line with the text came, looking behind `after` lines; with
        `count`, so many of them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            is_over = self.process.poll() is not None
            if is_over:
                self.reader.join()
            found = [when for when, line in self.lines[after:] if text in line]
            if len(found) >= count:
                return found[count - 1]
            if is_over:
                break
            time.sleep(0.01)
        raise Failure(f"no line with {text!r}:\n{self.text()}")

    def index_of(self, text):
        """The number of lines up to the first with this text."""
        self.wait_for(text)
        return 1 + next(i for i, (_, line) in enumerate(self.lines)
                        if text in line)

    def rank_pid(self, rank, seconds=30):
        """The program of a rank, without what watches it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for pid in descendants(self.process.pid):
                variables = variables_of(pid)
                own = [variables[name] for name in RANK_VARIABLES
                       if name in variables]
                if (words_of(pid)[:1] == [self.bench.canzona] and
                        own == [str(rank)]):
                    return pid
            time.sleep(0.02)
        raise Failure(f"no process of rank {rank}:\n{self.text()}")

    def starter_pid(self, seconds=30):
        """mpirun or torchrun, which the loop may have started."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for pid in [self.process.pid] + descendants(self.process.pid):
                if any(os.path.basename(word).startswith(self.starter)
                       for word in words_of(pid)[:2]):
                    return pid
            time.sleep(0.02)
        raise Failure(f"no {self.starter}:\n{self.text()}")

    def kill_rank(self, rank, number=signal.SIGKILL):
        os.kill(self.rank_pid(rank), number)
        return time.monotonic()

    def end(self, seconds=120):
        """The starter's exit status; kills it if it does not end."""
        before = descendants(self.process.pid)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in descendants(self.process.pid) + [self.process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            raise Failure(f"not over after {seconds} s:\n{self.text()}")
        self.ended = time.monotonic()
        self.reader.join(10)
        # The kernel ends those whose starter was killed.
        while time.monotonic() < self.ended + 2:
            left = [pid for pid in before
                    if words_of(pid)[:1] == [self.bench.canzona]]
            if not left:
                break
            time.sleep(0.005)
        require(not left, "processes are left:", left)
        require(not self.reader.is_alive(), "somebody still writes:",
                self.text())
        shutil.rmtree(self.folder, ignore_errors=True)
        return status if status >= 0 else 128 - status

    def text(self):
        return "\n".join(line for _, line in self.lines)


def summary(run):
    with open(os.path.join(run, "summary.json")) as file:
        return json.load(file)


def digest_of(run):
    return find_member(summary(run), "digest")


def find_member(value, name):
    """The first member of that name, however deep."""
    if isinstance(value, dict):
        if name in value:
            return value[name]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            found = find_member(item, name)
            if found is not None:
                return found
    return None
