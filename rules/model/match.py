"""The match of a rule: resources and images by glob, labels by selector, containers by CEL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from rules.cel.expression import Expression
from rules.cel.syntax_errors import ExpressionError

# The piece of a match that fails.
Unmet: TypeAlias = "MatchPart | SelectorTerm | Expression"

# Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One requirement of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy it; NotIn is satisfied by an absent label."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class MatchPart(StrEnum):
    """The parts of a match that are satisfied as a whole."""

    NAMESPACES = "namespaces"
    IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Match:
    """What a rule applies to; everything must match, and of a list any entry.

    resources: names or globs of resources that the container asks for. images: compiled globs; empty for any
    image. include, exclude: namespaces by glob.
    """

    resources: tuple[str, ...]
    images: tuple[re.Pattern[str], ...] = ()
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()
    selector: tuple[SelectorTerm, ...] = ()
    conditions: tuple[Expression, ...] = field(default=())

    def pod(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it matches pods of a namespace with these labels."""
        return self.unmet_by_pod(namespace, labels) is None

    def unmet_by_pod(self, namespace: str, labels: Mapping[str, str]) -> Unmet | None:
        """Return the first part that does not match pods of a namespace with these labels, or None."""
        if self.exclude and any(pattern.fullmatch(namespace) for pattern in self.exclude):
            return MatchPart.NAMESPACES
        if self.include and not any(pattern.fullmatch(namespace) for pattern in self.include):
            return MatchPart.NAMESPACES
        for term in self.selector:
            if not term.holds(labels):
                return term
        return None

    def image(self, names: Iterable[str]) -> bool:
        """Return whether it matches an image, given each spelling of its reference."""
        return not self.images or any(pattern.fullmatch(name) for name in names for pattern in self.images)

    def unmet_condition(self, inputs: Mapping[str, Any]) -> Expression | None:
        """Return the first condition that is false, or None.

        Raises ExpressionError if one cannot be evaluated and none is false.
        """
        failed: ExpressionError | None = None
        for condition in self.conditions:
            try:
                if not condition(inputs):
                    return condition
            except ExpressionError as error:
                failed = failed or error
        if failed:
            raise failed
        return None
