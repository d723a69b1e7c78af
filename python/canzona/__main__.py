"""`python -m canzona`, and the script `canzona`: becomes the program, except
for `doctor`, which reports on Python as well."""

from __future__ import annotations

import json
import os
import sys

from ._doctor import doctor
from ._errors import UsageError
from ._program import program


def main() -> None:
    words = sys.argv[1:]
    if words in (["doctor"], ["doctor", "--json"]):
        sys.exit(_print_doctor("--json" in words))
    try:
        path = os.fspath(program())
        os.execv(path, ["canzona", *words])
    except UsageError as error:
        sys.exit(f"canzona: {error}")
    except OSError as error:
        sys.exit(f"canzona: {path} cannot be started: {error.strerror}")


def _print_doctor(as_json: bool) -> int:
    """Returns the status that the program's `doctor` would exit with."""
    report = doctor()
    if as_json:
        found = {**report.json, "problems": report.problems}
        print(json.dumps(found, indent=2))
    else:
        print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    main()
