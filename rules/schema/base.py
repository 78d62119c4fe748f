"""Rule documents as people write them: the schema, field by field.

These models check one document each and know nothing of its neighbours; `load` turns them into the compiled
rules of `model`. Unknown keys are refused, all mistakes are reported at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from rules.model.match import SELECTOR_OPERATORS
from rules.schema.field_types import Annotations, Labels, ObjectName, ResourcePattern
from rules.schema.kubernetes_types import (
    NodeAffinityDocument,
    TolerationDocument,
    VolumeDocument,
    VolumeMountDocument,
)

# Printable ASCII but `=`: Kubernetes since 1.32 (RelaxedEnvironmentVariableValidation).
_ENV_NAME: Final = r"^[ -<>-~]+$"
_KEPT: Final = "for user interfaces, without a say in admission"
ACTIONS: Final = "deny refuses, warn has kubectl print it, dryrun tells metric, log and audit log alone"

NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class RuleDocument(BaseModel):
    """A document or a part of one: unknown keys and wrong types are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextDocument(RuleDocument):
    """Words in English, Chinese, or both."""

    en: str = Field("", description="in English; empty: as in Chinese")
    zh: str = Field("", description="in Chinese; empty: as in English")


class ValidationDocument(RuleDocument):
    """A CEL expression that a value has to satisfy."""

    expression: NonEmpty = Field(description="CEL over value, limits, requests, container; true lets it pass")
    message_en: str = Field("", alias="messageEn", description="what is wanted, in English")
    message_zh: str = Field("", alias="messageZh", description="what is wanted, in Chinese")
    enforcement_action: Literal["deny", "warn", "dryrun"] = Field(
        "deny", alias="enforcementAction", description="as the rule's; the milder of the two counts"
    )


class ResourceRuleData(RuleDocument):
    """How containers ask for one extended resource."""

    key: ResourcePattern = Field(
        description="the resource; a glob where names carry a profile, and then without a default"
    )
    data_type: Literal["integer", "float", "string"] = Field(
        alias="dataType", description="integer: whole numbers alone; float, string: any quantity"
    )
    default_value: str = Field("", alias="defaultValue", description="the quantity to put in; empty: none")
    description_zh: str = Field("", alias="descriptionZh", description="what it is, for messages, in Chinese")
    description_en: str = Field("", alias="descriptionEn", description="what it is, for messages, in English")
    group: str = Field("", description=f"{_KEPT}; the label counts")
    limits: Literal["disabled", "required", "optional"] = Field(
        description="disabled: may not be there; required, optional: where it is absent, `defaultValue` is "
        "put in, and without one required is violated"
    )
    requests: Literal["disabled", "required", "fromLimits"] = Field(
        description="disabled: none but one equal to the limit; required: where it is absent, the limit is "
        "put in, else `defaultValue`, and without either it is violated; fromLimits: is set to the limit"
    )
    exclude_resources: str = Field(
        "",
        alias="excludeResources",
        description="names or globs, parted by commas, that exclude `key`",
    )
    validations: str = Field("", description="a YAML list in a string: what a value has to satisfy")
    enforcement_action: Literal["deny", "warn", "dryrun"] = Field(
        "deny", alias="enforcementAction", description=f"what a violation does: {ACTIONS}"
    )
    runtime_class_name: ObjectName = Field(
        "", alias="runtimeClassName", description="for pods that name none and have a limit of `key`"
    )
    group_i18n: str = Field("", alias="groupI18n", description=_KEPT)
    label_en: str = Field("", alias="labelEn", description=_KEPT)
    label_zh: str = Field("", alias="labelZh", description=_KEPT)
    resource_unit: str = Field("", alias="resourceUnit", description=_KEPT)
    related_resources: str = Field("", alias="relatedResources", description=_KEPT)
    ignore_node_check: str = Field("", alias="ignoreNodeCheck", description=_KEPT)


class NamespacesDocument(RuleDocument):
    """Namespaces by name or glob."""

    include: list[NonEmpty] = Field([], description="names or globs; empty: all")
    exclude: list[NonEmpty] = Field([], description="names or globs; goes before `include`")


