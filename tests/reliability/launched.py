"""Runs of `canzona launch` for tests of faults: started, watched from outside,
and hit while they run. Python's standard library only."""

import json
import os
import signal
import subprocess
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


RANK_VARIABLES = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "CANZONA_RANK"]


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


class Launched:
    """One `canzona launch --json`, with its lines and when they came."""

    def __init__(self, canzona, options, command, fault="", folder=None,
                 variables=()):
        environment = dict(os.environ, **dict(variables))
        environment.pop("CANZONA_TEST_FAULT", None)
        if fault:
            environment["CANZONA_TEST_FAULT"] = fault
        self.output = tempfile.TemporaryFile()
        self.lines = []  # (time, text) of standard error
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [canzona, "launch", "--json"] + options + ["--"] + command,
            stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.PIPE, env=environment, cwd=folder)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(
                (time.monotonic(), line.decode(errors="replace").rstrip()))

    def wait_for(self, text, seconds=60, after=0):
        """When a line with the text came, looking behind `after` lines."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for when, line in self.lines[after:]:
                if text in line:
                    return when
            if self.process.poll() is not None:
                self.reader.join()
                if not any(text in line for _, line in self.lines[after:]):
                    break
            time.sleep(0.01)
        raise Failure(f"no line with {text!r}:\n{self.text()}")

    def rank_pid(self, rank, seconds=30):
        """The program of a rank, without its keeper."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for pid in descendants(self.process.pid):
                words = words_of(pid)
                variables = variables_of(pid)
                own = [variables[name] for name in RANK_VARIABLES
                       if name in variables]
                if (len(words) > 1 and words[1] != "launch" and
                        own == [str(rank)]):
                    return pid
            time.sleep(0.02)
        raise Failure(f"no process of rank {rank}:\n{self.text()}")

    def kill_rank(self, rank, number=signal.SIGKILL):
        pid = self.rank_pid(rank)
        os.kill(pid, number)
        return time.monotonic()

    def end(self, seconds=120):
        """Its exit status; kills it if it does not end."""
        before = descendants(self.process.pid)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failure(f"not over after {seconds} s:\n{self.text()}")
        self.ended = time.monotonic()
        self.reader.join()
        left = [pid for pid in before if os.path.exists(f"/proc/{pid}") and
                "launch" in words_of(pid)]
        require(not left, "processes are left:", left)
        self.output.seek(0)
        text = self.output.read()
        self.report = json.loads(text) if text else {}
        return status

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
