"""Rows R1 to R14 of docs/reliability.md: runs of `canzona train` on processes
that are hit by faults. Each function returns the row with its trials."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from functools import partial

from launched import (SMALL, Failure, Launched, descendants, digest_of,
                      require, words_of)
from trials import Row, chance_of

PLACES = ["forward", "backward", "collective", "optimizer", "save"]
DEADLINE = 3.0  # of collectives, in seconds
STEP = "  grad_norm:"  # in the line of every step
# Signals to a rank; ask: SIGTERM to the launcher.
SOAK_KINDS = ["KILL", "SEGV", "ABRT", "STOP", "TERM", "ask"]


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
        row.add(f"rank {rank} at {place}", partial(
            one_fault, bench, rank, place, "kill", 4, "lost (SIGKILL)"), bar=2)
    for rank in [2] if bench.tier == "A" else range(4):
        row.add(f"rank {rank}, sockets", partial(
            one_fault, bench, rank, "collective", "kill", 4, "lost (SIGKILL)",
            ("--transport", "tcp")), bar=2)
    return row


def r6(bench):
    row = Row("R6", "from the fault to the end of the last rank")
    kinds = [("segv", 4, "lost (SIGSEGV"), ("abort", 4, "lost (SIGABRT"),
             ("exit0", 4, "ended before the others"),
             ("throw", 1, "failed (exit status 1)")]
    places = {"A": ["collective"]}.get(bench.tier, PLACES[:4])
    for kind, status, words in kinds:
        for i, place in enumerate(places):
            row.add(f"{kind} at {place}", partial(
                one_fault, bench, (i + 1) % 4, place, kind, status, words),
                    bar=2)
    if bench.tier == "A":
        return row
    # The fault occurs in threads that send in the background.
    for zero in ("zero1", "zero2", "zero3", "hier:2"):
        for overlap in ("main", "background"):
            row.add(f"throw, {zero}, {overlap}", partial(
                one_fault, bench, 2, "collective", "throw", 1,
                "failed (exit status 1)",
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


def stopped_outside(bench, rank, chance):
    """At any moment of a run whose ranks wait for each of their saves."""
    run = bench.new_run()
    launched = bench.launch(run, ["--max-restarts", "0", "--grace", "1s"],
                            steps=100000, save_every=1, more=("--save", "sync"))
    wait_a_while(launched, run, chance)
    launched.kill_rank(rank, signal.SIGSTOP)
    begin = time.monotonic()
    require(launched.end() == 4, launched.text())
    check_survivors(launched, [rank])
    check_last_line(launched, f"rank {rank} stopped", "exit 4")
    shutil.rmtree(run, ignore_errors=True)
    return launched.wait_for("did not") - begin


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


def paused(bench, rank):
    whole = bench.digest(8)
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
    row = Row("R8", "the run goes on with the same bits")
    for i in range(1 if bench.tier == "A" else 10):
        row.add(f"rank {i % 4}", partial(paused, bench, i % 4))
    return row


# --- R3, R11: started again.

def restarted(bench, rank, place):
    whole = bench.digest(12)
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
    places = ["optimizer"] if bench.tier == "A" else PLACES
    for i, place in enumerate(places):
        row.add(f"at {place}", partial(restarted, bench, (i + 3) % 4, place),
                bar=5)
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
    row.add("4 to 3", partial(shrunk, bench), bar=8)
    return row


# --- R2, R5: from outside, at any moment.

def wait_a_while(launched, run, chance):
    """Until the run has saved, and then for some part of a step or more."""
    launched.wait_for(STEP)
    end = time.monotonic() + 30
    while not os.path.exists(os.path.join(run, "ckpt", "latest")):
        require(time.monotonic() < end, "nothing saved:\n", launched.text())
        time.sleep(0.01)
    time.sleep(chance.random() * 0.5)


def killed_outside(bench, row, ranks, victims, chance):
    """Kills ranks; the launcher starts the run again, and it goes on."""
    run = bench.new_run()
    launched = Launched(
        bench.canzona, ["--ranks", str(ranks), "--max-restarts", "1"],
        bench.train(run, 100000), "", bench.folder)
    wait_a_while(launched, run, chance)
    pids = [launched.rank_pid(victim) for victim in victims]
    killed = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
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
    for i in range(bench.kills):
        ranks = (8, 4, 2)[i % 3]
        chance = chance_of(bench.seed, "R2", i)
        victim = chance.randrange(ranks)
        row.add(f"kill {i}, rank {victim} of {ranks}", partial(
            killed_outside, bench, row, ranks, [victim], chance), ranks, 2)
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
        chance = chance_of(bench.seed, "R5", victims)
        row.add(f"ranks {victims}", partial(
            killed_outside, bench, row, 4, victims, chance), bar=3)
    for kills_mpirun in (False, True):
        row.add("mpirun" if kills_mpirun else "the launcher",
                partial(killed_launcher, bench, kills_mpirun), bar=3)
    return row


# --- R4: rank 0, at which the others meet, over sockets.

def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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
    for place in PLACES:
        row.add(f"killed at {place}", partial(
            one_fault, bench, 0, place, "kill", 4, "lost (SIGKILL)",
            ("--transport", "tcp")), bar=2)
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

def asked(bench, number, whom, status, twice=False, save_every=2):
    run = bench.new_run()
    launched = bench.launch(run, [], steps=100000, save_every=save_every)
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
        row.add(f"to {whom}", partial(
            asked, bench, signal.SIGTERM, whom, 143), bar=15)
        # Every step is saved: a save is on its way.
        row.add(f"to {whom}, while it saves", partial(
            asked, bench, signal.SIGTERM, whom, 143, save_every=1), bar=15)
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
    row.add("SIGINT once", partial(
        asked, bench, signal.SIGINT, "launcher", 130), bar=5)
    row.add("SIGINT twice", partial(
        asked, bench, signal.SIGINT, "launcher", 130, twice=True), bar=2)
    row.add("SIGUSR1", partial(saved_now, bench), bar=5)
    return row


# --- R14: all of them, one after the other.

def last_step(launched):
    for _, line in reversed(list(launched.lines)):
        found = re.search(r"step: *([0-9]+) .*grad_norm:", line)
        if found:
            return int(found.group(1))
    return 0


def hit(launched, chance):
    """One fault, to a rank or to the launcher."""
    kind = chance.choice(SOAK_KINDS)
    time.sleep(0.1 * chance.random())
    if kind == "ask":
        launched.process.send_signal(signal.SIGTERM)
    else:
        launched.kill_rank(chance.randrange(4), getattr(signal, "SIG" + kind))
    return kind


def run_with_faults(bench, run, steps, interval, marks, chance):
    """Faults when it comes to each of these steps for the first time. Returns
    their kinds, and how many steps were computed."""
    command = bench.train(run, steps, save_every=interval)
    steps_run, kinds, status, resume = 0, [], 143, []
    # 143 also where a rank was lost while the launcher had been asked to end.
    while status == 143:
        launched = Launched(
            bench.canzona,
            ["--ranks", "4", "--max-restarts", "100", "--grace", "1s"],
            command + resume, "", bench.folder)
        resume = ["--resume", "auto"]
        while launched.process.poll() is None:
            if marks and last_step(launched) >= marks[0]:
                try:
                    kinds.append(hit(launched, chance))
                    marks.pop(0)
                except (ProcessLookupError, Failure):
                    pass  # the rank was not there; again
            time.sleep(0.02)
        status = launched.end(600)
        require(status in (0, 143), "ended with", status, "\n",
                launched.text())
        steps_run += sum(STEP in line for _, line in launched.lines)
    return kinds, steps_run


def soak(bench, row, steps, num_faults, interval):
    chance = chance_of(bench.seed, "R14")
    whole = bench.digest(steps, save_every=interval)
    run = bench.new_run()
    marks = sorted(chance.sample(range(2, steps - 5), num_faults))
    begin = time.monotonic()
    kinds, steps_run = run_with_faults(bench, run, steps, interval, marks,
                                       chance)
    require(len(kinds) == num_faults, "only", len(kinds), "faults")
    require(digest_of(run) == whole, "another digest than without faults")
    redone = steps_run - steps
    row.notes.append(
        f"{redone} of {steps} steps done again after " +
        ", ".join(f"{kinds.count(kind)} {kind}" for kind in SOAK_KINDS) +
        "; equal bits")
    require(redone <= num_faults * interval, redone, "steps again")
    return time.monotonic() - begin


def r14(bench):
    row = Row("R14", "all of it")
    row.add("500 steps, 20 faults", partial(soak, bench, row, 500, 20, 10),
            bar=600)
    return row


RANK_ROWS = {"R1": r1, "R2": r2, "R3": r3, "R4": r4, "R5": r5, "R6": r6,
             "R7": r7, "R8": r8, "R10": r10, "R11": r11, "R12": r12,
             "R13": r13, "R14": r14}
