"""Compatibility rules: whether some node fits a pod, which ones, and what to say where none does.

Candidates are the nodes that offer what the pod asks for and that its own selectors allow. They are judged by
class, and what is found of a class is remembered, so that the cost does not grow with the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rules.affinity import Requirement, inject, prefer
from rules.environment import environment
from rules.finding import Level
from rules.fitness import without_node
from rules.inventory import Inventory
from rules.landscape import Landscape, landscape_of
from rules.match import glob
from rules.model import Action, CompatibilityRule, Language, Violation
from rules.needs import ContainerFacts, needs_of
from rules.patch import Path, field_path
from rules.quantity import QuantityError, parse_quantity
from rules.selector import REQUIRED, candidates
from rules.verdict import Demand, Judged, Words, culprits

if TYPE_CHECKING:
    from rules.image_catalog import ImageCatalog
    from rules.pod import Container, Pod

_NODE_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
_REQUIRED: Final = (*_NODE_AFFINITY, REQUIRED)
_TERMS: Final = (*_REQUIRED, "nodeSelectorTerms")
_PREFERRED: Final = (*_NODE_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
# Of 100: nodes without an unstable gap of majors before the others, behind what a user weighs heavily.
_STABLE_WEIGHT: Final = 50


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is found of a pod. requirement: what its node has to satisfy; preference: what it better would."""

    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    requirement: Requirement = field(default_factory=Requirement)
    preference: Requirement | None = None


def demand_of(container: Container, rule: CompatibilityRule, pod: Pod, catalog: ImageCatalog) -> Demand:
    """Return what a container needs under a rule that applies to it."""
    words = (*container.strings("command"), *container.strings("args"))
    facts = ContainerFacts(container.name, container.image, environment(container.env), words)
    return Demand(container, rule, needs_of(facts, pod.annotations, catalog))


def judge(demands: Iterable[Demand], pod: Pod, inventory: Inventory, language: Language) -> Verdict:
    """Return the verdict on a pod whose containers have these demands.

    What follows from a rule is never weakened by another: rules that warn, which do not steer, are judged
    beside those that deny, and those of a dry run, which say nothing either, beside all others.
    """
    words = Words(language)
    violations: list[Violation] = []
    warnings: list[str] = []
    possible: list[Demand] = []
    for demand in filter(_asks, demands):
        found = without_node(demand.rule.terms, demand.needs)
        lines = [words.of(problem) for problem in demand.needs.problems]
        lines += [words.anywhere(demand, finding) for finding in found if finding.level < Level.REFUSED]
        warnings += lines if demand.rule.action is not Action.DRYRUN else ()
        refused = [words.anywhere(demand, finding) for finding in found if finding.level is Level.REFUSED]
        violations += [_violation(demand, demand.rule.action, line) for line in refused]
        possible += [] if refused else [demand]
    verdict = Verdict()
    if possible and len(inventory):
        verdict, refusal = _on_nodes(possible, pod, inventory, words)
        violations += [refusal] if refusal else []
    told = tuple(dict.fromkeys([*warnings, *verdict.warnings]))
    return Verdict(tuple(violations), told, verdict.requirement, verdict.preference)


def steer(verdict: Verdict, pod: Pod) -> bool:
    """Put node affinity into a pod so that only fitting nodes remain; tell whether something changed.

    A pod that names its node is not scheduled any more, and was judged by that node.
    """
    spec = _placement(pod)
    if spec["nodeName"]:
        return False
    changed = False
    if (terms := inject(spec, verdict.requirement)) is not None:
        pod.set(*_TERMS, value=terms)
        changed = True
    if verdict.preference:
        for term in prefer(spec, verdict.preference, _STABLE_WEIGHT):
            pod.append(*_PREFERRED, entry=term)
            changed = True
    return changed


