"""The size limit of one object, so that none delays the reviews of others.

A usual pod has some dozen of what is counted here. The API server accepts objects of 3 MiB, and checking tens
of thousands of containers would take longer than a webhook may. Each thing is counted by what it costs, and
all together take a fifth of a second at most, with 10,000 nodes of a hundred kinds; `Budget` and the limits
of claims and node affinity bound the rest. `python -m tests.fuzz cost` looks for an object that takes longer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from rules.compatibility.result import RuleRequirement
from rules.decision.messages import denial
from rules.kube.names import MAX_QUALIFIED_NAME
from rules.kube.node_selector_term import expressions_of, required_terms
from rules.kube.pod import Pod
from rules.model.decision import Decision
from rules.model.finding import Basis, Finding
from rules.model.rule import Action
from rules.model.workload_kinds import FoundPod
from rules.text.bounded_cache import OverBudgetError
from rules.text.i18n import Joined, Line, Message
from rules.text.paths import field_path

# Steps to evaluate the different requirements of one object, for each rule that evaluates them: one takes 1
# to 3 µs on a hundred kinds of nodes. A container that asks for the resources of all vendors has eighteen
# rules.
MOST_EVALUATIONS: Final = 100_000
# The name under which an oversized object is counted.
RULE: Final = "size-limit"
# Microseconds of one core that everything counted here may take.
MOST_COST: Final = 200_000
# Names of resources of one container; expressions of rules take no more entries (`cel/cost_limits.py`).
MOST_NAMES: Final = 128
# Pod templates, and containers of all of them, whether or not rules apply to them: reading a template takes
# 12 µs, a container 3 µs. etcd stores objects of 1.5 MiB, with some thousand containers.
MOST_READ: Final = 10_000


class _Item(NamedTuple):
    """Something that is counted. cost: microseconds that one takes at most."""

    what: Message
    cost: int

    @property
    def most(self) -> int:
        """How many an object may have that has nothing else."""
        return MOST_COST // self.cost


# A denial has a table of all kinds of nodes.
TEMPLATE: Final = _Item(Line("pods or pod templates"), 900)
# It is compared with each rule; what its requirements cost is counted when they are read.
CONTAINER: Final = _Item(Line("containers that request accelerators"), 100)
# A name is looked up in rules and nodes; a denial repeats it, with up to eight others that it excludes.
RESOURCE: Final = _Item(Line("resources of containers"), 100)
# A term is joined with each term of the required node affinity.
TERM: Final = _Item(Line("node selector terms"), 60)
# It is looked up in the labels of nodes, and in those of each pool that may bring nodes.
EXPRESSION: Final = _Item(
    Line("nodeSelector labels and node affinity expressions"),
    40,
)
# A toleration is compared with the taints of each pool that may bring nodes.
TOLERATION: Final = _Item(Line("tolerations"), 80)
# A claim has up to 32 requests of 8 alternatives.
CLAIM: Final = _Item(Line("resource claims"), 1000)
DEBUGGING: Final = _Item(Line("debugging containers"), 40)

_TOO_MANY_EVALUATIONS: Final = Line(
    "the requirements of its containers take more than {most:,} steps to evaluate on nodes, for"
    " each rule. Split it, or request fewer kinds of accelerators",
    most=MOST_EVALUATIONS,
)
_TOO_LARGE: Final = Line(
    "{kind} is too large to check: {items}, {percent} of what gpugate checks of one object. Split it"
)
_COUNTED: Final = Line("{count:,} {what} (at most {most:,})")
_TOO_MANY_READ: Final = Line("{kind} is too large to check: {count:,} {what} (at most {most:,}). Split it")
_TEMPLATES: Final = Line("pod templates")
_CONTAINERS: Final = Line("containers")
_TOO_MANY_NAMES: Final = Line(
    "{place} has too many resources: {count:,} names (at most {most:,} of one container). Remove some"
)
_TOO_LONG_NAME: Final = Line(
    "{place} has a resource with a name of {count:,} characters (at most {most:,}). Shorten it"
)


class Evaluations:
    """The requirements of one object that rules evaluate on nodes, each once."""

    __slots__ = ("_added", "_known", "_steps")

    def __init__(self) -> None:
        self._steps = 0
        # Equal ones are found only if all together are too many: to hash one takes longer than to add it.
        self._added: list[RuleRequirement] = []
        self._known: set[RuleRequirement] = set()

    def add(self, required: RuleRequirement) -> None:
        """Count requirements of a container for a rule. Raises OverBudgetError."""
        if self._known:
            self._add_once(required)
            return
        self._added.append(required)
        self._steps += required.requirements.evaluation_steps
        if self._steps > MOST_EVALUATIONS:
            self._steps = 0
            for requirement in self._added:
                self._add_once(requirement)

    def _add_once(self, required: RuleRequirement) -> None:
        if required not in self._known:
            self._known.add(required)
            self._steps += required.requirements.evaluation_steps
            if self._steps > MOST_EVALUATIONS:
                raise OverBudgetError(_TOO_MANY_EVALUATIONS)


def overfull(pods: Collection[FoundPod], kind: str) -> Decision | None:
    """Return the denial of an object with too many templates or containers to read, None for all others."""
    number, containers = len(pods), 0
    for raw, others in pods:
        containers += len(others)
        spec = raw.get("spec", raw) if isinstance(raw, dict) else None
        if isinstance(spec, dict):
            containers += _length(spec.get("containers")) + _length(spec.get("initContainers"))
    if number <= MOST_READ and containers <= MOST_READ:
        return None
    for count, what in ((number, _TEMPLATES), (containers, _CONTAINERS)):
        if count > MOST_READ:
            facts = {"kind": kind, "count": count, "what": what, "most": MOST_READ}
            return _denied(kind, _TOO_MANY_READ.having(**facts), kind)
    return None


def oversize(pods: Sequence[Pod], kind: str) -> Decision | None:
    """Return the denial of an object whose pods exceed the limit, None for all others."""
    terms = expressions = tolerations = claims = debugging = resources = containers = 0
    for pod in pods:
        spec = pod.spec
        if not spec.get("nodeName"):  # the selectors of a bound pod are not read
            if "affinity" in spec and isinstance(required := required_terms(spec), list):
                terms += len(required)
                expressions += sum(map(expressions_of, required))
            if isinstance(selector := spec.get("nodeSelector"), dict):
                expressions += len(selector)
        tolerations += _length(spec.get("tolerations"))
        if "resourceClaims" in spec:
            claims += _length(spec["resourceClaims"])
        if "ephemeralContainers" in spec:
            debugging += _length(spec["ephemeralContainers"])
        for container in pod.containers:
            names = (*container.limits, *container.requests)
            if not names:
                continue
            containers += 1
            resources += len(names)
            if (len(names) > MOST_NAMES or len("".join(names)) > MAX_QUALIFIED_NAME) and (
                reason := _wrong_names(names, place := field_path(container.path))
            ):
                return _denied(place, reason, kind)
    number = len(pods) + containers + resources + terms + expressions + tolerations + claims + debugging
    if number * CLAIM.cost <= MOST_COST:  # nothing costs more: nearly always enough
        return None
    counts = (
        (TEMPLATE, len(pods)),
        (CONTAINER, containers),
        (RESOURCE, resources),
        (TERM, terms),
        (EXPRESSION, expressions),
        (TOLERATION, tolerations),
        (CLAIM, claims),
        (DEBUGGING, debugging),
    )
    if sum(item.cost * count for item, count in counts) <= MOST_COST:
        return None
    return _too_large(counts, kind)


def _wrong_names(names: Sequence[str], place: str) -> Message:
    """Return what is wrong with the resource names of a container, of which requests repeat limits."""
    if (count := len({*names})) > MOST_NAMES:
        return _TOO_MANY_NAMES.having(place=place, count=count, most=MOST_NAMES)
    if (longest := max(map(len, names))) > MAX_QUALIFIED_NAME:
        return _TOO_LONG_NAME.having(place=place, count=longest, most=MAX_QUALIFIED_NAME)
    return Message()


def over_budget(error: OverBudgetError, kind: str) -> Decision:
    """Return the denial of an object that takes more steps than it may."""
    return _denied(kind, Line("{kind}: {text}", kind=kind, text=error.text), kind)


def _too_large(counts: Sequence[tuple[_Item, int]], kind: str) -> Decision:
    """Return the denial of an object by what costs the most in it."""
    total = sum(item.cost * count for item, count in counts)
    most = sorted(counts, key=lambda counted: counted[0].cost * counted[1], reverse=True)
    shown = [counted for counted in most if counted[0].cost * counted[1] * 4 >= most[0][0].cost * most[0][1]]
    items = [_COUNTED.having(count=count, what=item.what, most=item.most) for item, count in shown]
    joined, percent = Joined(" and ", items), f"{-(-100 * total // MOST_COST):,}%"
    text = _TOO_LARGE.having(kind=kind, items=joined, percent=percent)
    return _denied(kind, text, kind)


def _denied(place: str, reason: Message, kind: str) -> Decision:
    violation = Finding(RULE, Action.DENY, place, reason, basis=Basis.LIMIT)
    return Decision.deny(denial(kind, [violation]), (violation,))


def _length(entries: object) -> int:
    return len(entries) if isinstance(entries, list) else 0
