"""The program `canzona`: where it is, and running it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ._errors import Error, UsageError
from ._library import package_folder, source_tree

# Another program than the one that came with the package.
_VARIABLE = "CANZONA_PROGRAM"

_USAGE_STATUS = 2


def program() -> Path:
    """The program that came with this package, or that of its source tree."""
    named = os.environ.get(_VARIABLE)
    if named:
        return Path(named)
    places = [package_folder() / "bin" / "canzona"]
    tree = source_tree()
    if tree is not None:
        places.append(tree / "build" / "canzona")
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place) for place in places)
    raise UsageError(
        f"there is no program canzona (looked at {looked}); `make` builds one, "
        f"`pip install .` brings one along, ${_VARIABLE} names another"
    )


def run(
    arguments: Sequence[str], *, statuses: Sequence[int] = (0,), text: str = ""
) -> str:
    """Runs the program with `text` as its input; returns what it printed.

    UsageError if it calls the arguments a mistake, Error if it ends with any
    other status than `statuses`.
    """
    command = [os.fspath(program()), *arguments]
    try:
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise Error(
            f"{command[0]} cannot be started: {error.strerror}"
        ) from error
    if result.returncode in statuses:
        return result.stdout
    said = result.stderr.strip().removeprefix("error: ")
    said = said or f"{command[0]} ended with {result.returncode}"
    if result.returncode == _USAGE_STATUS:
        raise UsageError(said)
    raise Error(said)
