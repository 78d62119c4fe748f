"""Required node affinity that admits only compatible nodes, and how it joins the user's own terms.

A requirement is a conjunction of clauses, a clause is a disjunction of terms. It joins the user's terms by a
cross product: each term of the clause is added to each term of the user. The pod can then use exactly those
nodes that it could use before and that satisfy the requirement. The user's expressions stay unchanged, first
and in order. Expressions that a term already implies are not added, so joining again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, product
from math import prod
from operator import attrgetter
from typing import Any, Final

from rules.kube.node_selector_term import (
    EXPRESSIONS,
    Clause,
    MatchExpression,
    Term,
    expressions_of,
    parse_term,
    required_terms,
)
from rules.text.bounded_cache import Budget, bounded_cache, length
from rules.text.i18n import Message

# Clauses that are remembered, terms of pods for each, and the maximum characters of one: 5 KB a pair.
_REMEMBERED_CLAUSES: Final = 64
_REMEMBERED_TERMS: Final = 16
_LONGEST_CLAUSE: Final = 4096
_LONGEST_TERM: Final = 1024
# Terms of one requirement that are multiplied out before others follow as the last ones; different containers
# of a malicious pod could have millions.
_MOST_TERMS: Final = 64
# Pairs of a term of the pod and a term of a clause, which one object may make while they are multiplied out:
# one takes 5 to 45 µs. A pod of ten terms in a cluster of a thousand pools makes as many.
MOST_PAIRS: Final = 10_240
_TOO_MANY_PAIRS: Final = Message(
    "its nodeSelectorTerms make more than {most:,} combinations with the terms that its containers"
    " require of a node. Use fewer nodeSelectorTerms, or fewer alternatives in NVIDIA_REQUIRE_* variables",
    most=MOST_PAIRS,
)
_Sections = tuple[tuple[str, list[dict[str, Any]]], ...]
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on nodes: at least one term of every clause matches. Without clauses any node does."""

    clauses: tuple[Clause, ...] = ()
    _alone: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of_terms(cls, terms: Iterable[object]) -> Requirement:
        """Return the requirement that at least one of the nodeSelectorTerms of a rule or a pod matches."""
        return cls((tuple(term for raw in terms if (term := parse_term(raw)) is not None),))

    def __and__(self, other: Requirement) -> Requirement:
        return Requirement(self.clauses + other.clauses)

    @property
    def terms(self) -> Any:
        """The nodeSelectorTerms for a pod without its own, or None; not to be modified."""
        return self.joined()

    def joined(self, budget: Budget | None = None) -> Any:
        """Return the terms, which are made once; each call spends their pairs. Raises OverBudgetError."""
        if self._alone:
            terms, pairs = self._alone[0]
            if budget is not None:
                budget.spend(pairs)
            return terms
        budget = budget or pairs_budget()
        before = budget.spent
        terms = _all_joined(None, self.clauses, (), budget)
        self._alone.append((terms, budget.spent - before))
        return terms

    def or_else(self, terms: Clause) -> Requirement:
        """Return the requirement that a node satisfies this one, or matches one of these terms.

        The terms come last. Too many clauses are not multiplied out: each gets the terms, to the same effect.
        """
        if not self.clauses or not terms:
            return self
        if prod(map(len, self.clauses)) > _MOST_TERMS:
            return Requirement(tuple((*clause, *terms) for clause in self.clauses))
        return Requirement(((*(tuple(chain(*parts)) for parts in product(*self.clauses)), *terms),))


def pairs_budget() -> Budget:
    """Return the budget of one object for `inject`."""
    return Budget(MOST_PAIRS, _TOO_MANY_PAIRS)


def inject(spec: Mapping[str, Any], requirement: Requirement, budget: Budget | None = None) -> Any:
    """Return the required nodeSelectorTerms that a pod's spec must have, or None if nothing changes.

    The terms do not repeat what the nodeSelector implies.

    spec: as JSON, not modified.
    budget: of the object, if it contains several pods.

    Raises OverBudgetError if the terms are too many to multiply out.
    """
    selector = spec.get("nodeSelector")
    context: Term = ()
    if isinstance(selector, dict) and selector:
        keys = {expression.key for clause in requirement.clauses for term in clause for expression in term}
        context = tuple(
            MatchExpression(EXPRESSIONS, key, "In", (value,))
            for key, value in selector.items()
            if key in keys and isinstance(value, str)
        )
    before = required_terms(spec)
    if before is None and not context:
        return requirement.joined(budget)
    after = _all_joined(before, requirement.clauses, context, budget)
    return None if after == before else after


def conjoin(user_terms: object, added_terms: Iterable[object]) -> Any:
    """Return the nodeSelectorTerms that match if one of the user's and one of the added terms match.

    user_terms: as in the pod, None if absent. A value that is not a list is returned unchanged.
    """
    (clause,) = Requirement.of_terms(added_terms).clauses
    return _joined(user_terms, clause, ())


def prefer(spec: Mapping[str, Any], requirement: Requirement, weight: int) -> list[dict[str, Any]]:
    """Return the preferred terms to append to a pod's spec, so that compatible nodes score higher.

    weight: 1 to 100. Terms that the spec has already are omitted. The terms of one version range exclude each
    other, so no node scores twice.
    """
    existing: Any = spec
    for name in ("affinity", "nodeAffinity", _PREFERRED):
        existing = existing.get(name) if isinstance(existing, Mapping) else None
    terms = ({"weight": weight, "preference": term} for term in inject({}, requirement) or () if term)
    return [term for term in terms if not isinstance(existing, list) or term not in existing]


