"""Sequences of actions, run on lives that must end alike.

    found = check([sequence("fsdp2", seed) for seed in range(100)])

"adamw": ours beside torch.optim.AdamW, in this process, equal to 1e-6. "fsdp2"
and "ddp2": Muon, now and then SOAP, on two ranks beside the same rule on one
rank, equal in every bit. A sequence that fails is shrunk to a short one.
"""

from __future__ import annotations

import hashlib
import tempfile
import traceback
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist

from canzona import _layout
from conftest import run_ranks
from life import Changed, Life, Refused, bits, is_new
from life_copies import GOOD
from life_refusals import BAD

FAMILIES = ("adamw", "fsdp2", "ddp2")
LENGTH = 30
# Of so many sequences one has a refusal; at most a tenth may.
REFUSED = 13
# Parameters and states beside torch's, whose sums have another order.
CLOSE = dict(rtol=1e-6, atol=1e-6)
STATES_CLOSE = dict(rtol=1e-5, atol=1e-6)
# Sequences that ranks run before they answer, and seconds that they have: far
# more than they need, for ranks that wait for each other forever.
BATCH, PATIENCE = 17, 150


@dataclass(frozen=True)
class Sequence:
    family: str
    seed: int
    rule: str
    dtype: torch.dtype
    actions: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        words = ",".join(f"{name}:{number}" for name, number in self.actions)
        return f"{self.family}:{self.seed}:{words}"


def sequence(family: str, seed: int) -> Sequence:
    draw = Random(f"{family} {seed}")
    rule, dtype = "adamw", torch.float32
    if family != "adamw":
        rule = "soap" if draw.random() < 0.1 else "muon"
        dtype = torch.bfloat16 if draw.random() < 0.3 else torch.float32
    names = [n for n, a in GOOD.items() if family in a.families]
    weights = [GOOD[n].weight for n in names]
    chosen = ["construct"] + draw.choices(names, weights, k=LENGTH - 1)
    if seed % REFUSED == 5:
        refused = sorted(n for n, a in BAD.items() if family in a.families)
        chosen[draw.randrange(1, LENGTH)] = draw.choice(refused)
    actions = tuple((name, draw.randrange(1000)) for name in chosen)
    return Sequence(family, seed, rule, dtype, actions)


def parsed(text: str) -> Sequence:
    """A sequence as its str(); without actions, the seed's own."""
    family, seed, *rest = text.split(":", 2)
    made = sequence(family, int(seed))
    if not rest:
        return made
    pairs = [word.split(":") for word in rest[0].split(",")]
    return replace(made, actions=tuple((n, int(k)) for n, k in pairs))


# One life.


@dataclass
class Entry:
    """What an action came to, and what was there afterwards."""

    action: str
    outcome: tuple[str, ...]  # ("ok",), ("refused", kind, text) or a fault
    tensors: dict[str, Any]  # digests
    notes: dict[str, Any]