class SelectorTermDocument(RuleDocument):
    """One requirement of a label selector."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"operator": {"enum": list(SELECTOR_OPERATORS[:2])}}},
            "then": {"properties": {"values": {"minItems": 1}}, "required": ["values"]},
            "else": {"properties": {"values": {"maxItems": 0}}},
        }
    )

    key: NonEmpty = Field(description="of the label")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="NotIn holds without the label, too"
    )
    values: list[str] = Field([], description="for In and NotIn, one at least; for the others none")

    @model_validator(mode="after")
    def _values_suit_operator(self) -> Self:
        if (self.operator in SELECTOR_OPERATORS[:2]) != bool(self.values):
            wanted = "at least one value" if not self.values else "no values"
            raise ValueError(f"operator {self.operator} takes {wanted}")
        return self


class PodSelectorDocument(RuleDocument):
    """A label selector, as in the Kubernetes API."""

    match_labels: dict[str, str] = Field({}, alias="matchLabels", description="labels with their values")
    match_expressions: list[SelectorTermDocument] = Field(
        [], alias="matchExpressions", description="requirements of labels, which all have to hold"
    )


class MatchDocument(RuleDocument):
    """What a rule applies to; all that is given has to hold."""

    resources: list[ResourcePattern] = Field(
        min_length=1, description="names or globs; the container asks for any of these"
    )
    images: list[NonEmpty] = Field(
        [], description="globs; any matches the container's image, as written or in full"
    )
    namespaces: NamespacesDocument = Field(NamespacesDocument(), description="where the pod is")
    pod_selector: PodSelectorDocument = Field(
        PodSelectorDocument(), alias="podSelector", description="labels of the pod"
    )
    conditions: list[NonEmpty] = Field([], description="CEL over limits, requests, container, pod; all true")


class FromResourceDocument(RuleDocument):
    """A value computed from the container's quantity of a resource."""

    name: ResourcePattern = Field(description="the resource, no glob; without it there is no variable")
    unit: str = Field("1", description="what one of the resource is: a whole quantity, such as 256Mi")
    format: str = Field(
        "{value}", description="{value}: the quantity; {bytes}, {MiB}, {GiB}: times `unit`, rounded down"
    )


class EnvDocument(RuleDocument):
    """An environment variable, from exactly one source."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [source]} for source in ("value", "valueFrom", "fromResource")]
        }
    )

    name: str = Field(pattern=_ENV_NAME, description="of the variable: printable ASCII but `=`")
    value: str | None = Field(None, description="the text, as in the Kubernetes API")
    value_from: dict[str, Any] | None = Field(None, alias="valueFrom", description="as in the Kubernetes API")
    from_resource: FromResourceDocument | None = Field(
        None, alias="fromResource", description="computed from the container's quantity of a resource"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if [self.value, self.value_from, self.from_resource].count(None) != 2:
            raise ValueError("expected exactly one of value, valueFrom, fromResource")
        return self


class InjectDocument(RuleDocument):
    """What a rule puts in: env and volumeMounts into the container, the rest into its pod."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    env: list[EnvDocument] = Field(
        [], description="variables that the container has not, each from one of the three sources"
    )
    volumes: list[VolumeDocument] = Field([], description="volumes whose names the pod has not")
    volume_mounts: list[VolumeMountDocument] = Field(
        [], alias="volumeMounts", description="mounts at paths that the container has not"
    )
    tolerations: list[TolerationDocument] = Field([], description="those that none of the pod's covers")
    node_affinity: NodeAffinityDocument = Field(
        NodeAffinityDocument(), alias="nodeAffinity", description="as in the Kubernetes API"
    )
    runtime_class_name: ObjectName = Field(
        "", alias="runtimeClassName", description="for pods that name none"
    )
    scheduler_name: ObjectName = Field(
        "", alias="schedulerName", description="for pods that name none but default-scheduler"
    )
    host_ipc: bool = Field(False, alias="hostIPC", description="true: for pods that do not say")
    labels: Labels = Field({}, description="those that the pod has not")
    annotations: Annotations = Field({}, description="those that the pod has not")

    @model_validator(mode="after")
    def _injects_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing to inject: give env, volumes, tolerations, …")
        for what, names in (
            ("variable", [entry.name for entry in self.env]),
            ("volume", [volume.name for volume in self.volumes]),
            ("mount path", [mount.mount_path for mount in self.volume_mounts]),
        ):
            for name, times in Counter(names).items():
                if times > 1:
                    raise ValueError(f"{what} {name!r} stands {times} times; keep one")
        return self


class InjectionRuleDocument(RuleDocument):
    """What is put into containers that match, and into their pods."""

    description: TextDocument = Field(TextDocument(), description="what it is for, in listings")
    enforcement_action: Literal["inject", "dryrun"] = Field(
        "inject", alias="enforcementAction", description="dryrun: tells the audit log what it would put in"
    )
    override: bool = Field(
        False,
        description="true: over what the user has set, but for volumes, mounts and tolerations",
    )
    match: MatchDocument = Field(description="what it applies to; all that is given has to hold")
    inject: InjectDocument = Field(description="what it puts in; one key at least")
