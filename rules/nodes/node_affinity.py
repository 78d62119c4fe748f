"""Required node affinity that admits only fitting nodes, and how it joins a user's own.

A requirement is a conjunction of clauses, a clause a disjunction of terms. It joins a user's terms by a cross
product: each term of the clause goes into each of the user's, so that the pod can go exactly where it could
before and the requirement holds. The user's expressions stay as they are, first and in order; what a term
implies already is not added, so that joining once more changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression, Term, parse_term, required_terms
from rules.nodes.version_range import VersionRange, version_clause
from rules.text.bounded_cache import bounded_cache, length

if TYPE_CHECKING:
    from rules.nodes.inventory import Inventory
    from rules.nodes.label_families import LabelFamily

# Terms that pods have, each with a clause that is added, and the characters of both.
_REMEMBERED: Final = 512
_LONGEST: Final = 4096
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must satisfy: of every clause some term. Without clauses it is satisfied by any node."""

    clauses: tuple[Clause, ...] = ()

    @classmethod
    def of_terms(cls, terms: Iterable[object]) -> Requirement:
        """Return the requirement that one of the nodeSelectorTerms matches, as a rule or a pod has them."""
        return cls((tuple(term for raw in terms if (term := parse_term(raw)) is not None),))

    @classmethod
    def of_version(
        cls, interval: VersionRange, families: Iterable[LabelFamily], inventory: Inventory
    ) -> Requirement:
        """Return the requirement that a node tells a version of the interval.

        families: in order, as LabelNames has them. It is written in those that speak on some node of the
        cluster, each guarded against nodes on which an earlier one speaks. Where none speaks nothing is known
        and nothing required. A node whose minor is unknown satisfies it where the major alone decides.
        """
        if interval == VersionRange():
            return cls()
        clause = version_clause(interval, families, inventory)
        return cls() if clause is None else cls((clause,))

    def __and__(self, other: Requirement) -> Requirement:
        return Requirement(self.clauses + other.clauses)


def inject(spec: Mapping[str, Any], requirement: Requirement) -> Any:
    """Return the required nodeSelectorTerms that a pod's spec must have, or None where nothing changes.

    spec: as JSON has it, never changed. What its nodeSelector implies is not repeated in the terms.
    """
    selector = spec.get("nodeSelector")
    context: Term = ()
    if isinstance(selector, dict) and selector:
        asked = {expression.key for clause in requirement.clauses for term in clause for expression in term}
        context = tuple(
            MatchExpression(EXPRESSIONS, key, "In", (value,))
            for key, value in selector.items()
            if key in asked and isinstance(value, str)
        )
    before = after = required_terms(spec)
    for clause in requirement.clauses:
        after = _joined(after, clause, context)
    return None if after == before else after


def conjoin(user_terms: object, added_terms: Iterable[object]) -> Any:
    """Return the nodeSelectorTerms that match where some of the user's and some of the added terms match.

    user_terms: as they stand in a pod; None where it has none. What is no list comes back as it is.
    """
    (clause,) = Requirement.of_terms(added_terms).clauses
    return _joined(user_terms, clause, ())


def prefer(spec: Mapping[str, Any], requirement: Requirement, weight: int) -> list[dict[str, Any]]:
    """Return the preferred terms to append to a pod's spec, so that fitting nodes score more.

    weight: 1 to 100. Terms that the spec has are left out. The terms of one version exclude each other, so
    that no node counts twice.
    """
    standing: Any = spec
    for name in ("affinity", "nodeAffinity", _PREFERRED):
        standing = standing.get(name) if isinstance(standing, Mapping) else None
    wanted = ({"weight": weight, "preference": term} for term in inject({}, requirement) or () if term)
    return [term for term in wanted if not isinstance(standing, list) or term not in standing]


