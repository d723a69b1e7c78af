"""Rows R1 to R14 of docs/reliability.md: runs of `canzona train` on processes
that are hit by faults. Each function returns the row with its trials."""

import os
import re
import shutil
import signal
import subprocess
import time
from functools import partial

from started import SMALL, Failure, digest_of, free_port, require, words_of
from trials import UNTOLD, Row, chance_of

PLACES = ["forward", "backward", "collective", "optimizer", "save"]
DEADLINE = 3.0  # of collectives, in seconds, of rows that wait for it
STEP = "  grad_norm:"  # in the line of every step
# Signals to a rank; ask: SIGTERM to mpirun or torchrun.
SOAK_KINDS = ["KILL", "SEGV", "ABRT", "STOP", "TERM", "ask"]


def errors_of(started, after=0.0):
    """What ranks have said of their ends, and when."""
    return [(when, line) for when, line in started.lines
            if line.startswith("error: ") and when >= after]


def time_to_end(started, victims):
    """From the first victim's end to that of the last rank."""
    ends = started.ends
    first = min(end.seconds for end in ends if end.rank in victims)
    return max(end.seconds for end in ends) - first


def check_survivors(started, victims):
    """They say that they lost somebody, and nothing killed them. torchrun does
    not tell how they ended."""
    said = [line for _, line in errors_of(started)]
    # Those that do not know why another gives up name that one.
    require(len(victims) == started.ranks or
            any(f"rank {victim} " in line for victim in victims
                for line in said), "nobody names", victims, "\n",
            started.text())
    if not started.watched:
        return
    # A rank that is stopped is killed with what watches it.
    ends = {end.rank: end.status for end in reversed(started.ends)}
    for rank in range(started.ranks):
        require(rank in victims or ends.get(rank) == 4, f"rank {rank} ended "
                "with", ends.get(rank), "\n", started.text())


def fault_at(rank, place, kind, step=4):
    return f"rank={rank},step={step},at={place},kind={kind}"


def starters(bench, row):
    """With torchrun where PyTorch is; says why not where it is not."""
    if bench.torchrun:
        return ["mpirun", "torchrun"]
    row.notes.append("not under torchrun, which is not here (make python)")
    return ["mpirun"]


# --- R1, R6, R7, R8: one rank, at a place that is known.

def one_fault(bench, rank, place, kind, statuses, words=(), more=(),
              starter="mpirun"):
    """`statuses`: of the rank, and of mpirun."""
    run = bench.new_run()
    started = bench.start(run, starter, fault=fault_at(rank, place, kind),
                          more=more)
    status = started.end()
    check_survivors(started, [rank])
    for word in words:
        started.wait_for(word)
    if not started.watched:
        require(status != 0, "ended with", status, "\n", started.text())
        return started.ended - errors_of(started)[0][0]
    own = [end.status for end in started.ends if end.rank == rank]
    require(own != [], f"rank {rank}", UNTOLD, "\n", started.text())
    require(own == [statuses[0]], f"rank {rank} ended with", own, "\n",
            started.text())
    require(starter == "script" or status == statuses[1],
            "mpirun ended with", status, "\n", started.text())
    return time_to_end(started, [rank])


def r1(bench):
    row = Row("R1", "from the kill to the end of the last rank")
    killed = (137, 137)
    words = ("ended without notice",)
    pairs = [(rank, place) for place in PLACES for rank in range(4)]
    if bench.tier == "A":
        pairs = [(i % 4, place) for i, place in enumerate(PLACES)]
    for rank, place in pairs:
        row.add(f"rank {rank} at {place}", partial(
            one_fault, bench, rank, place, "kill", killed, words), bar=2)
    for starter in ["script"] + starters(bench, row)[1:]:
        for rank in [2] if bench.tier == "A" else range(4):
            row.add(f"rank {rank}, {starter}", partial(
                one_fault, bench, rank, "collective", "kill", killed,
                ("without notice",), (), starter), bar=2)
    return row