def _on_nodes(
    demands: Sequence[Demand], pod: Pod, inventory: Inventory, words: Words
) -> tuple[Verdict, Violation | None]:
    """Return the verdict on the candidate nodes, and the violation where for some rule none of them fits."""
    landscape = landscape_of(inventory)
    chosen = _candidates(demands, pod, inventory)
    verdict = Verdict()
    considered: list[Demand] = []
    for action in Action:  # the strictest comes first
        added = [demand for demand in demands if demand.rule.no_fitting_node is action]
        if not added:
            continue
        considered += added
        judged = landscape.judge(considered, chosen)
        if judged and all(each.level is Level.REFUSED for each in judged):
            others = landscape.judge(considered, inventory.everything & ~chosen)
            elsewhere = (each for each in others if each.level <= Level.UNSTABLE)
            line = words.refusal(judged, elsewhere, table=action is not Action.WARN)
            culprit = next(demand for demand in culprits(judged) if demand in added)
            return verdict, _violation(culprit, action, line)
        if action is not Action.DRYRUN:
            verdict = _fitting(considered, judged, landscape, words)
    return verdict, None


def _fitting(
    demands: Sequence[Demand], judged: Sequence[Judged], landscape: Landscape, words: Words
) -> Verdict:
    """Return the verdict where some class of nodes is not refused, or where there is none at all."""
    if not judged:
        return Verdict(warnings=(words.no_candidates(demands),))
    best = min([each.level for each in judged])
    warnings = tuple(words.doubts(best, judged)) if best is not Level.FITS else ()
    steering = [demand for demand in demands if demand.rule.action is Action.DENY]
    if not steering:  # a rule that only warns leaves the pod as it is
        return Verdict(warnings=warnings)
    some = len(steering) < len(demands)
    levels = [each.level_for(steering) if some else each.level for each in judged]
    both = Level.FITS in levels and Level.UNSTABLE in levels
    return Verdict(
        warnings=warnings,
        requirement=_required(steering, judged, levels, landscape),
        preference=landscape.stable(steering) if both else None,
    )


def _required(
    demands: Sequence[Demand], judged: Sequence[Judged], levels: Sequence[Level], landscape: Landscape
) -> Requirement:
    """Return what these demands require of a node. levels: what each class of nodes is for them."""
    doubtful = min(levels) is Level.UNKNOWN
    if doubtful and max(levels) is Level.UNKNOWN:  # there is none to keep it from
        return Requirement()
    worst = Level.UNKNOWN if doubtful else Level.UNSTABLE
    left = 0
    for each, level in zip(judged, levels, strict=True):
        left |= each.members if level <= worst else 0
    clauses = []
    # The newest version first: what it implies need not be said again.
    for demand in sorted(demands, key=_newest, reverse=True):
        for clause, nodes in landscape.clauses(demand.rule.terms, demand.needs, doubtful):
            if left & nodes:  # a clause in labels that none of the best carries would leave the pod no node
                clauses.append(clause)
                left &= nodes
    return Requirement(tuple(clauses))


def _violation(demand: Demand, action: Action, line: str) -> Violation:
    path: Path = (*demand.container.path, "image")
    return Violation(demand.rule.name, action, field_path(path), line)


def _newest(demand: Demand) -> tuple[int, int]:
    return demand.needs.cuda.version if demand.needs.cuda else (0, 0)


def _asks(demand: Demand) -> bool:
    """Tell whether a container asks for any of what its rule is about; 0 of it is none."""
    names = _asked(demand.container)
    patterns = demand.rule.match.resources
    if not names.isdisjoint(patterns):
        return True
    return any(pattern.fullmatch(name) for pattern in map(glob, patterns) for name in names)


def _asked(container: Container) -> set[str]:
    """Return the extended resources of which a container asks for some; 0 is none."""
    return {
        name
        for quantities in (container.limits, container.requests)
        for name, quantity in quantities.items()
        if "/" in name and not _is_none(quantity)
    }


def _is_none(quantity: object) -> bool:
    try:
        return parse_quantity(quantity) == 0
    except QuantityError:  # the resource's own rule tells
        return False


def _candidates(demands: Iterable[Demand], pod: Pod, inventory: Inventory) -> int:
    """Return the nodes that could take the pod but for compatibility, as a bit set.

    A resource that no node offers is some scheduler's own (HAMi's memory and cores are) and sorts out none,
    unless it is all that a container asks for.
    """
    asked: set[str] = set()
    for demand in demands:
        names = _asked(demand.container)
        offered = {name for name in names if inventory.offering(name)}
        asked |= offered or names
    return candidates(inventory, _placement(pod), asked)


def _placement(pod: Pod) -> Mapping[str, Any]:
    """Return what of a pod's spec says where it may go, after the edits so far."""
    return {name: pod.get("spec", name) for name in ("nodeName", "nodeSelector", "affinity")}