def perform(life: Life, name: str, number: int) -> tuple[str, ...]:
    draw = Random(number)
    clock = life.clock
    life.extra.clear()
    try:
        if name in GOOD:
            GOOD[name].act(life, draw)
        elif BAD[name].when(life):
            _refused(life, name, draw, clock)
    except Refused as error:
        return ("refused", error.kind, error.text)
    except Changed as error:
        return ("changed", str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (
            "crashed",
            type(error).__name__,
            f"{error} ({where.filename}:{where.lineno})",
        )
    return ("ok",)


def _refused(life: Life, name: str, draw: Random, clock: int) -> None:
    events = list(life.events)
    try:
        BAD[name].act(life, draw)
    finally:  # all lives go on from here alike
        life.clock = clock + 5
        life.events[:] = events  # one rank refuses before it calls hooks
        for p in life.named().values():
            p.grad = None
    if not life.reference:
        raise AssertionError(f"{name} was not refused")


def last_words(seed: int) -> list[tuple[str, int]]:
    """What every sequence ends with: steps show which states there are."""
    return [("train", 1), ("step_again", 0), ("load_own", 1), ("train", 2)]


def every_action(of: Sequence) -> Iterable[tuple[str, int]]:
    return (*of.actions, *last_words(of.seed))


def live(of: Sequence, kind: str) -> list[Entry]:
    """A life from its beginning to its end, or to its first fault."""
    warnings.simplefilter("ignore")
    life = Life(of.family, kind, of.rule, of.dtype)
    trace = []
    for name, number in every_action(of):
        outcome = perform(life, name, number)
        trace.append(_entry(life, name, outcome))
        if _stops(life, outcome):
            break
    life.close()
    return trace


def live_all(kind: str, texts: list[str], folder: str) -> list[list[Entry]]:
    """For ranks; leaves in a folder how many lives have ended."""
    traces = []
    for text in texts:
        traces.append(live(parsed(text), kind))
        Path(folder, f"{len(traces)}.{dist.get_rank()}").touch()
    return traces


def _stops(life: Life, outcome: tuple[str, ...]) -> bool:
    """True if any rank has met a fault."""
    fault = torch.tensor(float(outcome[0] not in ("ok", "refused")))
    if life.kind in ("fsdp2", "ddp2"):
        dist.all_reduce(fault)
    return bool(fault)


def _entry(life: Life, name: str, outcome: tuple[str, ...]) -> Entry:
    if life.optimizer is None:
        return Entry(name, outcome, {}, {})
    return Entry(
        name,
        outcome,
        {k: _digest(life, v) for k, v in life.tensors().items()},
        {
            "options": life.options(),
            "events": list(life.events),
            "clock": life.clock,
        },
    )


def _digest(life: Life, value: torch.Tensor) -> tuple[str, ...]:
    """Of a whole tensor and its halves, or of what a rank has of it."""

    def of(part: torch.Tensor) -> str:
        return f"{list(part.shape)} {_hash(part)}"

    if life.kind != "one":
        if _layout.is_dtensor(value):
            return (f"half {life.rank}", of(_layout.local(value)))
        return ("whole" if value.numel() else "nothing", of(value))
    halves = [value, value]
    if value.dim() and life.family == "fsdp2":
        halves = list(torch.chunk(value, 2))
        halves += [value[:0]] * (2 - len(halves))
    return (of(value), of(halves[0]), of(halves[1]))


def _hash(value: torch.Tensor) -> str:
    return f"{value.dtype} {hashlib.sha1(bits(value)).hexdigest()[:12]}"


# Lives that must be alike.


def _wrong_outcome(name: str, outcome: tuple[str, ...]) -> str:
    """Says why an outcome is wrong, whatever other lives have."""
    if outcome[0] == "ok":
        return ""
    text = f"{name}: {' '.join(outcome)}"
    if outcome[0] != "refused" or name in GOOD:
        return text
    return "" if outcome[1] in BAD[name].kinds else text


def compare_ranks(one: list[Entry], ranks: list[list[Entry]]) -> str:
    """What differs first; "" if nothing does."""
    for at, entry in enumerate(one):
        for rank, trace in enumerate(ranks):
            if at >= len(trace):
                return f"rank {rank} stopped before {entry.action}"
            wrong = _unlike(entry, trace[at])
            if wrong:
                return f"action {at}, rank {rank}: {wrong}"
        wrong = _wrong_outcome(entry.action, entry.outcome)
        if wrong:
            return f"action {at}, one rank: {wrong}"
        wrong = _nobody_has(entry, [t[at] for t in ranks])
        if wrong:
            return f"action {at}: {wrong}"
    return ""


def _unlike(one: Entry, other: Entry) -> str:
    wrong = _wrong_outcome(other.action, other.outcome)
    if wrong:
        return wrong
    if one.outcome[:2] != other.outcome[:2]:
        return (
            f"{one.action}: {' '.join(other.outcome)}, but on one rank "
            f"{' '.join(one.outcome)}"
        )
    for key, value in one.notes.items():
        if other.notes.get(key) != value:
            return f"{one.action}: {_first(other.notes.get(key), value, key)}"
    if one.tensors.keys() != other.tensors.keys():
        unlike = sorted(one.tensors.keys() ^ other.tensors.keys())
        return f"{one.action}: only some ranks have {unlike}"
    for key, (whole, *halves) in one.tensors.items():
        kind, digest = other.tensors[key]
        wanted = whole if kind == "whole" else halves[int(kind[-1] == "1")]
        if kind != "nothing" and digest != wanted:
            return f"{one.action}: '{key}' differs ({digest}, {wanted})"
    return ""


def _first(here: Any, on_one: Any, at: str) -> str:
    """The first difference between what a rank has and what one has."""
    if isinstance(here, dict) and isinstance(on_one, dict):
        for key in {**on_one, **here}:
            if here.get(key) != on_one.get(key):
                return _first(here.get(key), on_one.get(key), f"{at}.{key}")
    return f"{at} is {here}, but on one rank {on_one}"


def _nobody_has(one: Entry, ranks: list[Entry]) -> str:
    for key in one.tensors:
        if all(r.tensors[key][0] == "nothing" for r in ranks):
            return f"{one.action}: no rank has '{key}'"
    return ""


def compare_with_torch(of: Sequence) -> tuple[str, bool]:
    """What differs first, and whether anything was refused."""
    warnings.simplefilter("ignore")
    torchs = Life(of.family, "torch", of.rule, of.dtype)
    ours = Life(of.family, "one", of.rule, of.dtype)
    ours.peer = torchs
    refused = False
    for at, (name, number) in enumerate(every_action(of)):
        theirs = perform(torchs, name, number)
        mine = perform(ours, name, number)
        wrong = _unlike_torch(name, theirs, mine) or _difference(torchs, ours)
        if wrong:
            ours.close()
            return f"action {at}, {name}: {wrong}", refused
        refused |= mine[0] == "refused" and theirs[0] != "refused"
    ours.close()
    return "", refused


def _unlike_torch(
    name: str, theirs: tuple[str, ...], mine: tuple[str, ...]
) -> str:
    if name in BAD:
        return _wrong_outcome(name, mine)
    if theirs[0] == mine[0] == "ok":
        return ""
    return f"{' '.join(mine)}, but torch: {' '.join(theirs)}"


def _difference(torchs: Life, ours: Life) -> str:
    if torchs.events != ours.events:
        return f"events {ours.events}, but torch's {torchs.events}"
    their_options, options = torchs.options(), ours.options()
    for name in sorted(options):
        for key, value in their_options.get(name, {}).items():
            if key in options[name] and not _near(options[name][key], value):
                return (
                    f"'{name}' has {key} {options[name][key]}, but torch's "
                    f"{value}"
                )
    theirs, mine = torchs.tensors(), ours.tensors()
    for key, value in theirs.items():
        parameter = " " not in key
        if not parameter and key not in mine:
            return f"'{key}' is missing"
        close = CLOSE if parameter else STATES_CLOSE
        if not torch.allclose(mine[key], value, **close, equal_nan=True):
            worst = (mine[key] - value).abs().max().item()
            return f"'{key}' differs from torch's by {worst:.3g}"
    known = torchs.states()
    for name, of in ours.states().items():
        if name not in known and not is_new(of):
            return f"'{name}' has states, but none with torch"
    return ""


def _near(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_near, a, b))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-9 + 1e-6 * abs(b)
    return a == b