def r6(bench):
    row = Row("R6", "from the fault to the end of the last rank")
    kinds = [("segv", (139, 139), ()), ("abort", (134, 134), ()),
             # mpirun's own status for a rank that MPI has not finished with.
             ("exit0", (0, 1), ("without notice",)),
             ("throw", (1, 1), ("a fault that a test asked for",))]
    places = {"A": ["collective"]}.get(bench.tier, PLACES[:4])
    for kind, statuses, words in kinds:
        for i, place in enumerate(places):
            row.add(f"{kind} at {place}", partial(
                one_fault, bench, (i + 1) % 4, place, kind, statuses, words),
                    bar=2)
    if bench.tier == "A":
        return row
    # The fault occurs in threads that send in the background.
    for zero in ("zero1", "zero2", "zero3", "hier:2"):
        for overlap in ("main", "background"):
            row.add(f"throw, {zero}, {overlap}", partial(
                one_fault, bench, 2, "collective", "throw", (1, 1),
                ("a fault that a test asked for",),
                ("--zero", zero, "--overlap", overlap)))
    return row


def check_stopped(started, rank):
    """mpirun ends the rank that stopped; the others have ended already."""
    require(started.end() == 4, started.text())
    check_survivors(started, [rank])
    require(any(f"rank {rank} did not" in line or "given up" in line
                for _, line in started.lines), started.text())


def stopped(bench, rank, place):
    run = bench.new_run()
    started = bench.start(run, fault=fault_at(rank, place, "stop"),
                          deadline=DEADLINE)
    check_stopped(started, rank)
    steps = [when for when, line in started.lines if STEP in line]
    return started.wait_for("did not") - steps[-1]


def stopped_outside(bench, rank, chance):
    """At any moment of a run whose ranks wait for each of their saves."""
    run = bench.new_run()
    started = bench.start(run, steps=100000, save_every=1,
                          more=("--save", "sync"), deadline=DEADLINE)
    wait_a_while(started, run, chance)
    begin = started.kill_rank(rank, signal.SIGSTOP)
    check_stopped(started, rank)
    shutil.rmtree(run, ignore_errors=True)
    return started.wait_for("did not") - begin


def r7(bench):
    row = Row("R7", "from the last step, or the stop, to who did not come "
              "(deadline 3 s)")
    places = ["collective"] if bench.tier == "A" else PLACES[:4]
    for i, place in enumerate(places):
        row.add(f"at {place}", partial(stopped, bench, (i + 2) % 4, place),
                bar=DEADLINE + 1)
    for i in range(0 if bench.tier == "A" else 8):
        row.add(f"rank {i % 4}, while all wait for saves", partial(
            stopped_outside, bench, i % 4, chance_of(bench.seed, "R7", i)),
                bar=DEADLINE + 1)
    return row


def paused(bench, rank, starter):
    whole = bench.digest(8)
    run = bench.new_run()
    started = bench.start(run, starter)
    started.wait_for(STEP)
    pid = started.rank_pid(rank)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(pid, signal.SIGCONT)
    require(started.end() == 0, started.text())
    require(digest_of(run) == whole, "another digest than without the pause")


def r8(bench):
    row = Row("R8", "the run goes on with the same bits")
    for starter in starters(bench, row):
        for i in range(1 if bench.tier == "A" else 5):
            row.add(f"rank {i % 4}, {starter}",
                    partial(paused, bench, i % 4, starter))
    return row


# --- R3, R11: started again.

RESUMED = "resumed from "


def restarted(bench, rank, place, kind, starter):
    """By the loop of docs/resuming.md, or by torchrun --max-restarts: ends with
    the bits of a run to which nothing happened."""
    whole = bench.digest(12)
    run = bench.new_run()
    fault = fault_at(rank, place, kind, 6) + f",once={run}.once"
    started = bench.start(run, starter, restarts=1, fault=fault, steps=12,
                          more=("--resume", "auto"))
    require(started.end() == 0, started.text())
    require(os.path.exists(run + ".once"), "no fault:\n", started.text())
    require(digest_of(run) == whole,
            "another digest than without the fault:\n", started.text())
    lost = errors_of(started)[0][0]
    return started.wait_for(STEP, after=started.index_of(RESUMED)) - lost


def r3(bench):
    row = Row("R3", "from the first word of the lost rank to the next step")
    places = ["optimizer"] if bench.tier == "A" else PLACES
    for starter in starters(bench, row):
        for i, place in enumerate(places):
            row.add(f"at {place}, {starter}", partial(
                restarted, bench, (i + 3) % 4, place, "kill", starter), bar=8)
    return row


