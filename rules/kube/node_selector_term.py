"""Node selector terms, as in required node affinity: their grammar, and the terms of a pod's spec.

A list of terms is ORed, the expressions and fields of a term are ANDed. An invalid expression, which the API
server would deny, makes its term match nothing. No function here raises on any JSON.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, cast

from rules.kube.names import SUBDOMAIN, is_label_key, is_label_value, parse_int64
from rules.text.bounded_cache import bounded_cache, length

EXPRESSIONS: Final = "matchExpressions"
FIELDS: Final = "matchFields"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME_FIELD = "metadata.name"  # the only field that Kubernetes can match

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

# Cached expressions of the pods of a cluster, and the maximum characters of one.
_CACHE_ENTRIES: Final = 1024
_MAX_LENGTH: Final = 1024

_NODE_NAME = re.compile(rf"(?=.{{1,253}}\Z){SUBDOMAIN}")


class MatchExpression(NamedTuple):
    """One valid node selector requirement."""

    section: str  # EXPRESSIONS or FIELDS
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @property
    def bound(self) -> int:
        """The number of a Gt or Lt expression."""
        return int(self.values[0])

    def entry(self) -> dict[str, Any]:
        """Return the expression as JSON."""
        entry: dict[str, Any] = {"key": self.key, "operator": self.operator}
        return {**entry, "values": list(self.values)} if self.values else entry

    def holds(self, value: str | None) -> bool:
        """Return whether a node with this value of the label or field matches; None: it is absent."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number = None if value is None else parse_int64(value)
        return number is not None and (number > self.bound if self.operator == "Gt" else number < self.bound)


Term = tuple[MatchExpression, ...]  # ANDed
Clause = tuple[Term, ...]  # ORed


def _list(raw: Mapping[str, Any], name: str) -> list[Any] | None:
    """Return a list member of an object, empty if it is absent, or None if it is not a list."""
    value = raw.get(name)
    return [] if value is None else value if isinstance(value, list) else None


def _parse(section: str, raw: object) -> MatchExpression | None:
    if not isinstance(raw, dict):
        return None
    values = _list(raw, "values")
    if values is None:
        return None
    try:
        return _read((section, raw.get("key"), raw.get("operator"), tuple(values)))
    except TypeError:  # an object or a list is not hashable, and not a string
        return None


def _find(raw: tuple[str, object, object, tuple[object, ...]]) -> MatchExpression | None:
    section, key, operator, values = raw
    texts = tuple([value for value in values if isinstance(value, str)])
    if not isinstance(key, str) or not isinstance(operator, str) or len(texts) < len(values):
        return None
    if section == FIELDS:
        usable = key == _NAME_FIELD and operator in ("In", "NotIn") and len(texts) == 1
        usable = usable and _NODE_NAME.fullmatch(texts[0]) is not None
    elif not (is_label_key(key) and all(is_label_value(value) for value in texts)):
        usable = False
    elif operator in ("In", "NotIn"):
        usable = bool(texts)
    elif operator in ("Gt", "Lt"):
        usable = len(texts) == 1 and parse_int64(texts[0]) is not None
    else:
        usable = operator in ("Exists", "DoesNotExist") and not texts
    return MatchExpression(section, key, cast("Operator", operator), texts) if usable else None


_read = bounded_cache(_find, _CACHE_ENTRIES, lambda raw: length(raw) <= _MAX_LENGTH)


def parse_term(raw: object) -> Term | None:
    """Return the expressions of a nodeSelectorTerm, or None if it matches no node.

    An empty term and a term with an invalid expression match no node.
    """
    if not isinstance(raw, dict):
        return None
    term: list[MatchExpression] = []
    for section in (EXPRESSIONS, FIELDS):
        entries = _list(raw, section)
        if entries is None:
            return None
        for entry in entries:
            if (expression := _parse(section, entry)) is None:
                return None
            term.append(expression)
    return tuple(term) or None


def expressions_of(raw: object) -> int:
    """Return the number of expressions of a nodeSelectorTerm as written; sixteen values count as one."""
    if not isinstance(raw, dict):
        return 0
    number = 0
    for section in (EXPRESSIONS, FIELDS):
        for entry in _list(raw, section) or ():
            values = entry.get("values") if isinstance(entry, dict) else None
            number += 1 + (len(values) >> 4 if isinstance(values, list) else 0)
    return number


def required_terms(pod_spec: Mapping[str, Any]) -> object:
    """Return the required nodeSelectorTerms of a pod's spec as written; None if there are none."""
    value: object = pod_spec
    for name in ("affinity", "nodeAffinity", REQUIRED):
        if not isinstance(value, dict):
            return ()
        if (value := value.get(name)) is None:
            return None
    terms = value.get("nodeSelectorTerms") if isinstance(value, dict) else None
    return () if terms is None else terms
