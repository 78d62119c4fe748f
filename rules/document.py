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

from rules.match import SELECTOR_OPERATORS
from rules.names import Annotations, Labels, ObjectName, ResourcePattern

# Printable ASCII but `=`: Kubernetes since 1.32 (RelaxedEnvironmentVariableValidation).
_ENV_NAME: Final = r"^[ -<>-~]+$"

NonEmpty = Annotated[str, StringConstraints(min_length=1)]


class RuleDocument(BaseModel):
    """A document or a part of one: unknown keys and wrong types are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextDocument(RuleDocument):
    """Words in English, Chinese, or both."""

    en: str = Field("", description="English")
    zh: str = Field("", description="Chinese")


class ValidationDocument(RuleDocument):
    """A CEL expression that a value has to satisfy."""

    expression: NonEmpty = Field(description="CEL over value, limits, requests, container; true lets it pass")
    message_en: str = Field("", alias="messageEn", description="what is wanted, in English")
    message_zh: str = Field("", alias="messageZh", description="what is wanted, in Chinese")
    enforcement_action: Literal["deny", "warn", "dryrun"] = Field(
        "deny", alias="enforcementAction", description="milder than the rule's"
    )


class ResourceRuleData(RuleDocument):
    """The `data` of a `cf-crl-*` ConfigMap."""

    key: ResourcePattern = Field(description="the resource; its name may end in *")
    data_type: Literal["integer", "float", "string"] = Field(
        alias="dataType", description="integer: whole only"
    )
    default_value: str = Field("", alias="defaultValue", description="quantity put in where it is absent")
    description_zh: str = Field("", alias="descriptionZh")
    description_en: str = Field("", alias="descriptionEn")
    group: str = Field("", description="as the label `group` says")
    limits: Literal["disabled", "required", "optional"]
    requests: Literal["disabled", "required", "fromLimits"]
    exclude_resources: str = Field(
        "", alias="excludeResources", description="names that may not stand beside key"
    )
    validations: str = Field("", description="YAML list of {expression, messageEn, messageZh}")
    enforcement_action: Literal["deny", "warn", "dryrun"] = Field("deny", alias="enforcementAction")
    runtime_class_name: ObjectName = Field(
        "", alias="runtimeClassName", description="for pods that name none"
    )
    # Keys of user interfaces, kept without a say in admission.
    group_i18n: str = Field("", alias="groupI18n")
    label_en: str = Field("", alias="labelEn")
    label_zh: str = Field("", alias="labelZh")
    resource_unit: str = Field("", alias="resourceUnit")
    related_resources: str = Field("", alias="relatedResources")
    ignore_node_check: str = Field("", alias="ignoreNodeCheck")


class NamespacesDocument(RuleDocument):
    """Namespaces by name or glob."""

    include: list[NonEmpty] = Field([], description="empty: all")
    exclude: list[NonEmpty] = []


class SelectorTermDocument(RuleDocument):
    """One requirement of a label selector."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"operator": {"enum": list(SELECTOR_OPERATORS[:2])}}},
            "then": {"properties": {"values": {"minItems": 1}}, "required": ["values"]},
            "else": {"properties": {"values": {"maxItems": 0}}},
        }
    )

    key: NonEmpty
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    @model_validator(mode="after")
    def _values_suit_operator(self) -> Self:
        if (self.operator in SELECTOR_OPERATORS[:2]) != bool(self.values):
            wanted = "at least one value" if not self.values else "no values"
            raise ValueError(f"operator {self.operator} takes {wanted}")
        return self


class PodSelectorDocument(RuleDocument):
    """A label selector, as in the Kubernetes API."""

    match_labels: dict[str, str] = Field({}, alias="matchLabels")
    match_expressions: list[SelectorTermDocument] = Field([], alias="matchExpressions")


