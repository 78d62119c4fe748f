"""Required node affinity if devices of DRA report facts that labels do not report, or contradict."""

from __future__ import annotations

from itertools import islice
from typing import Final

from rules.affinity.node_affinity import Requirement
from rules.kube.node_selector_term import EXPRESSIONS, Clause, MatchExpression
from rules.nodes.inventory import INSTANCE_TYPE, Inventory
from rules.nodes.label_families import LabelNames, autoscaler_labels
from rules.nodes.node_selector import admitted
from rules.nodes.pools.document import may_be_required

# Maximum values of a label that a term may list: a label that names each node would make a long list, and
# Karpenter ignores a pod that selects a host.
_MOST_VALUES: Final = 64


def with_devices(requirement: Requirement, fit: int, unfit: int, inventory: Inventory) -> Requirement:
    """Return a requirement that admits all fitting nodes and no others, as far as labels distinguish them.

    If no labels distinguish them, nothing is required: a pod may then be scheduled on an unfit node.

    requirement: by the labels that report facts.
    fit, unfit: the candidates, as bit sets.
    """
    by_labels = inventory.everything
    for clause in requirement.clauses:
        by_labels &= admitted(inventory, clause)
    if not fit & ~by_labels and not unfit & by_labels:
        return requirement
    if unfit & by_labels:  # labels say otherwise than devices
        clause = _distinguishing(fit, unfit, inventory)
        return Requirement((clause,)) if clause else Requirement()
    clause = _distinguishing(fit & ~by_labels, unfit, inventory)
    return requirement.or_else(clause) if clause else Requirement()


def _distinguishing(fit: int, unfit: int, inventory: Inventory) -> Clause:
    """Return terms that admit the fitting nodes and no unfit ones; nothing if no labels distinguish them."""
    terms: list[tuple[MatchExpression, ...]] = []
    for key in _keys(inventory):
        first_values = islice(inventory.labels.values(key), _MOST_VALUES + 1)
        values = {str(text): nodes for text, nodes in first_values}
        if len(values) > _MOST_VALUES:
            continue
        only = sorted(text for text, nodes in values.items() if nodes & fit and not nodes & unfit)
        if only:
            terms.append((MatchExpression(EXPRESSIONS, key, "In", tuple(only)),))
            for text in only:
                fit &= ~values[text]
        if not fit:
            return tuple(terms)
    return ()


def _keys(inventory: Inventory) -> list[str]:
    """Return labels of a node's kind: GPU, instance type and pool first, then other labels of groups."""
    first = [*LabelNames().product, INSTANCE_TYPE, *autoscaler_labels()]
    others = sorted(key for key in inventory.labels if key not in first and _is_of_a_group(key))
    return [key for key in first if inventory.labels.with_key(key)] + others


def _is_of_a_group(key: str) -> bool:
    """Return whether a label may name a group of nodes; Karpenter must not ignore pods that require it."""
    on_each = key.startswith(("//", "kubernetes.io/", "topology.kubernetes.io/"))
    return may_be_required(key) and not on_each
