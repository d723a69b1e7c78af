"""An optimizer's life: what scripts do to it, in random orders (life_check.py).

pytest python/tests/test_life.py --life 3000            # of each family
pytest python/tests/test_life.py --life-one fsdp2:17    # one seed alone
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

import canzona
import life
from life_copies import GOOD
from life_check import (
    FAMILIES,
    check,
    parsed,
    report,
    sequence,
    shrink,
    wrong_with,
)
from life_refusals import AS_TORCH, BAD

DOCS = Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"
QUICK, REST = 34, 66  # sequences of each family


def passes(sequences):
    found = check(sequences)
    assert not found.wrong, "\n" + report(found)
    return found


def lives(family, first, count):
    found = passes([sequence(family, first + k) for k in range(count)])
    assert found.refused <= 0.1 * found.total, found.refused


@pytest.mark.parametrize("family", FAMILIES)
def test_quick_lives(family):
    lives(family, 0, QUICK)


@pytest.mark.parametrize("family", FAMILIES)
def test_more_lives(family, request):
    lives(family, QUICK, request.config.getoption("--life") or REST)


def test_one_life(request):
    text = request.config.getoption("--life-one")
    if not text:
        pytest.skip("no sequence was named by --life-one")
    passes([parsed(text)])


# What is refused.


@pytest.mark.parametrize("family", FAMILIES)
def test_quick_refusals(family):
    """Each of them, before the first step and after some."""
    some = []
    for number, name in enumerate(sorted(BAD)):
        if family in BAD[name].families:
            for first, then in (("look", number), ("train", 1), ("train", 7)):
                actions = (("construct", number), (first, 2), (name, then))
                base = sequence(family, 1000 + number)
                some.append(replace(base, actions=actions))
    passes(some)


@pytest.mark.parametrize("name", sorted(BAD))
def test_docs_say_what_is_refused(name):
    words = " ".join(DOCS.read_text().split())
    assert BAD[name].sentence == AS_TORCH or BAD[name].sentence in words


# The suite itself.


def test_every_action_occurs():
    for family in FAMILIES:
        seen = {
            name
            for seed in range(QUICK)
            for name, _ in sequence(family, seed).actions
        }
        wanted = {n for n, a in GOOD.items() if family in a.families}
        assert wanted <= seen, wanted - seen


def test_a_sequence_is_its_text():
    for family in FAMILIES:
        of = sequence(family, 3)
        assert parsed(str(of)) == of == parsed(f"{family}:3")


class Forgetful(canzona.AdamW):
    """Loses its momentum when it gets more parameters."""

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        for state in getattr(self, "_state", {}).values():
            for key in ("exp_avg", "exp_avg_sq"):
                state[key].zero_()


class Shy(canzona.AdamW):
    """Refuses to be copied."""

    def __getstate__(self):
        raise canzona.UsageError("not now")


class Careless(canzona.AdamW):
    """Changes a rate before it refuses."""

    def load_state_dict(self, state_dict):
        if not state_dict:
            self.param_groups[0]["lr"] = 1.0
        super().load_state_dict(state_dict)


class Deaf(canzona.Muon):
    """Does not hear of rates that change."""

    def step(self, closure=None):
        self.param_groups[0]["lr"] = 0.02
        return super().step(closure)


@pytest.mark.parametrize(
    "kind, family, actions, words",
    [
        (
            Forgetful,
            "adamw",
            "look:1,train:1,hook:1,add_param_group:3,freeze:4",
            ["differs from torch's"],
        ),
        (Shy, "adamw", "train:1,look:2,deepcopy:2", ["UsageError not now"]),
        (Careless, "adamw", "train:1,load_nothing:1", ["changed options"]),
        (Deaf, "ddp2", "train:1,hook:3,set_rate:3,train:2", ["on one rank"]),
    ],
)
def test_broken_optimizers_are_found(kind, family, actions, words, monkeypatch):
    monkeypatch.setitem(life.KINDS, kind.rule, kind)
    # A list of some of the parameters, of which none is frozen.
    begin = next(k for k in range(99) if _adds(family, k))
    seed = next(
        k
        for k in range(99)
        if sequence(family, k).rule == kind.rule
        and sequence(family, k).dtype == torch.float32
    )
    whole = parsed(f"{family}:{seed}:construct:{begin},{actions}")
    text = wrong_with(whole)
    for word in words:
        assert word in text, text
    short = shrink(whole, lambda s: bool(wrong_with(s)))
    assert len(short.actions) < len(whole.actions)
    assert wrong_with(short)


def _adds(family, number):
    of = life.Life(family, "torch", "adamw", torch.float32)
    GOOD["construct"].act(of, Random(number))
    return (
        of.recipe.form == "named"
        and not of.recipe.frozen
        and len(of.recipe.members()) < len(of.named())
    )
