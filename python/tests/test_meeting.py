"""Ranks that meet before they read layouts: requests, late ranks, timeouts."""

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from canzona import _meeting
from conftest import errors, spawn
from layouts import sharded


class Counted:
    """A store that counts what it is asked."""

    def __init__(self, store):
        self._store = store
        self.requests = 0

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*arguments):
            self.requests += 1
            return method(*arguments)

        return call


def in_threads(ranks, function):
    """What function(rank) returns, by rank."""
    found = {}

    def run(rank):
        found[rank] = function(rank)

    threads = [threading.Thread(target=run, args=(r,)) for r in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[r] for r in ranks]


def a_store(kind, tmp_path):
    return {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(tmp_path / "store"), 1),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, 1, is_master=True),
        "prefix": lambda: dist.PrefixStore("some", dist.HashStore()),
    }[kind]()


@pytest.mark.parametrize(
    "kind, world",
    [("hash", 2), ("hash", 4), ("hash", 64), ("file", 3), ("prefix", 3)],
)
def test_requests_do_not_depend_on_the_number_of_ranks(kind, world, tmp_path):
    store = a_store(kind, tmp_path)

    def twice(rank):
        counted = Counted(store)
        texts = [
            _meeting.Meeting(counted, rank, range(world), 600).come("a", "w")
            for _ in range(2)
        ]
        return texts, counted.requests

    for texts, requests in in_threads(range(world), twice):
        assert texts == ["", ""] and requests <= 2 * 4


def requests():
    """Of meetings that one rank is late for."""
    counted = Counted(_meeting._store())
    usual, _meeting._store = _meeting._store, lambda: counted
    try:
        for _ in range(2):
            if dist.get_rank() == dist.get_world_size() - 1:
                time.sleep(1)  # others who ask again would do so now
            _meeting.meet("a", "w")
    finally:
        _meeting._store = usual
    return counted.requests


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_that_wait_do_not_ask_again(world):
    assert max(spawn(world, requests)) <= 2 * 4


@pytest.mark.parametrize("kind", ["hash", "file", "prefix", "tcp"])
def test_a_rank_that_is_too_late_is_told_so(kind, tmp_path):
    store = a_store(kind, tmp_path)

    def come(rank):
        # The client of a TCPStore does one thing at a time.
        if kind == "tcp" and rank == 0:
            client = store
        elif kind == "tcp":
            client = dist.TCPStore("127.0.0.1", store.port, is_master=False)
        else:
            client = store
        return _meeting.Meeting(client, rank, range(3), 0.5).come("a", "w")

    first = in_threads(range(2), come)
    assert first[0] == first[1] == come(2)
    assert "ranks [2] did not come" in first[0]
    # They are ready for the next meeting.
    assert in_threads(range(3), come) == ["", "", ""]


def test_a_rank_that_never_came_is_at_the_next_meeting():
    """It has not heard that the others met without it."""
    store = dist.HashStore()

    def come(rank):
        return _meeting.Meeting(store, rank, range(3), 2).come("a", "w")

    assert "ranks [2] did not come" in in_threads(range(2), come)[0]

    def a_little_apart(rank):
        time.sleep(0 if rank == 2 else 0.2)
        return come(rank)

    for ranks in (come, a_little_apart):
        assert in_threads(range(3), ranks) == ["", "", ""]


def test_every_kind_of_parameters_is_looked_for(monkeypatch):
    """Rank 2 has noted what rank 1 has; rank 0, which is first, has others."""
    monkeypatch.setattr(_meeting, "PATIENCE", 0.2)
    monkeypatch.setattr(_meeting, "_LONGEST_WAIT", 0.1)
    store = dist.HashStore()
    store.add(_meeting._noted("b", 2), 1)

    def come(rank):
        meeting = _meeting.Meeting(store, rank, range(3), 600)
        return meeting.come("ab"[rank], "w")

    first, second = in_threads(range(2), come)
    assert first == second
    assert "plain tensor on rank 2" in first and "ranks on rank 1" in first
    assert store.check([_meeting._refused("b", 2, 1)])


@pytest.mark.parametrize("is_closed", [False, True])
def test_notes_of_closed_optimizers_do_not_count(is_closed, monkeypatch):
    """Rank 1 has updated such parameters for itself before, and is late."""
    monkeypatch.setattr(_meeting, "PATIENCE", 0.2)
    monkeypatch.setattr(_meeting, "_LONGEST_WAIT", 0.1)
    store = dist.HashStore()
    monkeypatch.setattr(_meeting.dist, "get_rank", lambda: 1)
    watch = _meeting.Watch(store, "a")
    if is_closed:
        watch.withdraw()

    def come(rank):
        time.sleep(1.0 * rank)
        return _meeting.Meeting(store, rank, range(2), 600).come("a", "w")

    texts = in_threads(range(2), come)
    if is_closed:
        assert texts == ["", ""]
    else:
        assert all("plain tensor on rank 1" in text for text in texts)


def closed_plain_ones():
    """Notes that an optimizer of plain tensors leaves, and takes back."""
    model = layouts.fresh()
    optimizer = canzona.Muon(model)
    layouts.steps(model, optimizer, 1, 1)
    more = nn.Parameter(torch.ones(4, 4))
    optimizer.add_param_group({"params": [("more", more)]})
    identity = optimizer._watch._withdrawn.split("/")[1]
    first = _meeting.identity_of(
        (n, p.shape) for n, p in optimizer._members() if n != "more"
    )
    optimizer.close()
    meeting = _meeting.Meeting(_meeting._store(), 0, range(2), 1)
    rank = dist.get_rank()
    found = []
    for meeting._identity in (first, identity):
        noted = _meeting._noted(meeting._identity, rank)
        assert meeting._store.add(noted, 0) == 1
        found.append(meeting._has_note(rank))
    return found


def test_closing_takes_notes_back():
    assert spawn(2, closed_plain_ones) == [[False, False]] * 2


def plain_on_rank_1(begins_late):
    """Rank 1 steps for itself; the process group is impatient."""
    store, minutes = _meeting._store(), timedelta(minutes=5)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    if dist.get_rank() == 0:
        if not begins_late:
            store.wait(["begun"], minutes)
        try:
            return canzona.Muon(sharded()).plan
        finally:
            store.set("ended", "")
    if begins_late:
        store.wait(["ended"], minutes)
    model = layouts.fresh()
    optimizer = canzona.Muon(model)
    while True:  # until others tell it
        layouts.steps(model, optimizer, 1, 1)
        store.set("begun", "")
        time.sleep(0.05)


@pytest.mark.parametrize(
    "begins_late, words",
    [
        (False, "parameter up.weight: is a plain tensor on rank 1"),
        (True, "ranks [1] did not come to read layouts within 2 s"),
    ],
)
def test_a_short_timeout_ends_ranks_of_both_kinds(begins_late, words):
    for kind, text in errors(2, plain_on_rank_1, begins_late, timeout=200):
        assert kind == "UsageError" and words in text, text
