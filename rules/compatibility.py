"""Compatibility rules: whether some node fits a pod, which ones, and what to say where none does.

Candidates are the nodes that offer what the pod asks for and that its own selectors allow. They are judged by
class, so that the cost does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rules.affinity import Clause, Interval, Requirement, inject, prefer
from rules.cuda import cuda_of_branch, minor_version_floor
from rules.environment import environment
from rules.fitness import STABLE_MAJORS, Level, without_node
from rules.inventory import Inventory, NodeClass
from rules.model import Action, CompatibilityRule, Language, Violation
from rules.needs import ContainerFacts, needs_of
from rules.offer import LabelFamily, Version
from rules.patch import Path, field_path
from rules.selector import REQUIRED, candidates
from rules.verdict import Demand, Judged, Words

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
    """What is found of a pod. requirement: what its node has to satisfy; None where none is known to fit."""

    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    requirement: Requirement | None = None
    preference: Requirement | None = None


def demand_of(container: Container, rule: CompatibilityRule, pod: Pod, catalog: ImageCatalog) -> Demand:
    """Return what a container needs under a rule that applies to it."""
    words = (*container.strings("command"), *container.strings("args"))
    facts = ContainerFacts(container.name, container.image, environment(container.env), words)
    return Demand(container, rule, needs_of(facts, pod.annotations, catalog))


def judge(demands: Sequence[Demand], pod: Pod, inventory: Inventory, language: Language) -> Verdict:
    """Return the verdict on a pod whose containers have these demands."""
    words = Words(language)
    violations: list[Violation] = []
    warnings = [words.of(problem) for demand in demands for problem in demand.needs.problems]
    for demand in demands:
        for finding in without_node(demand.rule.terms, demand.needs):
            line = words.anywhere(demand, finding)
            if finding.level is Level.REFUSED:
                violations.append(_violation(demand, demand.rule.action, line))
            else:
                warnings.append(line)
    if violations or not len(inventory):
        return Verdict(tuple(violations), tuple(warnings))
    chosen = _candidates(demands, pod, inventory)
    judged = _judged(demands, inventory.classes(chosen))
    levels = {each.level for each in judged}
    if not judged:
        warnings.append(words.no_candidates(demands))
    elif levels == {Level.REFUSED}:
        culprit = next(demand for demand, finding in judged[0].findings if finding.level is Level.REFUSED)
        others = _judged(demands, inventory.classes(inventory.everything & ~chosen))
        line = words.refusal(culprit, judged, [each for each in others if each.level <= Level.UNSTABLE])
        violations.append(_violation(culprit, culprit.rule.no_fitting_node, line))
    elif min(levels) is Level.UNKNOWN:
        warnings.append(words.unknown(judged))
    else:
        if min(levels) is Level.UNSTABLE:
            warnings += words.unstable(judged)
        return Verdict(
            warnings=tuple(warnings),
            requirement=_all(_required(demand, inventory) for demand in demands),
            preference=_preferred(demands, inventory) if levels >= {Level.FITS, Level.UNSTABLE} else None,
        )
    return Verdict(tuple(violations), tuple(warnings))


def steer(verdict: Verdict, pod: Pod) -> bool:
    """Put node affinity into a pod so that only fitting nodes remain; tell whether something changed.

    A pod that names its node is not scheduled any more, and was judged by that node.
    """
    spec = _placement(pod)
    if spec["nodeName"]:
        return False
    changed = False
    if verdict.requirement and (terms := inject(spec, verdict.requirement)) is not None:
        pod.set(*_TERMS, value=terms)
        changed = True
    if verdict.preference:
        standing = {"affinity": {"nodeAffinity": {_PREFERRED[-1]: pod.entries(*_PREFERRED)}}}
        for term in prefer(standing, verdict.preference, _STABLE_WEIGHT):
            pod.append(*_PREFERRED, entry=term)
            changed = True
    return changed


def _violation(demand: Demand, action: Action, line: str) -> Violation:
    path: Path = (*demand.container.path, "image")
    return Violation(demand.rule.name, action, field_path(path), line)


def _placement(pod: Pod) -> Mapping[str, Any]:
    """Return what of a pod's spec says where it may go, after the edits so far."""
    required = pod.get(*_REQUIRED)
    terms = pod.get(*_TERMS)
    affinity = pod.get("spec", "affinity")
    if terms is not None:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    elif required is not None:
        affinity = {"nodeAffinity": {REQUIRED: {}}}
    return {
        "nodeName": pod.get("spec", "nodeName"),
        "nodeSelector": pod.get("spec", "nodeSelector"),
        "affinity": affinity,
    }


