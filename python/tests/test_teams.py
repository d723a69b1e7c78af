"""Matrices that several ranks share have the bits of whole ones, on every
layout, and their states travel like all others."""

import functools

import pytest
import torch
from torch import nn

import layouts
from canzona import UsageError
from conftest import spawn

# Links on which every team pays that shortens the work.
FAST = "intra=1000TB/s,inter=1000TB/s,latency=0s"
RUNS = {
    "muon": ("muon", {"strips": "4"}),
    "muon, bf16 wire": ("muon", {"strips": "4", "wire": "bf16"}),
    "soap strips": ("soap", {"strips": "4", "ignored_dims": "1"}),
    "soap helpers": ("soap", {"max_preconditioner_dim": 256}),
    "soap blocks": (
        "soap",
        {"max_preconditioner_dim": 128, "long_sides": "cut"},
    ),
    "shampoo blocks": ("shampoo", {"max_preconditioner_dim": 128}),
}
LAYOUTS = ("fsdp4", "hsdp", "fsdp_tp", "columns2")


class Large(layouts.Model):
    """Beside small matrices some that are worth a team."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(520, 24, bias=False)
        self.wider = nn.Linear(600, 40)
        self.square = nn.Linear(144, 144, bias=False)


def runs(teams):
    more = {"teams": teams, "links": FAST, "precondition_frequency": 2}
    return {
        name: (
            rule,
            {k: v for k, v in {**more, **options}.items()
             if rule != "muon" or k != "precondition_frequency"},
            torch.float32,
        )
        for name, (rule, options) in RUNS.items()
    }


def large(function, *arguments):
    layouts.Model, before = Large, layouts.Model
    try:
        return function(*arguments)
    finally:
        layouts.Model = before


def shared(layout, options, rule):
    """How many matrices the plan has shared."""
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, rule, **options)
    return sum(isinstance(r["owner"], list) for r in optimizer.plan.audit)


@functools.cache
def alone():
    return large(layouts.train_all, "one", runs("off"), 6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_teams_do_not_change_a_bit(layout):
    expected = alone()
    found = spawn(
        layouts.LAYOUTS[layout],
        large,
        layouts.train_all,
        layout,
        runs("auto"),
        6,
    )
    for rank, got in enumerate(found):
        for name in RUNS:
            unlike = [
                k
                for k in expected[name][1]
                if got[name][1].get(k) != expected[name][1][k]
            ]
            assert not unlike, (rank, name, unlike)
            assert got[name][0] == expected[name][0], (rank, name)


def count_shared(layout):
    return {
        name: shared(layout, options, rule)
        for name, (rule, options, _) in runs("auto").items()
    }


def test_matrices_are_shared_where_it_pays():
    (found, *_) = spawn(4, large, count_shared, "fsdp4")
    assert all(count > 0 for count in found.values()), found


def save_and_load(name, folder):
    """Trains with teams, saves, loads without teams, trains; and back."""
    from test_checkpoint import _dcp

    rule, options, _ = runs("auto")[name]
    model, told = layouts.build("fsdp4")
    optimizer = layouts.optimizer_of(model, told, rule, **options)
    layouts.steps(model, optimizer, 1, 3)
    digests = []
    for step, teams in ((4, "off"), (5, "auto")):
        _dcp(model, optimizer, f"{folder}/{step}", False, load=False)
        model, told = layouts.build("fsdp4")
        optimizer = layouts.optimizer_of(
            model, told, rule, **{**options, "teams": teams}
        )
        _dcp(model, optimizer, f"{folder}/{step}", False, load=True)
        layouts.steps(model, optimizer, step, step)
        digests.append(layouts.digest(model, optimizer))
    return digests


def trained(name):
    rule, options, _ = runs("auto")[name]
    return [layouts.train("one", rule, options, last) for last in (4, 5)]


@pytest.mark.parametrize("name", ["muon", "soap strips", "shampoo blocks"])
def test_states_in_parts_are_saved_and_loaded(name, tmp_path):
    expected = large(trained, name)
    for digests in spawn(4, large, save_and_load, name, str(tmp_path)):
        assert [d[0] for d in digests] == [e[0] for e in expected], [
            [k for k in e[1] if d[1].get(k) != e[1][k]]
            for d, e in zip(digests, expected)
        ]


def copied(name):
    import copy

    rule, options, _ = runs("auto")[name]
    model, told = layouts.build("fsdp4")
    optimizer = layouts.optimizer_of(model, told, rule, **options)
    layouts.steps(model, optimizer, 1, 3)
    twin = copy.deepcopy(optimizer)
    before = layouts.digest(model, optimizer)
    twin.state_dict()
    return before == layouts.digest(model, twin)


def test_a_copy_has_the_parts_of_states():
    assert all(spawn(4, large, copied, "shampoo blocks"))


def refused_options(name, option, value):
    """Whether a step refuses an option that a team cannot follow, and the next
    step with the old value has the bits of one that was never changed."""
    rule, options, _ = runs("auto")[name]
    digests = []
    for changes in (True, False):
        model, told = layouts.build("fsdp4")
        optimizer = layouts.optimizer_of(model, told, rule, **options)
        layouts.steps(model, optimizer, 1, 2)
        if changes:
            groups = [g for g in optimizer.param_groups if g["rule"] == rule]
            before = [dict(g) for g in groups]
            for group in groups:
                group[option] = value
            with pytest.raises(UsageError, match="options change how"):
                layouts.steps(model, optimizer, 3, 3)
            for group, old in zip(groups, before):
                group.clear()
                group.update(old)
        layouts.steps(model, optimizer, 3, 3)
        digests.append(layouts.digest(model, optimizer))
    return digests


@pytest.mark.parametrize(
    "name, option, value",
    [("muon", "strips", 1), ("muon", "ns_steps", 7), ("soap strips", "strips", 1)],
)
def test_options_that_a_team_cannot_follow_change_nothing(name, option, value):
    for changed, plain in spawn(4, large, refused_options, name, option, value):
        assert changed == plain


def disagreeing():
    """Refreshes of a team exchange more than other steps. Ranks that disagree
    on the next one, or of which one fails before it, change nothing, and the
    steps that follow have the bits of ones without a mistake."""
    rule, options, _ = runs("auto")["soap strips"]
    me = torch.distributed.get_rank()
    mistakes = {
        "none": (None, None),
        "one rank has another frequency": (lambda: me == 1, None),
        "all have another, one fails": (lambda: True, lambda: me == 1),
    }
    told, digests = {}, {}
    for what, (changes, fails) in mistakes.items():
        model, layout = layouts.build("fsdp4")
        optimizer = layouts.optimizer_of(model, layout, rule, **options)
        groups = [g for g in optimizer.param_groups if g["rule"] == rule]
        layouts.steps(model, optimizer, 1, 3)
        if changes is not None:
            before = [dict(g) for g in groups]
            for group in groups:
                if changes():
                    group["precondition_frequency"] = 5
                if fails is not None and fails():
                    group["lr"] = "fast"
            try:
                layouts.steps(model, optimizer, 4, 4)
                optimizer.skipped_steps  # on a GPU an error is told later
                told[what] = ""
            except Exception as error:
                told[what] = str(error)
            for group, old in zip(groups, before):
                group.update(old)
        layouts.steps(model, optimizer, 4, 6)
        digests[what] = layouts.digest(model, optimizer)[0]
    return told, digests


def check_disagreeing(found):
    for told, digests in found:
        assert len(told) == 2 and all(told.values()), told
        assert len(set(digests.values())) == 1, digests


def test_ranks_that_disagree_on_a_refresh_change_nothing():
    check_disagreeing(spawn(4, large, disagreeing))


@pytest.mark.parametrize(
    "wrong", [{"teams": "some"}, {"teams": 3}, {"links": 5}, {"links": "fast"}]
)
def test_wrong_words_are_named(wrong):
    import canzona

    (key,) = wrong
    with pytest.raises(UsageError, match=key.rstrip("s")):
        canzona.Muon(nn.Linear(4, 4), **wrong).plan
