"""Taints of nodes, and whether the tolerations of a pod tolerate them.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

# A taint of another effect does not keep a pod from a node.
_KEEPING_OUT: Final = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """Return the taint as kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def keeps_out(self) -> bool:
        """Whether a pod that does not tolerate it cannot be scheduled on the node."""
        return self.effect in _KEEPING_OUT


def read_taints(document: object) -> Iterator[Taint]:
    """Yield the taints of a list as JSON; other values are left out."""
    for taint in document if isinstance(document, list | tuple) else ():
        if not isinstance(taint, Mapping):
            continue
        key, value, effect = taint.get("key"), taint.get("value") or "", taint.get("effect")
        if isinstance(key, str) and isinstance(value, str) and isinstance(effect, str):
            yield Taint(key, value, effect)


def tolerates(tolerations: object, taints: Iterable[Taint]) -> bool:
    """Return whether a pod with these tolerations (as JSON) can be scheduled on a node with these taints."""
    return untolerated(tolerations, taints) is None


def untolerated(tolerations: object, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps out what has these tolerations (as JSON); None if there is none."""
    given = tolerations if isinstance(tolerations, list) else []
    for taint in taints:
        if taint.keeps_out and not any(
            isinstance(toleration, Mapping) and _matches(toleration, taint) for toleration in given
        ):
            return taint
    return None


def _matches(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Return whether one toleration tolerates a taint; an empty key with `Exists` tolerates all."""
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    if operator == "Exists":
        return key in ("", taint.key)
    return operator == "Equal" and key == taint.key and (toleration.get("value") or "") == taint.value
