"""The `match` of a rule document: model and builder."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rules.cel.variables import CONDITION_VARIABLES, described
from rules.model.match import SELECTOR_OPERATORS, Match, SelectorTerm
from rules.schema.base import MAX_ENTRIES, MAX_EXPRESSIONS, MAX_NAMES, NonEmpty, RuleDocument
from rules.schema.field_types import ConditionText, ResourcePattern, compile_expression
from rules.text.glob import glob
from rules.text.i18n import Text

_VALUES: Final = Text("requires at least one value", "要求至少一个值")
_NO_VALUES: Final = Text("allows no values", "不允许有值")


class NamespacesDocument(RuleDocument):
    """Namespaces by name or glob."""

    include: list[NonEmpty] = Field([], max_length=MAX_NAMES, description="names or globs; empty: all")
    exclude: list[NonEmpty] = Field(
        [], max_length=MAX_NAMES, description="names or globs; takes precedence over `include`"
    )


class SelectorTermDocument(RuleDocument):
    """One requirement of a label selector."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"operator": {"enum": list(SELECTOR_OPERATORS[:2])}}},
            "then": {"properties": {"values": {"minItems": 1}}, "required": ["values"]},
            "else": {"properties": {"values": {"maxItems": 0}}},
        }
    )

    key: NonEmpty = Field(description="the label key")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="NotIn matches also if the label is absent"
    )
    values: list[str] = Field([], description="at least one for In and NotIn; none for the others")

    @model_validator(mode="after")
    def _values_suit_operator(self) -> Self:
        if (self.operator in SELECTOR_OPERATORS[:2]) != bool(self.values):
            why = _NO_VALUES if self.values else _VALUES
            raise ValueError(Text(f"operator {self.operator} {why.en}", f"运算符 {self.operator} {why.zh}"))
        return self


class PodSelectorDocument(RuleDocument):
    """A label selector, as in the Kubernetes API."""

    match_labels: dict[str, str] = Field({}, alias="matchLabels", description="labels with their values")
    match_expressions: list[SelectorTermDocument] = Field(
        [], alias="matchExpressions", description="label requirements, which must all match"
    )


class MatchDocument(RuleDocument):
    """The containers that a rule applies to; all conditions must match."""

    resources: list[ResourcePattern] = Field(
        min_length=1,
        max_length=MAX_ENTRIES,
        description="names or globs; at least one is in the container",
    )
    images: list[NonEmpty] = Field(
        [],
        max_length=MAX_ENTRIES,
        description="globs; at least one matches the container's image, as written or in full",
    )
    namespaces: NamespacesDocument = Field(NamespacesDocument(), description="namespaces of the pod")
    pod_selector: PodSelectorDocument = Field(
        PodSelectorDocument(), alias="podSelector", description="labels of the pod"
    )
    conditions: list[ConditionText] = Field(
        [],
        max_length=MAX_EXPRESSIONS,
        description=f"CEL expressions over {described(CONDITION_VARIABLES)}; all must be true",
    )


def build_match(match: MatchDocument) -> Match:
    """Return the match of a rule, with its globs and expressions compiled."""
    return Match(
        resources=tuple(match.resources),
        images=tuple(glob(pattern) for pattern in match.images),
        include=tuple(glob(pattern) for pattern in match.namespaces.include),
        exclude=tuple(glob(pattern) for pattern in match.namespaces.exclude),
        selector=build_selector(match.pod_selector),
        conditions=tuple(compile_expression(source, CONDITION_VARIABLES) for source in match.conditions),
    )


def build_selector(selector: PodSelectorDocument) -> tuple[SelectorTerm, ...]:
    """Return the requirements of a label selector, those of matchLabels first."""
    return (
        *(SelectorTerm(key, "In", frozenset([value])) for key, value in selector.match_labels.items()),
        *(
            SelectorTerm(term.key, term.operator, frozenset(term.values))
            for term in selector.match_expressions
        ),
    )