def _joined(user_terms: Any, clause: Clause, context: Term) -> Any:
    """Return the cross product of a user's terms with a clause. context: what holds beside the terms."""
    if user_terms is None:
        joined = _cross({}, context, clause)
        return None if joined == [{}] and clause else joined or [{}]
    if not isinstance(user_terms, list):
        return user_terms
    joined = []
    for raw in user_terms:
        own = parse_term(raw)
        # What matches nothing stays so: with an expression more, an empty term would match.
        joined += [raw] if own is None else _cross(raw, own + context, clause)
    return joined if joined or not user_terms else [{}]


def _cross(raw: Mapping[str, Any], known: Term, clause: Clause) -> list[Mapping[str, Any]]:
    """Return one user term with each term of a clause, as far as that is new. known: all that holds."""
    return [_with(raw, added) for added in _additions((known, clause))]


def _find_additions(told: tuple[Term, Clause]) -> tuple[Term, ...]:
    """Return what of each term of a clause a term does not imply; nothing once where it implies one of them.

    What contradicts itself is left out, but for the first where nothing else remains.
    """
    known, clause = told
    possible: list[Term] = []
    impossible: list[Term] = []
    for term in clause:
        added: Term = ()
        for expression in term:
            if not _implies(known + added, expression):
                added += (expression,)
        if not added:
            return ((),)
        consistent = not any(_contradictory(_alike(known + added, expression)) for expression in added)
        into = possible if consistent else impossible
        if added not in into:
            into.append(added)
    return tuple(possible or impossible[:1])


_additions = bounded_cache(_find_additions, _REMEMBERED, lambda told: length(told) <= _LONGEST)


def _with(raw: Mapping[str, Any], added: Term) -> Mapping[str, Any]:
    joined = dict(raw)
    for expression in added:
        if joined.get(expression.section) is raw.get(expression.section):
            joined[expression.section] = [*(raw.get(expression.section) or ())]
        joined[expression.section].append(expression.entry())
    return joined


def _alike(term: Term, expression: MatchExpression) -> Term:
    """Return the expressions of a term about the same label or field."""
    return tuple(other for other in term if other[:2] == expression[:2])


def _strictest(alike: Term) -> Term:
    """Return the Gt and the Lt that all others of these expressions follow from, if there are any."""
    above = max((each for each in alike if each.operator == "Gt"), key=attrgetter("bound"), default=None)
    below = min((each for each in alike if each.operator == "Lt"), key=attrgetter("bound"), default=None)
    return tuple(each for each in (above, below) if each is not None)


def _values(alike: Term) -> set[str | None] | None:
    """Return the values that expressions about one label leave, None standing for its absence.

    None where they leave more than can be listed. The cost is linear in what a pod can bring.
    """
    listing = [each for each in alike if each.operator in ("In", "DoesNotExist")]
    if not listing:
        return None
    left: set[str | None] = set(listing[0].values or (None,))
    for each in listing[1:]:
        left.intersection_update(each.values or (None,))
    left.difference_update(*(each.values for each in alike if each.operator == "NotIn"))
    if any(each.operator == "Exists" for each in alike):
        left.discard(None)
    bounds = _strictest(alike)
    return {value for value in left if all(each.holds(value) for each in bounds)}


def _implies(term: Term, wanted: MatchExpression) -> bool:
    """Tell whether an expression holds wherever a term does. False may be wrong, True never is."""
    alike = _alike(term, wanted)
    if (values := _values(alike)) is not None:
        return all(wanted.holds(value) for value in values)
    match wanted.operator:
        case "Exists":
            return any(each.operator in ("Exists", "Gt", "Lt") for each in alike)
        case "NotIn":
            return not any(all(each.holds(value) for each in alike) for value in wanted.values)
        case "Gt":
            return any(each.operator == "Gt" and each.bound >= wanted.bound for each in alike)
        case "Lt":
            return any(each.operator == "Lt" and each.bound <= wanted.bound for each in alike)
    return False


def _contradictory(alike: Term) -> bool:
    """Tell whether no value satisfies all these expressions about one label. False may be wrong."""
    if len(alike) < 2:  # one alone does not contradict itself
        return False
    if (values := _values(alike)) is not None:
        return not values
    match _strictest(alike):
        case (above, below):
            return above.bound + 1 >= below.bound
    return False
