#!/usr/bin/env python3
"""rows.py <canzona> <mpirun> [--tier A|B|C] [--rows R1,R7] [--seed N]
        [--faulty-files LIB] [--build DIR] [--table FILE]

Hits runs of `canzona train` on processes by the faults of docs/reliability.md
and checks how they end and what they leave. Prints a line per row: its id,
trials, those that held, and the slowest in seconds, with what was timed. Exit
status 0 if all held.

Tier A is quick and asks how runs end, not how soon; B has every place and
kind; C is the soak, and holds rows to their bars in seconds. As many trials run
at a time as there are cores for their ranks. With --build the tests of a build
folder whose names begin with the id of a row are run by ctest and counted, too.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree

from file_rows import FILE_ROWS
from started import SMALL, Failure, Started, digest_of, require
from rank_rows import RANK_ROWS
from trials import Row, Runner, usable_cores

ROWS = {**RANK_ROWS, **FILE_ROWS}
TIERS = {"A": ["R1", "R3", "R6", "R7", "R8", "R10", "R12"],
         "B": [name for name in ROWS if name not in ("R2", "R14")],
         # The longest begins first.
         "C": ["R14"] + [name for name in ROWS if name != "R14"]}


def find_torchrun(given):
    """The one that `make python` installs, or that is in PATH; None where
    PyTorch is not."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                       "build", "python", "bin", "torchrun")
    return shutil.which(given or own) or shutil.which("torchrun")


class Bench:
    """The rows share this."""

    def __init__(self, arguments):
        self.canzona = arguments.canzona
        self.mpirun = arguments.mpirun
        self.torchrun = find_torchrun(arguments.torchrun)
        self.faulty_files = arguments.faulty_files or ""
        self.tier = arguments.tier
        self.seed = arguments.seed
        self.kills = arguments.kills
        self.folder = tempfile.mkdtemp(prefix="canzona-rows-")
        self.lock = threading.Lock()
        self.count = 0
        self.digest_lock = threading.Lock()
        self.digests = {}
        self.points = None  # of file_rows.py
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                     "OMPI_MCA_rmaps_base_oversubscribe"):
            os.environ.setdefault(name, "1")
        os.environ.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")

    def new_run(self):
        with self.lock:
            self.count += 1
            return os.path.join(self.folder, f"run{self.count}")

    def train(self, run, steps=8, more=(), save_every=2, deadline=30):
        return (["train"] + SMALL + list(more) +
                ["--steps", str(steps), "--run", run,
                 "--deadline", f"{deadline:g}s",
                 "--save-every", str(save_every)])

    def start(self, run, starter="mpirun", ranks=4, restarts=0, fault="",
              bare=False, patience=2, variables=(), wrapper=False, **train):
        return Started(self, self.train(run, **train), starter, ranks,
                       restarts, fault, bare, patience, variables,
                       wrapper)

    def digest(self, steps, **train):
        """The digest of a run that nothing happens to; computed once."""
        key = (steps, tuple(train.items()))
        with self.digest_lock:
            if key not in self.digests:
                run = self.new_run()
                started = self.start(run, steps=steps, **train)
                require(started.end(300) == 0, started.text())
                self.digests[key] = digest_of(run)
            return self.digests[key]


def row_of_test(name):
    """"checkpoint.Damage.C5_EveryByte" is of C5; "" for a test of no row."""
    found = re.search(r"[./]([RDCS][0-9]+)_?(?=[A-Z])", name)
    return found.group(1) if found else ""


def rows_of_tests(bench, build, failures):
    """Those of the tests of a build folder, by id."""
    path = os.path.join(bench.folder, "tests.xml")
    subprocess.run(
        ["ctest", "--test-dir", build, "-R", r"[./][RDCS][0-9]+_?[A-Z]",
         "-j", str(usable_cores()), "--output-junit", path,
         "--timeout", "600"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = row_of_test(case.get("name"))
        if not name:
            continue
        row = rows.setdefault(name, Row(name, "tests; the slowest of them"))
        row.trials += 1
        row.slowest = max(row.slowest or 0.0, float(case.get("time")))
        if case.get("status") == "run":
            row.passed += 1
            continue
        failures.append(f"{name}: {case.get('name')}: {case.get('status')}")
        print(failures[-1], file=sys.stderr, flush=True)
    return [rows[name] for name in sorted(
        rows, key=lambda name: (name[0], int(name[1:])))]


def planned(name, bench, failures):
    """The row with its trials; one that cannot be prepared has failed."""
    try:
        return ROWS[name](bench)
    except Failure as failure:
        failures.append(f"{name}: {failure}")
        print(failures[-1], file=sys.stderr, flush=True)
        row = Row(name, "could not be prepared")
        row.trials = 1
        return row


def machine_line(mpirun):
    """Describes the machine that the table was made on."""
    done = subprocess.run([mpirun, "--version"], capture_output=True, text=True)
    version = (done.stdout.splitlines() or ["no mpirun"])[0]
    model = platform.machine()
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    return (f"{usable_cores()} cores, {model}; {version}; "
            f"load at the end {load}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("canzona", type=os.path.abspath)
    parser.add_argument("mpirun")
    parser.add_argument("--torchrun", default="",
                        help="PyTorch's; otherwise the one in build/python or "
                        "in PATH")
    parser.add_argument("--tier", choices=list(TIERS), default="A")
    parser.add_argument("--rows", default="",
                        help="these alone, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200,
                        help="random kills of R2")
    parser.add_argument("--cores", type=int, default=usable_cores(),
                        help="ranks that may compute at a time; at least 4")
    parser.add_argument("--no-bars", action="store_true",
                        help="slow ones count as passed")
    parser.add_argument("--faulty-files", type=os.path.abspath, default=None,
                        help="the library of faulty_files.cc")
    parser.add_argument("--build", default="",
                        help="a build folder whose tests are counted, too")
    parser.add_argument("--table", default="", help="where the table goes")
    arguments = parser.parse_args()
    if arguments.build and not arguments.faulty_files:
        arguments.faulty_files = os.path.abspath(os.path.join(
            arguments.build, "tests", "libcanzona_faulty_files.so"))
    return arguments


def main():
    arguments = parse_arguments()
    bench = Bench(arguments)
    names = arguments.rows.split(",") if arguments.rows else \
        TIERS[arguments.tier]
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        sys.exit(f"unknown rows {', '.join(unknown)}; there are "
                 f"{', '.join(ROWS)}")
    runner = Runner(max(arguments.cores, 4),
                    arguments.tier == "C" and not arguments.no_bars)
    rows = [planned(name, bench, runner.failures) for name in names]
    runner.run(rows)
    rows.sort(key=lambda row: list(ROWS).index(row.name))
    if arguments.build:
        rows += rows_of_tests(bench, arguments.build, runner.failures)
    shutil.rmtree(bench.folder, ignore_errors=True)
    lines = [machine_line(arguments.mpirun), "",
             "| row | trials | passed | slowest | timed |",
             "|---|---|---|---|---|"] + [row.line() for row in rows]
    print("\n".join(lines), flush=True)
    if arguments.table:
        with open(arguments.table, "w") as file:
            file.write("\n".join(lines) + "\n")
    sys.exit(1 if runner.failures else 0)


if __name__ == "__main__":
    main()