def _candidates(demands: Iterable[Demand], pod: Pod, inventory: Inventory) -> int:
    """Return the nodes that could take the pod but for compatibility, as a bit set.

    A resource that no node offers is some scheduler's own (HAMi's memory and cores are) and sorts out none,
    unless it is all that a container asks for.
    """
    asked: set[str] = set()
    for demand in demands:
        names = {name for name in (*demand.container.limits, *demand.container.requests) if "/" in name}
        offered = {name for name in names if inventory.offering(name)}
        asked |= offered or names
    return candidates(inventory, _placement(pod), asked)


def _judged(demands: Sequence[Demand], classes: Iterable[NodeClass]) -> list[Judged]:
    """Return the classes with what there is to say of them, the largest first."""
    judged = [
        Judged(
            node_class,
            tuple((demand, finding) for demand in demands for finding in demand.findings(node_class)),
        )
        for node_class in classes
    ]
    return sorted(judged, key=lambda each: -each.node_class.members.bit_count())


def _all(requirements: Iterable[Requirement]) -> Requirement:
    whole = Requirement()
    for requirement in requirements:
        whole &= requirement
    return whole


def _required(demand: Demand, inventory: Inventory) -> Requirement:
    """Return what a node has to tell so that it fits the container, as far as labels can say it."""
    names, terms, needs = inventory.label_names, demand.rule.terms, demand.needs
    version = partial(_of_intervals, inventory)
    whole = version(names.cuda, _cuda_intervals(demand))
    if terms.min_cuda:
        whole &= version(names.cuda, [Interval(terms.min_cuda)])
    minimum = max((need.minimum for need in needs.compute if need.certain), default=None)
    lowest = max((each for each in (minimum, terms.min_compute) if each), default=None)
    capabilities = [[Interval(lowest)]] if lowest else []
    built_for = needs.built_for
    if built_for and built_for.certain and built_for.ptx is False:
        first: dict[int, Version] = {}
        for capability in sorted(built_for.capabilities):
            first.setdefault(capability.major, capability)
        capabilities.append([Interval.same_major(each) for each in first.values()])
    for intervals in capabilities:
        if _sorts_out(intervals, inventory):
            whole &= version(names.compute_capability, intervals)
    return whole


def _sorts_out(intervals: Sequence[Interval], inventory: Inventory) -> bool:
    """Tell whether some node of the cluster has a compute capability outside; floors seldom find one."""
    told = [each.offer.compute_capability for each in inventory.classes(inventory.everything)]
    return any(each is not None and not any(each in interval for interval in intervals) for each in told)


def _of_intervals(
    inventory: Inventory, families: tuple[LabelFamily, ...], intervals: Iterable[Interval]
) -> Requirement:
    """Return the requirement that a node tells a version of one of the intervals; none without intervals."""
    clause: Clause = ()
    for interval in intervals:
        for terms in Requirement.of_version(interval, families, inventory).clauses:
            clause += terms
    return Requirement((clause,)) if clause else Requirement()


def _cuda_intervals(demand: Demand) -> list[Interval]:
    """Return the driver's CUDA versions that will do; empty where labels cannot say it.

    Forward compatibility and the alternatives of NVIDIA_REQUIRE_CUDA hang on driver branch and brand, so that
    no version can be required without shutting out nodes that fit.
    """
    need, terms = demand.needs.cuda, demand.rule.terms
    if need is None or not need.certain or demand.needs.cuda_compat:
        return []
    if any(
        constraint.groups and constraint.minimum != constraint.native
        for constraint in demand.needs.constraints
    ):
        return []
    at_least: Version = need.version
    if terms.minor_versions is not Level.REFUSED and not terms.virtual:
        floor = minor_version_floor(need.version.major)
        branch = cuda_of_branch(floor.value.branch) if floor else None
        if branch and branch.value.major == need.version.major:
            at_least = min(at_least, branch.value)
    return [Interval.same_major(at_least) if terms.virtual and need.exact else Interval(at_least)]


def _preferred(demands: Iterable[Demand], inventory: Inventory) -> Requirement | None:
    """Return what a node tells whose driver is not too far ahead of any container's runtime."""
    versions = [demand.needs.cuda.version for demand in demands if demand.needs.cuda]
    if not versions:
        return None
    oldest, newest = min(versions), max(versions)
    interval = Interval(newest, (oldest.major + STABLE_MAJORS + 1, 0))
    return Requirement.of_version(interval, inventory.label_names.cuda, inventory)
