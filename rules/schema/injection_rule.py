"""Injection rules: document model and builder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.rule import PLACEHOLDER, EnvFromResource, Injection, InjectionAction, InjectionRule
from rules.schema.base import _ENV_NAME, RuleDocument, TextDocument
from rules.schema.builder import RuleBuilder, read_rule
from rules.schema.field_types import Annotations, Labels, ObjectName, ResourcePattern
from rules.schema.kubernetes_types import (
    NodeAffinityDocument,
    TolerationDocument,
    VolumeDocument,
    VolumeMountDocument,
)
from rules.schema.match_fields import MatchDocument, build_match
from rules.text.glob import is_glob
from rules.text.i18n import Text
from rules.text.paths import Path
from rules.text.yaml_document import Document


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


def build_injection_rule(part: RuleBuilder, data: Any) -> InjectionRule | None:
    """Return the rule that an InjectionRule's `rule.yaml` states, or None with the mistakes kept in part."""
    found = read_rule(part, data, InjectionRuleDocument)
    if found is None:
        return None
    document, read = found
    match, inject = read.match, read.inject
    affinity = inject.node_affinity
    return InjectionRule(
        name=part.name,
        match=build_match(part, document, match),
        inject=Injection(
            env=tuple(_env(part, document, inject.env)),
            volumes=tuple(volume.entry() for volume in inject.volumes),
            volume_mounts=tuple(mount.entry() for mount in inject.volume_mounts),
            tolerations=tuple(toleration.entry() for toleration in inject.tolerations),
            required_terms=tuple(term.entry() for term in affinity.required.terms)
            if affinity.required
            else (),
            preferred_terms=tuple(
                {"weight": term.weight, "preference": term.preference.entry()} for term in affinity.preferred
            ),
            runtime_class=inject.runtime_class_name,
            scheduler=inject.scheduler_name,
            host_ipc=inject.host_ipc,
            labels=inject.labels,
            annotations=inject.annotations,
        ),
        override=read.override,
        action=InjectionAction(read.enforcement_action),
        description=Text(read.description.en, read.description.zh),
        enabled=part.enabled,
        location=part.document.locate(part.path),
    )


def _env(
    part: RuleBuilder, document: Document, entries: list[EnvDocument]
) -> Iterator[tuple[str, EnvFromResource | dict[str, Any]]]:
    for index, entry in enumerate(entries):
        source = entry.from_resource
        if source is None:
            yield entry.name, entry.model_dump(by_alias=True, exclude_none=True)
            continue
        path: Path = ("inject", "env", index, "fromResource")
        if is_glob(source.name):
            part.fail(
                (*path, "name"), f"{source.name!r} names many resources; a value comes from one", document
            )
        if set("{}") & set(PLACEHOLDER.sub("", source.format)):
            wanted = "expected text with {value}, {bytes}, {MiB} or {GiB} and no other braces"
            part.fail((*path, "format"), f"{wanted}, got {source.format!r}", document)
        try:
            unit = parse_quantity(source.unit)
        except QuantityError as error:
            part.fail((*path, "unit"), str(error), document)
            continue
        if not isinstance(unit, int) or unit <= 0:
            part.fail((*path, "unit"), f"expected a whole quantity above zero, got {source.unit!r}", document)
            continue
        yield entry.name, EnvFromResource(source.name, unit, source.format)
