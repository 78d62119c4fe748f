"""Base classes and field types of rule documents, the pydantic models of rule files.

Each model validates one document; the loader builds the compiled rules of `model` from them. Unknown keys are
errors, and all errors are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core.core_schema import literal_schema, no_info_after_validator_function

from rules.cel.expression import Expression
from rules.cel.variables import CONDITION_VARIABLES, VALIDATION_VARIABLES, described
from rules.cuda.image_catalog import ImageRegex
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.names import (
    REQUEST_PATTERN,
    is_label_key,
    is_label_value,
    is_object_name,
    is_resource_pattern,
    parse_int64,
)
from rules.kube.node_selector_term import Operator
from rules.model.match import SELECTOR_OPERATORS, Match, SelectorTerm
from rules.model.rule import Action
from rules.schema.errors import expected
from rules.text.glob import glob
from rules.text.i18n import Message, Text

ACTIONS: Final = "deny: denies the pod; warn: kubectl prints a warning; dryrun: metric and logs only"

# Entries of a list in a rule: each is compared with other rules or entries, or compiled. Rules have a dozen.
MAX_ENTRIES: Final = 256
# CEL expressions of a rule, as matchConditions in Kubernetes: to compile the longest takes 4 ms.
MAX_EXPRESSIONS: Final = 64
# Names of namespaces or service accounts: some rules list every one.
MAX_NAMES: Final = 2048

NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class RuleDocument(BaseModel):
    """A document or a part of one: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextDocument(RuleDocument):
    """A text in English, Chinese, or both."""

    en: str = Field("", description="in English; empty: as in Chinese")
    zh: str = Field("", description="in Chinese; empty: as in English")

    @property
    def text(self) -> Text:
        """The text."""
        return Text(self.en, zh=self.zh)


OBJECT_NAME: Final = Message("at most 253 characters of a-z, 0-9, - and .")
LABEL_VALUE: Final = Message("at most 63 characters of A-Z, a-z, 0-9, -, _ and .")
_RESOURCE: Final = Message("a resource name with its domain, such as vendor.com/device")
_BOUNDED: Final = Message(", a letter or digit first and last")
_LABEL_KEY: Final = Message("a label key such as example.com/team")
_TAINT_KEY: Final = Message("a taint key such as nvidia.com/gpu")
_KEYS: Final = Message("keys such as example.com/team or team")
_CUDA: Final = Message("a CUDA version such as '12.4'")
_COMPUTE: Final = Message("a compute capability such as '8.0'")


def _such(holds: Callable[[str], bool], what: Message) -> Callable[[str], str]:
    """Return a function that returns a text, and raises ValueError unless it is what is expected."""

    def checked(text: str) -> str:
        if not holds(text):
            raise ValueError(expected(what, repr(text)))
        return text

    return checked


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for value in _annotations(labels).values():
        if not is_label_value(value):
            requirement = Message("{label_value}{bounded}", label_value=LABEL_VALUE, bounded=_BOUNDED)
            raise ValueError(expected(requirement, repr(value)))
    return labels


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    for key in annotations:
        if not is_label_key(key):
            raise ValueError(expected(_KEYS, repr(key)))
    return annotations