def shrunk(bench, starter):
    """A run that has lost a rank goes on with those that remain."""
    run = bench.new_run()
    more = ("--set", "batch.global=12", "--resume", "auto")
    started = bench.start(run, starter, steps=12, more=more,
                          fault=fault_at(1, "forward", "kill", 6))
    require(started.end() != 0, started.text())
    begin = time.monotonic()
    again = bench.start(run, starter, ranks=3, steps=12, more=more)
    took = again.wait_for(STEP, after=again.index_of(RESUMED)) - begin
    require(again.end() == 0, again.text())
    require("on dp=3 " in again.text(), again.text())
    return took


def r11(bench):
    row = Row("R11", "from the start on 3 ranks to the next step")
    for starter in starters(bench, row):
        row.add(f"4 to 3, {starter}", partial(shrunk, bench, starter), bar=8)
    return row


# --- R2, R5: from outside, at any moment.

def wait_a_while(started, run, chance):
    """Until the run has saved, and then for some part of a step or more."""
    started.wait_for(STEP)
    end = time.monotonic() + 30
    while not os.path.exists(os.path.join(run, "ckpt", "latest")):
        require(time.monotonic() < end, "nothing saved:\n", started.text())
        time.sleep(0.01)
    time.sleep(chance.random() * 0.5)


def time_to_all_gone(pids, begin, seconds=60):
    while any(words_of(pid) for pid in pids):
        require(time.monotonic() < begin + seconds, "orphans:",
                [words_of(pid) for pid in pids if words_of(pid)])
        time.sleep(0.005)
    return time.monotonic() - begin


def killed_outside(bench, row, ranks, victims, chance, starter):
    """Kills ranks; the run is started again, and it goes on."""
    run = bench.new_run()
    started = bench.start(run, starter, ranks=ranks, restarts=1,
                          steps=100000, more=("--resume", "auto"))
    wait_a_while(started, run, chance)
    pids = [started.rank_pid(rank) for rank in range(ranks)]
    killed = time.monotonic()
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    gone = time_to_all_gone(pids, killed)
    after = started.index_of(RESUMED)
    said = errors_of(started, killed)
    if said:
        row.detected = max(row.detected, said[0][0] - killed)
    check_survivors(started, victims)
    started.wait_for(STEP, after=after)
    # mpirun would take seconds to forward it.
    started.kill_rank(0, signal.SIGTERM)
    require(started.end() != 0, started.text())
    require('"state": "stopped"' in summary_text(run), started.text())
    shutil.rmtree(run, ignore_errors=True)
    return gone


def summary_text(run):
    with open(os.path.join(run, "summary.json")) as file:
        return file.read()


def r2(bench):
    row = Row("R2", "from the kill until all ranks are gone; each run was "
              "then resumed")
    kinds = starters(bench, row)
    for i in range(bench.kills):
        ranks = (8, 4, 2)[i % 3]
        # A tenth of them under torchrun, which takes its time to start.
        starter = kinds[-1] if i % 10 == 9 else kinds[0]
        chance = chance_of(bench.seed, "R2", i)
        victim = chance.randrange(ranks)
        row.add(f"kill {i}, rank {victim} of {ranks}, {starter}", partial(
            killed_outside, bench, row, ranks, [victim], chance, starter),
                ranks, 2)
    return row


def killed_starter(bench, starter):
    """Nobody watches the ranks: they end with what has started them."""
    run = bench.new_run()
    started = bench.start(run, starter, steps=100000, bare=True)
    started.wait_for(STEP)
    pids = [started.rank_pid(rank) for rank in range(4)]
    os.kill(started.starter_pid(), signal.SIGKILL)
    took = time_to_all_gone(pids, time.monotonic(), 30)
    require(started.end() == 137, started.text())
    return took


def r5(bench):
    row = Row("R5", "from the kill to the end of the last rank")
    for victims in ([1, 2], [0, 3], [0, 1, 2, 3]):
        chance = chance_of(bench.seed, "R5", victims)
        row.add(f"ranks {victims}", partial(
            killed_outside, bench, row, 4, victims, chance, "mpirun"), bar=3)
    for starter in starters(bench, row):
        row.add(starter, partial(killed_starter, bench, starter), bar=3)
    return row


# --- R4: rank 0, at which the others meet, over sockets.

