"""Node selectors: the nodes that a pod can be scheduled to, with the semantics of the scheduler.

No function here raises on any JSON.
Sources: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/, and the behaviour of
`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rules.kube.node_selector_term import FIELDS, MatchExpression, Term, parse_term, required_terms

if TYPE_CHECKING:
    from rules.nodes.inventory import Inventory


def candidates(inventory: Inventory, pod_spec: Mapping[str, Any]) -> int:
    """Return the nodes, as a bit set, that match nodeName, or else nodeSelector and required affinity.

    A bound pod stays on its node whatever its labels are: selectors are only used for scheduling.
    """
    if (name := pod_spec.get("nodeName")) not in (None, ""):
        return inventory.named(name) if isinstance(name, str) else 0
    nodes, selector, terms = inventory.everything, pod_spec.get("nodeSelector"), required_terms(pod_spec)
    if selector is not None:
        if not isinstance(selector, dict):
            return 0
        for key, value in selector.items():
            nodes &= inventory.labels.equal(key, value) if isinstance(value, str) else 0
    return nodes if terms is None else nodes & matching(inventory, terms)


def excluding(inventory: Inventory, pod_spec: Mapping[str, Any], nodes: int) -> list[tuple[str, str]]:
    """Return the parts of a pod's spec that exclude these nodes: nodeName, or nodeSelector and affinity.

    A part is (field, value): `key=value` for an entry of nodeSelector, empty for affinity. Parts that exclude
    all the nodes are returned, or if there are none, parts that exclude some. Linear in entries.
    """
    if (name := pod_spec.get("nodeName")) not in (None, ""):
        return [("nodeName", str(name))] if nodes & ~candidates(inventory, pod_spec) else []
    selector, terms = pod_spec.get("nodeSelector"), required_terms(pod_spec)
    parts: list[tuple[tuple[str, str], int]] = []
    if isinstance(selector, dict):
        for key, value in selector.items():
            kept = candidates(inventory, {"nodeSelector": {key: value}})
            parts.append((("nodeSelector", f"{key}={value}"), kept))
    elif selector is not None:  # matches no node
        parts.append((("nodeSelector", ""), 0))
    if terms is not None:
        parts.append((("nodeAffinity", ""), matching(inventory, terms)))
    some = [part for part, kept in parts if nodes & ~kept]
    return [part for part, kept in parts if not nodes & kept] or some


def matching(inventory: Inventory, terms: object) -> int:
    """Return the nodes that at least one of the nodeSelectorTerms matches, as a bit set."""
    parsed = (parse_term(raw) for raw in (terms if isinstance(terms, list | tuple) else ()))
    return admitted(inventory, (term for term in parsed if term is not None))


def admitted(inventory: Inventory, terms: Iterable[Term]) -> int:
    """Return the nodes that at least one of the parsed terms matches, as a bit set."""
    nodes = 0
    for term in terms:
        matched = inventory.everything
        for expression in term:
            matched &= matched_by(inventory, expression)
        nodes |= matched
    return nodes


def matched_by(inventory: Inventory, expression: MatchExpression) -> int:
    """Return the nodes that one expression matches, as a bit set."""
    key, labels = expression.key, inventory.labels
    match expression.operator:
        case "Exists":
            return labels.with_key(key)
        case "DoesNotExist":
            return inventory.everything ^ labels.with_key(key)
        case "Gt":
            return labels.above(key, expression.bound)
        case "Lt":
            return labels.below(key, expression.bound)
    named = 0
    for value in expression.values:
        named |= inventory.named(value) if expression.section == FIELDS else labels.equal(key, value)
    return named if expression.operator == "In" else inventory.everything ^ named
