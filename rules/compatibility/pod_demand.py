"""What a pod requests of one node.

Source of the sum over containers: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rules.compatibility.report import MessageWriter
from rules.compatibility.result import Amounts, RuleRequirement
from rules.kube.pod import Container, ContainerKind, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.rule import CompatibilityRule
from rules.text.glob import glob
from rules.text.similarity import Comparisons


class PodDemand(NamedTuple):
    """What a pod requires of one node. requests: names of containers, and the resources they request.

    spec: of the pod. comparisons: of its object's names with similar ones. amounts: how many of the resources
    a node must have; empty if no rule counts them.
    """

    containers: Mapping[RuleRequirement, Sequence[Container]]
    requests: Sequence[tuple[str, tuple[str, ...]]]
    pod: Pod
    spec: Mapping[str, Any]
    writer: MessageWriter
    comparisons: Comparisons
    amounts: Amounts = ()

    @property
    def resources(self) -> list[str]:
        """The requested resources."""
        return [name for _, names in self.requests for name in names]


def applies_to(rule: CompatibilityRule, names: Iterable[str]) -> bool:
    """Return whether a rule matches any of these resources."""
    patterns = rule.match.resources
    for name in names:
        if name in patterns:
            return True
    return any(pattern.fullmatch(name) for pattern in map(_glob, patterns) for name in names)


_glob = lru_cache(maxsize=256)(glob)  # of the patterns in rules


def requested_resources(container: Container) -> tuple[str, ...]:
    """Return the extended resources that a container requests of a node; a quantity of 0 is no request."""
    return tuple([name for name in container.offered_names if "/" in name])


def requested_amounts(pod: Pod, resources: Iterable[str]) -> Amounts:
    """Return how many of each resource the containers of a pod need at one time; none of which they need 0.

    Init containers run one after the other, before all others except the sidecars above them. Linear in the
    resources of all containers.
    """
    total = dict.fromkeys(resources, 0)
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in pod.users:  # the init containers are last, in their order
        for name in container.names:
            if name not in total:
                continue
            amount = quantity_of(container.request(name))
            if container.kind is ContainerKind.INIT:
                most[name] = max(most.get(name, 0), amount + sidecars.get(name, 0))
                continue
            total[name] += amount
            if container.kind is ContainerKind.SIDECAR:
                sidecars[name] = sidecars.get(name, 0) + amount
    total |= {name: amount for name, amount in most.items() if amount > total[name]}
    return tuple([(name, amount) for name, amount in total.items() if amount])


def quantity_of(quantity: object) -> int:
    """Return a quantity as a whole number; 0 if it cannot be read."""
    try:
        return int(parse_quantity(quantity))
    except QuantityError:  # the resource's own rule reports it
        return 0