def waiting_rank(bench, rank, port):
    """One of four ranks that another one will never join."""
    environment = dict(os.environ, CANZONA_RANK=str(rank),
                       CANZONA_NUM_RANKS="4",
                       CANZONA_RENDEZVOUS=f"127.0.0.1:{port}")
    return subprocess.Popen(
        [bench.canzona, "train"] + SMALL +
        ["--steps", "2", "--deadline", f"{DEADLINE:g}s"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, env=environment, cwd=bench.folder, text=True)


def is_connected(pid, port):
    with open(f"/proc/{pid}/net/tcp") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            pass
    return any(words[2].endswith(f":{port:04X}") and words[3] == "01" and
               f"socket:[{words[9]}]" in links for words in lines)


def meeting_lost(bench, is_killed):
    """Rank 0 is killed while ranks 1 and 2 wait with it for rank 3, or never
    comes at all."""
    port = free_port()
    others = [waiting_rank(bench, rank, port) for rank in (1, 2)]
    begin = time.monotonic()
    if is_killed:
        first = waiting_rank(bench, 0, port)
        end = time.monotonic() + 30
        while not all(is_connected(one.pid, port) for one in others):
            require(time.monotonic() < end, "the ranks do not meet")
            time.sleep(0.01)
        first.kill()
        first.communicate()
        begin = time.monotonic()
    for one in others:
        try:
            _, text = one.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            one.kill()
            raise Failure("a rank waits for ever for rank 0")
        require(one.returncode == 4, one.returncode, text)
        require("rank 0" in text or f":{port}" in text, text)
    return time.monotonic() - begin


def r4(bench):
    row = Row("R4", "from the kill of rank 0 to the end of the last rank "
              "(deadline 3 s)")
    row.add("killed while others are awaited",
            partial(meeting_lost, bench, True), bar=DEADLINE + 1)
    row.add("never comes", partial(meeting_lost, bench, False),
            bar=DEADLINE + 1)
    for starter in ["script"] + starters(bench, row)[1:]:
        for place in PLACES:
            row.add(f"killed at {place}, {starter}", partial(
                one_fault, bench, 0, place, "kill", (137, 0), (), (), starter),
                    bar=2)
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
    row.add("3 processes for 4 ranks", partial(wrong_world, bench))
    row.add("one never comes", partial(never_comes, bench))
    return row


# --- R12, R13: asked to end, or to save.

def asked(bench, number, whom, twice=False, save_every=2, starter="mpirun",
          wrapper=False):
    """`whom`: a rank, or None: what has started them."""
    run = bench.new_run()
    started = bench.start(run, starter, steps=100000, save_every=save_every,
                          patience=5, wrapper=wrapper)
    started.wait_for(STEP)
    pid = started.starter_pid() if whom is None else started.rank_pid(whom)
    pids = [started.rank_pid(rank) for rank in range(4)]
    os.kill(pid, number)
    begin = time.monotonic()
    if twice:
        time.sleep(0.4)
        os.kill(pid, number)
    require(started.end() != 0, started.text())
    took = time_to_all_gone(pids, begin)
    if not twice:
        # mpirun waits before it passes a signal on; rank 0 tells of it.
        if whom is None:
            took -= started.wait_for("ending after this step") - begin
        # torchrun passes SIGINT on, mpirun sends SIGTERM for both.
        require([end.status for end in started.ends] ==
                [143] * (4 if started.watched else 0),
                [end.status for end in started.ends], "\n", started.text())
        require('"state": "stopped"' in summary_text(run), started.text())
    verify = subprocess.run([bench.canzona, "ckpt", "verify", run],
                            capture_output=True, text=True)
    require(twice or verify.returncode == 0, verify.stderr)
    shutil.rmtree(run, ignore_errors=True)
    return took


def r12(bench):
    row = Row("R12", "from SIGTERM at the ranks to the end of the last one")
    for starter in starters(bench, row):
        for whom in (None, 2):
            name = f"{starter}, rank {whom}" if whom else starter
            row.add(f"to {name}", partial(
                asked, bench, signal.SIGTERM, whom, starter=starter), bar=15)
            # Every step is saved: a save is on its way.
            row.add(f"to {name}, while it saves", partial(
                asked, bench, signal.SIGTERM, whom, save_every=1,
                starter=starter), bar=15)
        row.add(f"to {starter}, ranks below a wrapper script", partial(
            asked, bench, signal.SIGTERM, None, save_every=1, starter=starter,
            wrapper=True), bar=15)
    return row


def saved_now(bench, starter):
    """mpirun forwards SIGUSR1 to all ranks; under torchrun one gets it."""
    run = bench.new_run()
    started = bench.start(run, starter, steps=100000, save_every=1000000)
    started.wait_for(STEP)
    os.kill(started.starter_pid() if starter == "mpirun"
            else started.rank_pid(2), signal.SIGUSR1)
    begin = time.monotonic()
    while not os.path.exists(os.path.join(run, "ckpt", "latest")):
        require(time.monotonic() < begin + 30, "nothing saved:\n",
                started.text())
        time.sleep(0.01)
    took = time.monotonic() - begin
    steps = sum(STEP in line for _, line in started.lines)
    started.wait_for(STEP, count=steps + 1)
    os.kill(started.starter_pid(), signal.SIGTERM)
    require(started.end() != 0, started.text())
    return took


def r13(bench):
    row = Row("R13", "from the signal at the ranks to the end, or to the "
              "checkpoint")
    for starter in starters(bench, row):
        row.add(f"SIGINT once, {starter}", partial(
            asked, bench, signal.SIGINT, None, starter=starter), bar=5)
        row.add(f"SIGINT twice, {starter}", partial(
            asked, bench, signal.SIGINT, None, twice=True, starter=starter),
                bar=2)
        row.add(f"SIGUSR1, {starter}", partial(saved_now, bench, starter),
                bar=5)
    return row


# --- R14: all of them, one after the other.

def last_step(started):
    for _, line in reversed(list(started.lines)):
        found = re.search(r"step: *([0-9]+) .*grad_norm:", line)
        if found:
            return int(found.group(1))
    return 0


def hit(started, chance):
    """One fault, to a rank or to what has started them."""
    kind = chance.choice(SOAK_KINDS)
    time.sleep(0.1 * chance.random())
    if kind == "ask":
        os.kill(started.starter_pid(), signal.SIGTERM)
    else:
        started.kill_rank(chance.randrange(4), getattr(signal, "SIG" + kind))
    return kind


def run_with_faults(bench, run, starter, steps, interval, marks, chance):
    """Faults when it comes to each of these steps for the first time. Returns
    their kinds, and how many steps were computed."""
    steps_run, kinds, status = 0, [], 143
    # The loop ends after a signal, with mpirun's status, and begins again.
    while status != 0:
        before = len(kinds)
        started = bench.start(run, starter, steps=steps, save_every=interval,
                              restarts=100, more=("--resume", "auto"),
                              deadline=DEADLINE)
        while started.process.poll() is None:
            if marks and last_step(started) >= marks[0]:
                try:
                    kinds.append(hit(started, chance))
                    marks.pop(0)
                except (ProcessLookupError, Failure):
                    pass  # the rank was not there; again
            time.sleep(0.02)
        status = started.end(600)
        ended = {"TERM", "ask"} & set(kinds[before:])
        require(status == 0 or ended, "ended with", status, "\n",
                started.text())
        steps_run += sum(STEP in line for _, line in started.lines)
    return kinds, steps_run


def soak(bench, row, starter, steps, num_faults, interval):
    chance = chance_of(bench.seed, "R14", starter)
    whole = bench.digest(steps, save_every=interval)
    run = bench.new_run()
    marks = sorted(chance.sample(range(2, steps - 5), num_faults))
    begin = time.monotonic()
    kinds, steps_run = run_with_faults(bench, run, starter, steps, interval,
                                       marks, chance)
    require(len(kinds) == num_faults, "only", len(kinds), "faults")
    require(digest_of(run) == whole, "another digest than without faults")
    redone = steps_run - steps
    row.notes.append(
        f"{starter}: {redone} of {steps} steps done again after " +
        ", ".join(f"{kinds.count(kind)} {kind}" for kind in SOAK_KINDS) +
        "; equal bits")
    require(redone <= num_faults * interval, redone, "steps again")
    return time.monotonic() - begin


def r14(bench):
    row = Row("R14", "all of it")
    for starter in starters(bench, row):
        row.add(f"500 steps, 20 faults, {starter}", partial(
            soak, bench, row, starter, 500, 20, 10), bar=600)
    return row


RANK_ROWS = {"R1": r1, "R2": r2, "R3": r3, "R4": r4, "R5": r5, "R6": r6,
             "R7": r7, "R8": r8, "R10": r10, "R11": r11, "R12": r12,
             "R13": r13, "R14": r14}
