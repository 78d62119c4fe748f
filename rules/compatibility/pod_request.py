"""What a pod requests of one node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rules.compatibility.report import MessageWriter
from rules.compatibility.result import RuleRequirement
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.rule import CompatibilityRule
from rules.text.glob import glob


class PodRequest(NamedTuple):
    """What a pod requires of one node. requests: names of containers, and the resources they request."""

    containers: Mapping[RuleRequirement, Sequence[Container]]
    requests: Sequence[tuple[str, tuple[str, ...]]]
    pod: Pod
    writer: MessageWriter


def applies_to(rule: CompatibilityRule, names: Iterable[str]) -> bool:
    """Return whether a rule matches any of these resources."""
    patterns = rule.match.resources
    for name in names:
        if name in patterns:
            return True
    return any(pattern.fullmatch(name) for pattern in map(_glob, patterns) for name in names)


_glob = lru_cache(maxsize=256)(glob)  # of the patterns in rules


def requested_resources(container: Container) -> tuple[str, ...]:
    """Return the extended resources that a container requests; a quantity of 0 is no request."""
    found: dict[str, None] = {}
    for quantities in (container.limits, container.requests):
        for name, quantity in quantities.items():
            if "/" in name and name not in found and not _is_zero(quantity):
                found[name] = None
    return tuple(found)


def _is_zero(quantity: object) -> bool:
    try:
        return parse_quantity(quantity) == 0
    except QuantityError:  # the resource's own rule reports it
        return False