_taint_key: Final = _such(is_label_key, _TAINT_KEY)
_label_value: Final = _such(is_label_value, LABEL_VALUE)
LabelKey = Annotated[str, AfterValidator(_such(is_label_key, _LABEL_KEY))]
TaintKey = Annotated[str, AfterValidator(_taint_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
ResourcePattern = Annotated[
    str,
    AfterValidator(_such(is_resource_pattern, _RESOURCE)),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{REQUEST_PATTERN.pattern})$"}),
]
ObjectName = Annotated[str, AfterValidator(_such(lambda name: not name or is_object_name(name), OBJECT_NAME))]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
Annotations = Annotated[dict[str, str], AfterValidator(_annotations)]
CUDA_GROUP: Final = "cuda"


def parsed(parse: Callable[[Any], Any], written: Any = str) -> GetPydanticSchema:
    """Return the annotation of a field whose text becomes another value. written: the type of the text.

    parse raises ValueError for other texts. The JSON Schema describes the text.
    """
    return GetPydanticSchema(lambda _, handler: no_info_after_validator_function(parse, handler(written)))


# The annotation of a field that is one of the words of an enum.
WORD: Final = GetPydanticSchema(
    lambda kind, _: no_info_after_validator_function(kind, literal_schema([word.value for word in kind]))
)


def _cuda(text: str) -> CudaVersion:
    if (version := CudaVersion.parse(text)) is None:
        raise ValueError(expected(_CUDA, repr(text)))
    return version


def _capability(text: str) -> ComputeCapability:
    if (capability := ComputeCapability.parse(text)) is None:
        raise ValueError(expected(_COMPUTE, repr(text)))
    return capability


def _image_regex(text: str) -> ImageRegex:
    regex = ImageRegex(text)
    if set(regex.groups) - {CUDA_GROUP}:
        names = ", ".join(regex.groups)
        raise ValueError(
            Message("the only named group allowed is {group}, got {names}", group=CUDA_GROUP, names=names)
        )
    return regex


# The last expressions are shared: a document is read once more for each setting in its ConfigMap.
_compiled = lru_cache(maxsize=MAX_EXPRESSIONS)(Expression)


def _compile(variables: tuple[str, ...]) -> GetPydanticSchema:
    return parsed(lambda source: _compiled(source, variables), NonEmpty)


# Types of fields, named by their values; in the file each is a text.
Condition = Annotated[Expression, _compile(CONDITION_VARIABLES)]
ValidationExpression = Annotated[Expression, _compile(VALIDATION_VARIABLES)]
Cuda = Annotated[CudaVersion, parsed(_cuda)]
Capability = Annotated[ComputeCapability, parsed(_capability)]
Regex = Annotated[ImageRegex, parsed(_image_regex, NonEmpty)]
Glob = Annotated[re.Pattern[str], parsed(glob, NonEmpty)]
EnforcementAction = Annotated[Action, WORD]


class _Entry(BaseModel):
    """An entry that allows unknown fields and keeps them unchanged."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def entry(self) -> dict[str, Any]:
        """Return the entry as it was written."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class _Known(_Entry):
    """An entry that does not allow unknown fields."""

    model_config = ConfigDict(extra="forbid")


class VolumeDocument(_Entry):
    """A volume, as in the Kubernetes API."""

    name: str = Field(min_length=1, description="name of the volume; other keys are as in the Kubernetes API")


class VolumeMountDocument(_Entry):
    """A volume mount, as in the Kubernetes API."""

    name: str = Field(min_length=1, description="name of the volume; other keys are as in the Kubernetes API")
    mount_path: str = Field(min_length=1, alias="mountPath", description="the mount path in the container")


_VALUES: Final = Message("requires at least one value")
_NO_VALUES: Final = Message("allows no values")
_NUMBER: Final = Message("requires one whole number")
_A_KEY: Final = Message("requires a key")


class TolerationDocument(_Known):
    """A toleration, as in the Kubernetes API."""

    key: str = Field("", description="the taint key; empty with Exists: any")
    operator: Literal["Equal", "Exists", "Lt", "Gt"] = Field("Equal", description="how the value is compared")
    value: str = Field("", description="the taint value")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field("", description="empty: all")
    toleration_seconds: int | None = Field(
        None,
        alias="tolerationSeconds",
        description="with NoExecute, seconds until eviction; absent: never",
    )

    @model_validator(mode="after")
    def _is_valid(self) -> Self:
        if not self.key and self.operator != "Exists":
            raise ValueError(Message("operator {operator} {why}", operator=self.operator, why=_A_KEY))
        if self.key:
            _taint_key(self.key)
        if self.operator == "Exists" and self.value:
            raise ValueError(Message("operator {operator} {why}", operator=self.operator, why=_NO_VALUES))
        if self.operator == "Equal":
            _label_value(self.value)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(Message("tolerationSeconds requires the effect NoExecute"))
        return self


class NodeRequirementDocument(_Known):
    """A requirement of a node's labels, as in the Kubernetes API."""

    key: LabelKey = Field(description="the label key")
    operator: Operator = Field(description="how the value is compared; Gt and Lt compare whole numbers")
    values: list[LabelValue] = Field(
        [], description="at least one for In and NotIn; one for Gt and Lt; none for the others"
    )

    @model_validator(mode="after")
    def _values_suit_operator(self) -> Self:
        match self.operator:
            case "In" | "NotIn":
                why = None if self.values else _VALUES
            case "Gt" | "Lt":
                why = None if len(self.values) == 1 and parse_int64(self.values[0]) is not None else _NUMBER
            case _:
                why = _NO_VALUES if self.values else None
        if why:
            raise ValueError(Message("operator {operator} {why}", operator=self.operator, why=why))
        return self


class NodeFieldDocument(_Known):
    """A requirement of a node's name, as in the Kubernetes API."""

    key: Literal["metadata.name"] = Field(description="the only field that Kubernetes can match")
    operator: Literal["In", "NotIn"] = Field(description="whether the node has the name, or another")
    values: list[ObjectName] = Field(min_length=1, max_length=1, description="the name of one node")


class NodeSelectorTermDocument(_Known):
    """A node selector term, as in the Kubernetes API."""

    match_expressions: list[NodeRequirementDocument] = Field(
        [], alias="matchExpressions", description="requirements of node labels, which must all match"
    )
    match_fields: list[NodeFieldDocument] = Field(
        [], alias="matchFields", description="requirements of the node's name, which must all match"
    )

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if not self.match_expressions and not self.match_fields:
            raise ValueError(
                Message("a term without expressions matches no node; set matchExpressions or matchFields")
            )
        return self


class NodeSelectorDocument(_Known):
    """Node selector terms, of which at least one must match."""

    terms: list[NodeSelectorTermDocument] = Field(
        alias="nodeSelectorTerms", min_length=1, description="at least one must match"
    )


class PreferredTermDocument(_Known):
    """A preferred node selector term with its weight."""

    weight: int = Field(ge=1, le=100, description="added to the score of matching nodes")
    preference: NodeSelectorTermDocument = Field(description="the preferred nodes")


class NodeAffinityDocument(_Known):
    """Node affinity, as in the Kubernetes API."""

    required: NodeSelectorDocument | None = Field(
        None,
        alias="requiredDuringSchedulingIgnoredDuringExecution",
        description="ANDed into each of the pod's terms",
    )
    preferred: list[PreferredTermDocument] = Field(
        [],
        alias="preferredDuringSchedulingIgnoredDuringExecution",
        description="appended to the pod's preferences",
    )


_CAPABILITY: Final = re.compile(r"(?!CAP_)[A-Z][A-Z0-9_]*")
_CAPABILITIES: Final = Message("a capability without CAP_, such as IPC_LOCK")


def _capability_name(name: str) -> str:
    if not _CAPABILITY.fullmatch(name):
        raise ValueError(expected(_CAPABILITIES, repr(name)))
    return name


class CapabilitiesDocument(_Known):
    """Capabilities of Linux, as in the Kubernetes API."""

    add: list[
        Annotated[
            str,
            AfterValidator(_capability_name),
            WithJsonSchema({"type": "string", "pattern": f"^{_CAPABILITY.pattern}$"}),
        ]
    ] = Field(
        min_length=1,
        max_length=MAX_ENTRIES,
        description="capabilities that the container neither has nor drops by name, such as IPC_LOCK",
    )


class SecurityContextDocument(_Known):
    """The security context of a container, as in the Kubernetes API."""

    capabilities: CapabilitiesDocument = Field(description="capabilities of Linux")


class NamespacesDocument(RuleDocument):
    """Namespaces by name or glob."""

    include: list[Glob] = Field([], max_length=MAX_NAMES, description="names or globs; empty: all")
    exclude: list[Glob] = Field(
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
            raise ValueError(Message("operator {operator} {why}", operator=self.operator, why=why))
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
    images: list[Glob] = Field(
        [],
        max_length=MAX_ENTRIES,
        description="globs; at least one matches the container's image, as written or in full",
    )
    namespaces: NamespacesDocument = Field(NamespacesDocument(), description="namespaces of the pod")
    pod_selector: PodSelectorDocument = Field(
        PodSelectorDocument(), alias="podSelector", description="labels of the pod"
    )
    conditions: list[Condition] = Field(
        [],
        max_length=MAX_EXPRESSIONS,
        description=f"CEL expressions over {described(CONDITION_VARIABLES)}; all must be true",
    )


def build_match(match: MatchDocument) -> Match:
    """Return the match of a rule."""
    return Match(
        resources=tuple(match.resources),
        images=tuple(match.images),
        include=tuple(match.namespaces.include),
        exclude=tuple(match.namespaces.exclude),
        selector=build_selector(match.pod_selector),
        conditions=tuple(match.conditions),
    )


def build_selector(selector: PodSelectorDocument) -> tuple[SelectorTerm, ...]:
    """Return the requirements of a label selector, matchLabels first."""
    return (
        *(SelectorTerm(key, "In", frozenset([value])) for key, value in selector.match_labels.items()),
        *(
            SelectorTerm(term.key, term.operator, frozenset(term.values))
            for term in selector.match_expressions
        ),
    )
