"""Node affinity from the answers of the checks: which labels distinguish the nodes that fit from the others.

A term has the labels of one node that fits, without those that are not needed to exclude a node that does not
fit. Terms that differ in one label become one. The time is linear in the terms and labels, not in the nodes.
`with_devices`: devices of Dynamic Resource Allocation report facts that labels do not report, or contradict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from operator import and_
from types import MappingProxyType
from typing import Final, NamedTuple

from rules.affinity.node_affinity import Requirement
from rules.kube.names import parse_int64
from rules.kube.node_selector_term import EXPRESSIONS, Clause, MatchExpression, Term
from rules.nodes.inventory import INSTANCE_TYPE, Inventory
from rules.nodes.label_families import LabelNames, autoscaler_labels
from rules.nodes.node_selector import admitted, matched_by
from rules.nodes.pools.document import may_be_required

# Terms of one clause: they multiply with those of other containers and of the user. Instead of more, one term
# has the values of all, and may admit nodes that do not fit.
MOST_TERMS: Final = 16
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class Split(NamedTuple):
    """Nodes that fit and nodes that do not, as bit sets of an inventory."""

    inventory: Inventory
    fit: int
    unfit: int
    # Labels that the inventory remembers, and the nodes (a bit set) that lost them.
    lost: tuple[Collection[str], int] = ((), 0)


def distinguishing(
    nodes: Split,
    facts: Sequence[Sequence[str]],
    needed: Collection[str] = (),
    rising: Mapping[str, int] = _NONE,
) -> Clause:
    """Return terms that all fitting nodes match, and no others as far as these labels distinguish them.

    facts: the labels of each fact, in the order in which they are left out. The parts of a version are listed
        from the last to the first, as a minor version means nothing without its major.
    needed: labels that are never left out.
    rising: labels with a number of which any greater one fits too, with the least that is known to fit.
    """
    keys = [key for fact in facts for key in fact]
    left, terms = nodes.fit, []
    while left:
        node = left & -left
        term = _term(nodes, node, facts, needed)
        terms.append(term)
        left &= ~(node | admitted(nodes.inventory, (term,)))
    terms = _merged(terms, keys)
    if len(terms) > MOST_TERMS:
        terms = [_around(terms)]
    return tuple(dict.fromkeys(_open(nodes, term, rising) for term in terms))


def _term(nodes: Split, node: int, facts: Sequence[Sequence[str]], needed: Collection[str]) -> Term:
    """Return the expressions on the labels of a node that are needed to exclude the nodes that do not fit."""
    expressions = [[_expression(nodes, node, key) for key in fact] for fact in facts]
    matching_nodes = [matched_by(nodes.inventory, expression) for fact in expressions for expression in fact]
    everything = nodes.inventory.everything
    *after, all_of_them = accumulate(reversed(matching_nodes), and_, initial=everything)
    inevitable = all_of_them & nodes.unfit
    matching, term = everything, []
    of_labels = zip(matching_nodes, reversed(after), strict=True)
    for fact in expressions:
        begun = False
        for expression, (own, others) in zip(fact, of_labels):  # noqa: B905
            if begun or expression.key in needed or matching & others & nodes.unfit != inevitable:
                begun = expression.operator == "In"
                matching &= own
                term.append(expression)
    return tuple(term)


def _expression(nodes: Split, node: int, key: str) -> MatchExpression:
    """Return the expression that a label has the value of a node, or does not exist if the node lacks it."""
    keys, without = nodes.lost
    if not (key in keys and node & without) and node & nodes.inventory.labels.with_key(key):
        value = next(value for value, having in nodes.inventory.labels.values(key) if having & node)
        return MatchExpression(EXPRESSIONS, key, "In", (str(value),))
    return MatchExpression(EXPRESSIONS, key, "DoesNotExist")


def _merged(terms: Iterable[Term], keys: Iterable[str]) -> list[Term]:
    """Return the terms; those that differ only in the values of one label become one."""
    merged = list(dict.fromkeys(terms))
    for key in keys if len(merged) > 1 else ():
        values_of: defaultdict[Term, dict[str, None]] = defaultdict(dict)
        for term in merged:
            values = next(
                (expression.values for expression in term if expression.key == key and expression.values), ()
            )
            values_of[_with_values(term, key, ())].update(dict.fromkeys(values))
        merged = [_with_values(term, key, tuple(sorted(values))) for term, values in values_of.items()]
    return merged


def _with_values(term: Term, key: str, values: tuple[str, ...]) -> Term:
    """Return a term with other values in the expressions on a label."""
    return tuple(
        expression._replace(values=values) if expression.key == key else expression for expression in term
    )


def _around(terms: Iterable[Term]) -> Term:
    """Return one term that matches all nodes that any of the terms matches."""
    values_of: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    number = 0
    for number, term in enumerate(terms, start=1):  # noqa: B007
        for expression in term:
            values_of[expression.key].append(expression.values)
    return tuple(
        MatchExpression(
            EXPRESSIONS, key, "In", tuple(sorted({value for of_term in values for value in of_term}))
        )
        for key, values in values_of.items()
        if len(values) == number and all(values)
    )


def _open(nodes: Split, term: Term, rising: Mapping[str, int]) -> Term:
    """Return a term with `Gt` instead of a list of numbers, if that admits no further unfit node."""
    for at, expression in enumerate(term):
        numbers = [parse_int64(value) for value in expression.values] if expression.key in rising else []
        least = min([number for number in numbers if number is not None], default=0)
        if least > 0 and None not in numbers:
            above = expression._replace(operator="Gt", values=(str(min(least, rising[expression.key]) - 1),))
            opened = (*term[:at], above, *term[at + 1 :])
            before, after = (admitted(nodes.inventory, (candidate,)) for candidate in (term, opened))
            if not nodes.unfit & after & ~before:
                term = opened
    return term


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
