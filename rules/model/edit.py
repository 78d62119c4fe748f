"""An edit: the one value of an object to change, so that a finding is resolved."""

from __future__ import annotations

from typing import NamedTuple

from rules.kube.pod import Container
from rules.text.paths import Path


class Edit(NamedTuple):
    """A change of one scalar of an object.

    path: of the scalar. old: what is replaced: the scalar, or a part of a command line in it; empty: the
    scalar is absent and is added to an object. new: what replaces it.
    """

    path: Path
    old: str
    new: str


def edit_of_flag(container: Container, written: str, value: str) -> Edit | None:
    """Return the edit that gives a flag or variable of a container another value.

    written: with its value, such as `--tp 4` or `TP=4`. None unless it is written exactly once.
    """
    separator = " " if " " in written else "="
    name, _, old = written.partition(separator)
    edits: list[Edit] = []
    for field in ("command", "args"):
        words = container.strings(field)
        for index, word in enumerate(words):
            path = (*container.path, field, index)
            if separator == " " and words[index : index + 2] == [name, old]:
                edits.append(Edit((*path[:-1], index + 1), old, value))
            elif written in word:
                edits.append(Edit(path, written, f"{name}{separator}{value}"))
    if separator == "=" and container.variables.get(name, {}).get("value") == old:
        edits.append(Edit((*container.variable_path(name), "value"), old, value))
    return edits[0] if len(edits) == 1 else None