# Many sequences.


@dataclass
class Findings:
    wrong: dict[Sequence, str]
    refused: int = 0
    total: int = 0


def check(sequences: list[Sequence]) -> Findings:
    found = Findings({}, total=len(sequences))
    for at in range(0, len(sequences), BATCH):
        batch = sequences[at : at + BATCH]
        for of, (wrong, refused) in zip(batch, _outcomes(batch)):
            found.refused += refused
            if wrong:
                found.wrong[of] = wrong
    return found


def _outcomes(batch: list[Sequence]) -> list[tuple[str, bool]]:
    """What is wrong with each, and whether it has a refusal."""
    if batch[0].family == "adamw":
        return [compare_with_torch(of) for of in batch]
    results = []
    while len(results) < len(batch):
        results += _on_ranks(batch[len(results) :])
    return results


def _on_ranks(batch: list[Sequence]) -> list[tuple[str, bool]]:
    """Of all, or of those up to one in which ranks end or wait forever."""
    family, texts = batch[0].family, [str(of) for of in batch]
    with tempfile.TemporaryDirectory() as folder:
        answers = run_ranks(
            2, live_all, family, texts, folder, timeout=PATIENCE
        )
        ended = min(len(list(Path(folder).glob(f"*.{r}"))) for r in range(2))
    broken = [a for a in answers if a[0] == "error"]
    if broken and ended:
        return _on_ranks(batch[:ended]) + [(_told(broken), False)]
    if broken:
        return [(_told(broken), False)]
    results = []
    for at, of in enumerate(batch):
        one = live(of, "one")
        wrong = compare_ranks(one, [a[1][at] for a in answers])
        results.append((wrong, any(e.outcome[0] == "refused" for e in one)))
    return results


def _told(broken: list[Any]) -> str:
    return f"{broken[0][1]}: {broken[0][2]}"


def wrong_with(of: Sequence) -> str:
    return _outcomes([of])[0][0]


def shrink(of: Sequence, fails: Callable[[Sequence], bool]) -> Sequence:
    """A short list of actions that fails, too; construction stays."""
    size, runs = len(of.actions) // 2, 0
    while size >= 1:
        at = 1
        while at < len(of.actions) and runs < 150:
            shorter = of.actions[:at] + of.actions[at + size :]
            tried, runs = replace(of, actions=shorter), runs + 1
            if fails(tried):
                of = tried
            else:
                at += size
        size //= 2
    return of


def report(found: Findings) -> str:
    """Of the first failure all, of others their seeds."""
    lines = []
    for of, wrong in list(found.wrong.items())[:1]:
        hangs, seeded = "Hang" in wrong, f"{of.family}:{of.seed}"
        short = of if hangs else shrink(of, lambda s: bool(wrong_with(s)))
        lines += [
            f"{of.family}, seed {of.seed}, {of.rule}, {of.dtype}: {wrong}",
            f"again: --life-one {seeded if of == parsed(seeded) else of}",
            f"shrunk: --life-one {short}",
            f"which ends by: {wrong if hangs else wrong_with(short)}",
        ]
    lines += [
        f"also: {of.family}:{of.seed}: {wrong}"
        for of, wrong in list(found.wrong.items())[1:]
    ]
    return "\n".join(lines)
