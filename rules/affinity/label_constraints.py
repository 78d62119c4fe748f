"""Label constraints: sets of nodes by their facts, and the clause of node affinity for such a set.

A conjunction gives for some facts the version range or texts that a node must have, or that the fact must be
missing. A label constraint is a disjunction of conjunctions; it is kept short, because its terms multiply
with those of other containers and of the user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Final

from rules.affinity.version_range import VersionRange, number_clause, version_clause, without_trailing_zeros
from rules.cuda.gpu_memory import MAX_MEMORY_MIB
from rules.cuda.tables import capability_of, gpu_model
from rules.cuda.versions import ComputeCapability
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames, Version
from rules.nodes.node_capabilities import DEFAULT_PLATFORM, NodeCapabilities, branch_of, driver_of
from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression, Term, admitted

# The values of a fact: a version in a range, one of some texts, or None for no readable value.
Values = VersionRange | frozenset[str] | None
Conjunction = Mapping[str, Values]
LabelConstraint = list[Conjunction]

# The facts of a node, by the names that NVIDIA_REQUIRE_* has for them, in the order of terms.
CUDA: Final = "cuda"
DRIVER: Final = "driver"
ARCH: Final = "arch"
PRODUCT: Final = "product"
PLATFORM: Final = "platform"  # the CPU architecture
MEMORY: Final = "memory"  # of one GPU: a version whose major part is the number of MiB
_FACTS: Final = (CUDA, DRIVER, ARCH, MEMORY, PRODUCT, PLATFORM)
EVERYWHERE: Final[LabelConstraint] = [{}]
# Conjunctions of a constraint. NVIDIA's images write a handful, a malicious pod may write thousands.
_MOST: Final = 12


def both(one: LabelConstraint, other: LabelConstraint) -> LabelConstraint:
    """Return the nodes that satisfy both constraints."""
    found = (_in_both(a, b) for a, b in product(one, other))
    return shortened(each for each in found if each is not None)


def shortened(conjunctions: Iterable[Conjunction]) -> LabelConstraint:
    """Return a constraint with few conjunctions; of too many, the range between their outermost bounds."""
    found = list({frozenset(each.items()): each for each in conjunctions}.values())
    for fact in _FACTS if len(found) > 1 else ():
        if any(fact in each for each in found):
            found = _joined(found, fact)
    if EVERYWHERE[0] in found:
        return EVERYWHERE
    return found if len(found) <= _MOST else [_outermost(found)]


def like(nodes: Iterable[NodeCapabilities], others: Iterable[NodeCapabilities] = ()) -> LabelConstraint:
    """Return the nodes with the driver branch and the GPU of one of these.

    Not of all branches and GPUs that others have, too: of those, only nodes with exactly these drivers.
    """
    excluded = {(branch_of(each), each.product) for each in others}
    return shortened(_like(each, exactly=(branch_of(each), each.product) in excluded) for each in nodes)


def _like(node: NodeCapabilities, *, exactly: bool) -> Conjunction:
    gpu: Conjunction = {PRODUCT: frozenset({node.product}) if node.product else None}
    driver = driver_of(node)
    if driver is None:
        return {CUDA: _only(node.cuda) if node.cuda else None, DRIVER: None, **gpu}
    drivers = _only(driver.numbers) if exactly else VersionRange((driver.branch, 0), (driver.branch + 1, 0))
    return {CUDA: VersionRange() if node.cuda else None, DRIVER: drivers, **gpu}


def _only(version: Version) -> VersionRange:
    """Return the range of one version."""
    first = without_trailing_zeros((*version, *(0,) * (2 - len(version))))
    return VersionRange(first, (*first[:-1], first[-1] + 1))


def clause(constraint: LabelConstraint, inventory: Inventory, names: LabelNames) -> Clause:
    """Return the node affinity terms of a constraint, in the labels that the cluster's nodes have.

    Empty if every node satisfies it, and if no node has a label for what it requires. A term by product names
    those in the cluster anyway, so it is left out if no node satisfies it.
    """
    terms: list[Term] = []
    for each in constraint:
        parts_of = (_terms(fact, each[fact], inventory, names) for fact in _FACTS if fact in each)
        found = (tuple(_flat(parts)) for parts in product(*parts_of))
        terms += (term for term in found if PRODUCT not in each or admitted(inventory, (term,)))
    return () if () in terms else tuple(dict.fromkeys(terms))


def not_labelled(keys: Iterable[str], texts: Iterable[str], inventory: Inventory) -> Clause:
    """Return the terms that the first label of a node among the keys has none of the texts.

    Empty if no node has one of them. The other texts in the cluster are listed: Karpenter writes a random
    value on a node for `NotIn` on a label that the node does not have.
    """
    present = [key for key in keys if inventory.labels.having(key)]
    unwanted = set(texts)
    written = {str(text) for key in present for text, _ in inventory.labels.values(key)}
    if not written & unwanted:
        return ()
    missing = tuple(MatchExpression(EXPRESSIONS, key, "DoesNotExist") for key in present)
    return (*_labelled(present, written - unwanted, inventory), missing)


def _labelled(keys: Iterable[str], texts: Iterable[str], inventory: Inventory) -> Clause:
    """Return the terms that the first label of a node among the keys has one of the texts."""
    terms: list[Term] = []
    guards: Term = ()
    for key in keys:
        written = {str(text) for text, _ in inventory.labels.values(key)}
        if found := sorted(written.intersection(texts)):
            terms.append((MatchExpression(EXPRESSIONS, key, "In", tuple(found)), *guards))
        if written:
            guards += (MatchExpression(EXPRESSIONS, key, "DoesNotExist"),)
    return tuple(terms)


def _flat(parts: Iterable[Term]) -> Iterable[MatchExpression]:
    return (expression for term in parts for expression in term)


def _terms(fact: str, values: Values, inventory: Inventory, names: LabelNames) -> Clause:
    if isinstance(values, frozenset) or fact in (PRODUCT, PLATFORM):
        return _texts(fact, values if isinstance(values, frozenset) else None, inventory, names)
    if fact == ARCH:
        return _capability_terms(values, inventory, names)
    if fact == MEMORY:
        return _memory_terms(values, inventory, names)
    found = version_clause(values, names.cuda if fact == CUDA else names.driver, inventory)
    if found is None:  # no node has the label: none is in a range, and on every one it is missing
        return ((),) if values is None else ()
    return found


def _texts(fact: str, texts: frozenset[str] | None, inventory: Inventory, names: LabelNames) -> Clause:
    """Return the terms that a node has one of these texts, or none at all."""
    keys = names.product if fact == PRODUCT else names.architecture
    present = [key for key in keys if inventory.labels.having(key)]
    missing = tuple(MatchExpression(EXPRESSIONS, key, "DoesNotExist") for key in present)
    if texts is None:
        # Every kubelet labels its node with its architecture.
        return (missing,) if fact == PRODUCT or admitted(inventory, (missing,)) else ()
    found = _labelled(keys, texts, inventory)
    # Every kubelet labels its node; other nodes count as the most frequent architecture.
    counts = fact == PLATFORM and DEFAULT_PLATFORM in texts and admitted(inventory, (missing,))
    return (*found, missing) if counts else found


def _capability_terms(values: VersionRange | None, inventory: Inventory, names: LabelNames) -> Clause:
    """Return the terms for compute capabilities in a range: by label, or by product on a node without one."""
    families = names.compute_capability
    unlabelled = version_clause(None, families, inventory) or ((),)
    known = {each: found for each in _products(inventory, names) if (found := capability_of(each))}
    if values is None:
        return _unknown(unlabelled, known, inventory, names)
    labelled = version_clause(values, families, inventory) or ()
    return (*labelled, *_by_product(unlabelled, _inside(known, values), inventory, names))


def _memory_terms(values: VersionRange | None, inventory: Inventory, names: LabelNames) -> Clause:
    """Return the terms for at least so much memory: by label, or by product on a node without one."""
    unlabelled = number_clause(None, names.memory, MAX_MEMORY_MIB, inventory)
    models = {each: gpu_model(each) for each in _products(inventory, names)}
    known = {each: (model, model.memory_mib) for each, model in models.items() if model and model.memory_mib}
    if values is None:
        return _unknown(unlabelled, known, inventory, names)
    least = values.at_least[0]
    labelled = number_clause(least, names.memory, MAX_MEMORY_MIB, inventory)
    # A model that is not certain excludes no node.
    inside = {each for each, (model, mib) in known.items() if mib >= least or not model.status.certain}
    return (*labelled, *_by_product(unlabelled, inside, inventory, names))


def _products(inventory: Inventory, names: LabelNames) -> set[str]:
    return {str(text) for key in names.product for text, _ in inventory.labels.values(key)}


def _by_product(
    unlabelled: Clause, products: Iterable[str], inventory: Inventory, names: LabelNames
) -> Clause:
    """Return the terms for unlabelled nodes of some products; empty if there are none."""
    found = _labelled(names.product, products, inventory)
    terms = tuple((*one, *other) for one, other in product(unlabelled, found))
    return terms if admitted(inventory, terms) else ()


def _unknown(unlabelled: Clause, known: Collection[str], inventory: Inventory, names: LabelNames) -> Clause:
    """Return the terms for unlabelled nodes without a product of which the fact is known."""
    if not _by_product(unlabelled, known, inventory, names):
        return unlabelled
    others = (
        *_texts(PRODUCT, None, inventory, names),
        *_labelled(names.product, _products(inventory, names).difference(known), inventory),
    )
    return tuple((*one, *other) for one, other in product(unlabelled, others))


def _inside(known: Mapping[str, ComputeCapability], values: VersionRange) -> set[str]:
    return {name for name, capability in known.items() if capability in values}


def _in_both(one: Conjunction, other: Conjunction) -> Conjunction | None:
    met = {**one, **other}
    for fact in one.keys() & other.keys():
        a, b = one[fact], other[fact]
        if isinstance(a, VersionRange) and isinstance(b, VersionRange):
            met[fact] = common = a & b
            if common.empty:
                return None
        elif isinstance(a, frozenset) and isinstance(b, frozenset):
            met[fact] = a & b
            if not a & b:
                return None
        elif a != b:
            return None
    return met


def _joined(conjunctions: LabelConstraint, fact: str) -> LabelConstraint:
    """Return conjunctions in which those that differ only in one fact are one, if there is no gap."""
    similar: defaultdict[frozenset[tuple[str, Values]], list[Conjunction]] = defaultdict(list)
    for each in conjunctions:
        similar[frozenset((name, values) for name, values in each.items() if name != fact)].append(each)
    joined: LabelConstraint = []
    for rest, group in similar.items():
        if any(fact not in each for each in group):
            joined.append(dict(rest))
            continue
        values = [each[fact] for each in group]
        texts = frozenset[str]().union(*(each for each in values if isinstance(each, frozenset)))
        ranges = _union(each for each in values if isinstance(each, VersionRange))
        found: list[Values] = [*ranges, *([texts] if texts else []), *([None] if None in values else [])]
        joined += ({fact: each, **dict(rest)} for each in found)
    return joined


def _union(ranges: Iterable[VersionRange]) -> list[VersionRange]:
    """Return ranges in which those without a gap between them are one."""
    union: list[VersionRange] = []
    for each in sorted(ranges, key=lambda each: each.at_least):
        if union and (union[-1].below is None or union[-1].below >= each.at_least):
            union.append(union.pop() | each)
        else:
            union.append(each)
    return union


def _outermost(conjunctions: LabelConstraint) -> Conjunction:
    """Return the narrowest conjunction that includes all of them."""
    hull = dict(conjunctions[0])
    for each in conjunctions[1:]:
        for fact, values in list(hull.items()):
            other = each.get(fact)
            if isinstance(values, VersionRange) and isinstance(other, VersionRange):
                hull[fact] = values | other
            elif values != other or fact not in each:
                del hull[fact]
    return hull
