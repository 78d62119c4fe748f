"""A container's environment and command line, as far as they can be known before it starts.

Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/,
and https://github.com/kubernetes/kubernetes/tree/master/third_party/forked/golang/expansion for the details.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^()]*)\))")


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables whose values are known, and the names of those whose values are not (valueFrom)."""

    known: Mapping[str, str]
    unknown: frozenset[str] = frozenset()


def environment(entries: Iterable[Any]) -> Environment:
    """Return what the entries of `env` say; of a doubled name the last counts.

    A value that refers to a variable nobody knows yet is unknown itself. Entries of another shape are
    skipped: the API server refuses them.
    """
    known: dict[str, str] = {}
    unknown: set[str] = set()
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            continue
        value = entry.get("value")
        if value is None and not entry.get("valueFrom"):
            value = ""
        if isinstance(value, str) and _resolves(value, known):
            known[name] = expand(value, known)
            unknown.discard(name)
        else:
            known.pop(name, None)
            unknown.add(name)
    return Environment(known, frozenset(unknown))


def expand(text: str, known: Mapping[str, str]) -> str:
    """Return a text with each `$(NAME)` replaced as the kubelet does; what is not known stays as it is."""
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda match: match[1] or known.get(match[2], match[0]), text)


def _resolves(text: str, known: Mapping[str, str]) -> bool:
    """Tell whether all variables that a text refers to are known."""
    return "$" not in text or all(match[1] or match[2] in known for match in _REFERENCE.finditer(text))
