"""The table, the verdict and selftest.json."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

_COLUMN = 22
# A path of two names or more; a fraction or GB/s is none.
_PATH = re.compile(r"(?<![\w.:<])/(?:[^\s/'\":;,()]+/)+([^\s/'\":;,()]*)")


def scrubbed(text: str) -> str:
    """Without folders, and without the names of the user and the host."""
    text = _PATH.sub(r"…/\1", text)
    names = {socket.gethostname(): "<host>"}
    names[socket.gethostname().partition(".")[0]] = "<host>"
    try:
        names[getpass.getuser()] = "<user>"
    except (KeyError, OSError):
        pass
    for name, instead in names.items():
        # A single letter would be a part of what is told.
        if len(name) > 1:
            text = re.sub(rf"\b{re.escape(name)}\b", instead, text)
    return text


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list) else value


def write(found: dict[str, Any], path: str) -> None:
    text = json.dumps(_clean(found), indent=1, ensure_ascii=False)
    new = Path(f"{path}.new")
    new.write_text(text + "\n")
    os.replace(new, path)


def _line(name: str, value: Any) -> str:
    return f"{name:<{_COLUMN}}{value}"


def _links(links: dict[str, Any]) -> str:
    rates = list(links["pairs_gb_s"].values())
    text = f"{min(rates):.2f}"
    if max(rates) > min(rates):
        text += f" to {max(rates):.2f}"
    return (
        f"{text} GB/s between two ranks, all-reduce "
        f"{links['all_reduce_gb_s']:.2f} GB/s"
    )


def _step_rows(step: dict[str, Any]) -> list[str]:
    what = f"step, {step['model']} × {step['layers']} layers"
    lines = [
        _line(what, f"{'ms':>10}{'host ms':>10}{'sent MB':>10}{'peak MiB':>10}")
    ]
    for name, row in step["contenders"].items():
        cells = [
            row.get(k, "–") for k in ("ms", "host_ms", "sent_mb", "peak_mib")
        ]
        lines.append(_line(f"  {name}", "".join(f"{c:>10}" for c in cells)))
    rows = step["contenders"]
    ours = rows.get("canzona.Muon")
    for name, row in rows.items():
        if ours and row is not ours:
            lines.append(
                _line(f"  {name} : ours", f"{row['ms'] / ours['ms']:>10.2f}")
            )
    return lines


def table(found: dict[str, Any]) -> str:
    here = found.get("installation", {})
    lines = [
        _line(name, here[name])
        for name in (
            "canzona",
            "kernels",
            "torch",
            "device",
            "driver",
            "cuda",
            "nccl",
        )
        if here.get(name)
    ]
    ranks = found["ranks"]
    backend = f" ({found['backend']})" if found.get("backend") else ""
    lines.append(_line("ranks", f"{ranks}{backend}"))
    if found.get("links"):
        lines.append(_line("links", _links(found["links"])))
    for name in ("lighter", "layouts", "checkpoint"):
        value = found.get(name)
        if value:
            text = ", ".join(value) if isinstance(value, list) else value
            lines.append(_line(name, text))
    for rule, value in found.get("hashes", {}).items():
        lines.append(_line(f"bits of {rule}", value))
    far = found.get("against_torch", {})
    if far:
        text = ", ".join(f"{rule} {value:g}" for rule, value in far.items())
        lines.append(_line("far from torch's", text))
    if found.get("step"):
        lines += _step_rows(found["step"])
    return "\n".join(lines)


def verdict(found: dict[str, Any]) -> str:
    if found["faults"]:
        more = len(found["faults"]) - 1
        rest = f" (and {more} more in the file)" if more else ""
        return f"FAILED: {found['faults'][0]}{rest}"
    ranks = found["ranks"]
    runs = sum(part.startswith("layout ") for part in found.get("parts", {}))
    what = (
        f"{runs} runs on {ranks} ranks have the bits of one"
        if runs
        else "one rank agrees with torch and with itself"
    )
    return f"PASSED: {what}; {found['seconds']:.0f} s"
