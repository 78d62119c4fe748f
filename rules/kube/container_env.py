"""A container's environment variables and command line, as far as they are known before it starts.

Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/,
and https://github.com/kubernetes/kubernetes/tree/master/third_party/forked/golang/expansion for the details.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.text.budget import Budget

# Maximum bytes of arguments and variables with which the kernel starts a program: a quarter of its stack of
# 8 MiB, see execve(2). A few entries that double each other would exceed it by far.
LONGEST: Final = 2 * 2**20
# Characters of an expansion that take a step: they are copied, and searched for flags some dozen times.
CHARACTERS_PER_STEP: Final = 32
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_SHELL_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables whose values are known, and the names of those whose values are not (valueFrom)."""

    known: Mapping[str, str]
    unknown: frozenset[str] = frozenset()


def environment(entries: Iterable[Any], budget: Budget | None = None) -> Environment:
    """Return the variables of the entries of `env`; the last entry of a name is used.

    A value that refers to an unknown variable is unknown itself, and so is one that is too long to start a
    program. Malformed entries are skipped: the API server denies them. Raises OverBudgetError.
    """
    budget, room = budget or Budget(), LONGEST
    known: dict[str, str] = {}
    unknown: set[str] = set()
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            continue
        value = entry.get("value")
        if value is None and not entry.get("valueFrom"):
            value = ""
        if isinstance(value, str) and "$" in value:
            budget.spend(value.count("$"))
            written, value = value, expand(value, known, budget, room) if _resolves(value, known) else None
            room -= 0 if value is None or value is written else len(value)
        if isinstance(value, str):
            known[name] = value
            unknown.discard(name)
        else:
            known.pop(name, None)
            unknown.add(name)
    return Environment(known, frozenset(unknown))


class Literals:
    """The variables of a container whose values are plain texts without `$`, by name.

    entries: the entry of `env` that counts for each name.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> str | None:
        """Return the value of one variable, without a look at the values of the others."""
        entry = self._entries.get(name)
        return None if entry is None else _literal(entry)

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield all of them, with their names."""
        for name, entry in self._entries.items():
            if (value := _literal(entry)) is not None:
                yield name, value


def _literal(entry: Mapping[str, Any]) -> str | None:
    value = entry.get("value") or ""
    return value if isinstance(value, str) and "$" not in value and not entry.get("valueFrom") else None


def expand_all(texts: Iterable[str], known: Mapping[str, str], budget: Budget | None = None) -> list[str]:
    """Return arguments with their references expanded, up to the length with which a program can start.

    Raises OverBudgetError.
    """
    budget, room, expanded = budget or Budget(), LONGEST, []
    for text in texts:
        whole = expand(text, known, budget, room)
        expanded.append(text if whole is None else whole)
        room -= 0 if whole is text else len(expanded[-1])
    return expanded


def expand(
    text: str, known: Mapping[str, str], budget: Budget | None = None, room: int = LONGEST
) -> str | None:
    """Return a text with each `$(NAME)` expanded as by the kubelet; unknown names stay unchanged.

    None if it would have more than `room` characters. Raises OverBudgetError.
    """
    if "$" not in text:
        return text
    budget = budget or Budget()
    budget.spend(text.count("$"))
    growth = (len(known.get(match[2], "")) for match in _REFERENCE.finditer(text) if match[2])
    length = len(text) + sum(growth)
    if length > room:
        return None
    budget.spend(length // CHARACTERS_PER_STEP)
    return _REFERENCE.sub(lambda match: match[1] or known.get(match[2], match[0]), text)


def references(texts: Iterable[str]) -> set[str]:
    """Return the names of variables that texts refer to: `$(NAME)`, and a shell's `$NAME` or `${NAME…}`."""
    found: set[str] = set()
    for text in texts:
        if "$" in text:
            found.update(match[2] for match in _REFERENCE.finditer(text) if match[2])
            found.update(_SHELL_REFERENCE.findall(text))
    return found


def _resolves(text: str, known: Mapping[str, str]) -> bool:
    """Return whether all variables that a text refers to are known."""
    return all(match[1] or match[2] in known for match in _REFERENCE.finditer(text))
