"""cost=: plans by measured times."""

import json
import pickle

import pytest
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import canzona
from canzona._errors import UsageError
from conftest import errors, spawn
from nets import net


def table(wide=1e-3, narrow=1e-4):
    """Seconds of a 10 x 40 matrix and of a 10 x 20 one."""
    return {
        "format": "canzona.cost_table",
        "version": 1,
        "device": "Toy 1",
        "kind": "cpu",
        "precision": "fp32",
        "date": "2025-03-31",
        "measurements": [
            {
                "rule": "muon",
                "algorithm": "gram",
                "options": {"newton_schulz": "gram"},
                "entries": [
                    {"rows": 10, "cols": 20, "seconds": narrow},
                    {"rows": 10, "cols": 40, "seconds": wide},
                ],
            }
        ],
    }


def owned(cost):
    """By rank the widths of the matrices that it owns, under DDP."""
    model = nn.Sequential(
        *(nn.Linear(n, 10, bias=False) for n in (40, 20, 20, 20))
    )
    optimizer = canzona.Muon(DDP(model), newton_schulz="gram", cost=cost)
    plan = optimizer.plan
    assert pickle.loads(pickle.dumps(plan)).digest == plan.digest
    by_rank = [[], []]
    for row in plan.audit:
        by_rank[row["owner"]].append(row["shape"][1])
    return sorted(map(sorted, by_rank)), plan.json["request"]["cost"]["source"]


def test_owners_follow_the_table(tmp_path):
    # By flops the wide matrix is worth one and a half narrow ones.
    evenly = [[20, 20], [20, 40]]
    assert spawn(2, owned, None)[0] == (evenly, "nominal")
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(table()))
    for cost in (str(path), path, table()):
        assert spawn(2, owned, cost) == [([[20, 20, 20], [40]], "Toy 1")] * 2
    assert spawn(2, owned, table(wide=1e-4))[0] == (evenly, "Toy 1")


def unlike(costs):
    return owned(costs[dist.get_rank()])


@pytest.mark.parametrize("other", [table(narrow=2e-4), None])
def test_ranks_with_different_tables_all_get_an_error(other):
    for kind, text in errors(2, unlike, [table(), other]):
        assert kind == "UsageError"
        assert "ranks have different options: cost" in text
        assert "Toy 1, 2025-03-31, sha256" in text
        assert "rank 0 and rank 1" in text


def test_program_and_package_agree(tmp_path):
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(table()))
    plan = canzona.plan("qwen3-0.6b", "dp=2", layout="ddp", cost=path, layers=1)
    assert plan.decisions["request"]["cost"]["source"] == "Toy 1"
    assert plan.json["cost_source"] == "Toy 1"
    plain = canzona.plan("qwen3-0.6b", "dp=2", cost=path, layers=1)
    assert plain.decisions["request"]["cost"]["source"] == "Toy 1"


def refused(cost):
    with pytest.raises(UsageError) as error:
        canzona.Muon(net(), cost=cost)
    return str(error.value)


def test_bad_tables_are_named(tmp_path):
    path = tmp_path / "cost.json"
    assert f"cost: '{path}': No such file" in refused(path)
    path.write_text("{")
    assert f"cost: '{path}': is not JSON" in refused(path)
    path.write_bytes(b"\xff")
    assert "is not JSON" in refused(path)
    path.write_text("[]")
    assert f"cost: '{path}'" in refused(path)
    path.write_text(json.dumps({**table(), "devise": "x"}))
    text = refused(path)
    assert f"cost: '{path}': unknown" in text and "'device'" in text, text
    text = refused({**table(), "version": 2})
    assert "cost: the table: " in text and "version" in text, text
    bad = table()
    bad["measurements"][0]["entries"][0]["seconds"] = float("nan")
    assert "cost: the table: " in refused(bad)
    bad["measurements"][0]["rule"] = object()
    assert "cost: the table: " in refused(bad)
    assert "cost=5: expected the path" in refused(5)