class MatchDocument(RuleDocument):
    """What a rule applies to; all that is given has to hold."""

    resources: list[ResourcePattern] = Field(min_length=1, description="the container asks for any of these")
    images: list[NonEmpty] = Field([], description="globs; the container's image matches any of these")
    namespaces: NamespacesDocument = NamespacesDocument()
    pod_selector: PodSelectorDocument = Field(PodSelectorDocument(), alias="podSelector")
    conditions: list[NonEmpty] = Field([], description="CEL over limits, requests, container, pod; all true")


class FromResourceDocument(RuleDocument):
    """A value computed from the container's quantity of a resource."""

    name: ResourcePattern
    unit: str = Field("1", description="what one of the resource is, such as 256Mi")
    format: str = Field("{value}", description="{value}: the quantity; {bytes}, {MiB}, {GiB}: times unit")


class EnvDocument(RuleDocument):
    """An environment variable, from exactly one source."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [source]} for source in ("value", "valueFrom", "fromResource")]
        }
    )

    name: str = Field(pattern=_ENV_NAME)
    value: str | None = None
    value_from: dict[str, Any] | None = Field(None, alias="valueFrom", description="as in the Kubernetes API")
    from_resource: FromResourceDocument | None = Field(None, alias="fromResource")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if [self.value, self.value_from, self.from_resource].count(None) != 2:
            raise ValueError("expected exactly one of value, valueFrom, fromResource")
        return self


class _ApiObject(BaseModel):
    """An entry as in the Kubernetes API; fields not named here pass as they are."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def entry(self) -> dict[str, Any]:
        """Return the entry as it was written."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class VolumeDocument(_ApiObject):
    """A volume, as in the Kubernetes API."""

    name: NonEmpty


class VolumeMountDocument(_ApiObject):
    """A volume mount, as in the Kubernetes API."""

    name: NonEmpty
    mount_path: NonEmpty = Field(alias="mountPath")


class TolerationDocument(RuleDocument):
    """A toleration, as in the Kubernetes API."""

    key: str = ""
    operator: Literal["Equal", "Exists", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = Field(None, alias="tolerationSeconds")

    def entry(self) -> dict[str, Any]:
        """Return the toleration as it was written."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class NodeSelectorTermDocument(_ApiObject):
    """A node selector term, as in the Kubernetes API."""

    match_expressions: list[dict[str, Any]] = Field([], alias="matchExpressions")
    match_fields: list[dict[str, Any]] = Field([], alias="matchFields")

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if not self.match_expressions and not self.match_fields:
            raise ValueError(
                "a term without expressions matches no node; give matchExpressions or matchFields"
            )
        return self


class NodeSelectorDocument(RuleDocument):
    """Node selector terms; any of them has to match."""

    terms: list[NodeSelectorTermDocument] = Field(alias="nodeSelectorTerms", min_length=1)


class PreferredTermDocument(RuleDocument):
    """A preference of some weight."""

    weight: int = Field(ge=1, le=100)
    preference: NodeSelectorTermDocument


class NodeAffinityDocument(RuleDocument):
    """Node affinity, as in the Kubernetes API."""

    required: NodeSelectorDocument | None = Field(
        None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredTermDocument] = Field(
        [], alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class InjectDocument(RuleDocument):
    """What a rule puts in: env and volumeMounts into the container, the rest into its pod."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    env: list[EnvDocument] = []
    volumes: list[VolumeDocument] = []
    volume_mounts: list[VolumeMountDocument] = Field([], alias="volumeMounts")
    tolerations: list[TolerationDocument] = []
    node_affinity: NodeAffinityDocument = Field(NodeAffinityDocument(), alias="nodeAffinity")
    runtime_class_name: ObjectName = Field("", alias="runtimeClassName")
    scheduler_name: ObjectName = Field("", alias="schedulerName")
    host_ipc: bool = Field(False, alias="hostIPC")
    labels: Labels = {}
    annotations: Annotations = {}

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
    """The `rule.yaml` of an InjectionRule."""

    description: TextDocument = TextDocument()
    enforcement_action: Literal["inject", "dryrun"] = Field("inject", alias="enforcementAction")
    override: bool = Field(False, description="true: also where the user has set it")
    match: MatchDocument
    inject: InjectDocument