def _all_joined(user_terms: Any, clauses: Iterable[Clause], context: Term, budget: Budget | None) -> Any:
    """Return the cross product of a user's terms with some clauses. Raises OverBudgetError.

    A term counts as more than one if it has more than a few expressions, which are copied.
    """
    joined, budget, own, number = user_terms, budget or pairs_budget(), 1, 1
    if isinstance(user_terms, list):
        number = len(user_terms) or 1
        own = sum([1 + (expressions_of(raw) >> 3) for raw in user_terms])
    for clause in clauses:
        budget.spend(len(clause) * (own * len(joined) // number if isinstance(joined, list) else 1))
        joined = _joined(joined, clause, context)
    return joined


def _joined(user_terms: Any, clause: Clause, context: Term) -> Any:
    """Return the cross product of a user's terms with a clause. context: holds in addition to each term."""
    cross = _cross(clause)
    if user_terms is None:
        joined = cross.of({}, context)
        return None if joined == [{}] else joined or [{}]
    if not isinstance(user_terms, list):
        return user_terms
    joined = []
    for raw in user_terms:
        own = parse_term(raw)
        # A term that matches nothing stays unchanged: with one more expression, an empty term would match.
        joined += [raw] if own is None else cross.of(raw, own + context)
    return joined if joined or not user_terms else [{}]


class _Cross:
    """Combines terms with each term of a clause; expressions on other labels make no difference."""

    def __init__(self, clause: Clause) -> None:
        self._clause = clause
        self._keys = {expression[:2] for term in clause for expression in term}
        self._entries = {expression: expression.entry() for term in clause for expression in term}
        self._additions = bounded_cache(
            self._find_additions, _REMEMBERED_TERMS, lambda known: length(known) <= _LONGEST_TERM
        )

    def of(self, raw: Mapping[str, Any], known: Term) -> list[Mapping[str, Any]]:
        """Return one term combined with each of the clause. known: the expressions that hold already."""
        related = tuple([expression for expression in known if expression[:2] in self._keys])
        return [
            {**raw, **{section: [*(raw.get(section) or ()), *entries] for section, entries in added}}
            for added in self._additions(related)
        ]

    def _find_additions(self, known: Term) -> tuple[_Sections, ...]:
        """Return the expressions, as JSON, that each term of the clause adds to a term, by section.

        If the term implies one of them as a whole, the result is one `()`. Impossible combinations are
        omitted, except the first if no other remains.
        """
        return tuple(
            tuple(
                (
                    section,
                    [self._entries[expression] for expression in added if expression.section == section],
                )
                for section in dict.fromkeys(expression.section for expression in added)
            )
            for added in _not_implied(known, self._clause)
        )


_cross = bounded_cache(_Cross, _REMEMBERED_CLAUSES, lambda clause: length(clause) <= _LONGEST_CLAUSE)


def _not_implied(known: Term, clause: Clause) -> tuple[Term, ...]:
    """Return the expressions of each term of a clause that a term does not imply."""
    possible: dict[Term, None] = {}
    impossible: dict[Term, None] = {}
    for term in clause:
        added: Term = ()
        consistent = True
        for expression in term:
            related = _on_same_key(known + added, expression)
            if not related or not _implies(related, expression):
                added += (expression,)
                consistent = consistent and not _contradictory((*related, expression))
        if not added:
            return ((),)
        (possible if consistent else impossible)[added] = None
    return tuple(possible or [*impossible][:1])


def _on_same_key(term: Term, expression: MatchExpression) -> Term:
    """Return the expressions of a term on the same label or field."""
    return tuple(other for other in term if other[:2] == expression[:2])


def _strictest(related: Term) -> Term:
    """Return the strictest Gt and the strictest Lt of these expressions, if any."""
    bounds = [expression for expression in related if expression.operator in ("Gt", "Lt")]
    if not bounds:
        return ()
    above = max(
        (expression for expression in bounds if expression.operator == "Gt"),
        key=attrgetter("bound"),
        default=None,
    )
    below = min(
        (expression for expression in bounds if expression.operator == "Lt"),
        key=attrgetter("bound"),
        default=None,
    )
    return tuple(bound for bound in (above, below) if bound is not None)


def _values(related: Term) -> set[str | None] | None:
    """Return the values that expressions on one label allow; the value None means that the label is absent.

    Returns None if they allow more than can be listed. The time is linear in the length of the expressions.
    """
    listing = [expression for expression in related if expression.operator in ("In", "DoesNotExist")]
    if not listing:
        return None
    left: set[str | None] = set(listing[0].values or (None,))
    for expression in listing[1:]:
        left.intersection_update(expression.values or (None,))
    left.difference_update(*(expression.values for expression in related if expression.operator == "NotIn"))
    if any(expression.operator == "Exists" for expression in related):
        left.discard(None)
    bounds = _strictest(related)
    return {value for value in left if all(bound.holds(value) for bound in bounds)}


def _implies(related: Term, added: MatchExpression) -> bool:
    """Return whether an expression holds wherever others on its label do. True is never wrong."""
    if (values := _values(related)) is not None:
        return all(added.holds(value) for value in values)
    match added.operator:
        case "Exists":
            return any(expression.operator in ("Exists", "Gt", "Lt") for expression in related)
        case "NotIn":
            return not any(all(expression.holds(value) for expression in related) for value in added.values)
        case "Gt":
            return any(
                expression.operator == "Gt" and expression.bound >= added.bound for expression in related
            )
        case "Lt":
            return any(
                expression.operator == "Lt" and expression.bound <= added.bound for expression in related
            )
    return False


def _contradictory(related: Term) -> bool:
    """Return whether no value satisfies all these expressions on one label. False may be wrong."""
    if len(related) < 2:  # one alone does not contradict itself
        return False
    if (values := _values(related)) is not None:
        return not values
    match _strictest(related):
        case (above, below):
            return above.bound + 1 >= below.bound
    return False
