"""Injection rules: the document and the rule that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, create_model, model_validator

from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.rule import (
    PLACEHOLDER,
    POD_FIELDS,
    EnvFromResource,
    Injection,
    InjectionAction,
    InjectionRule,
)
from rules.schema.builder import KindDocument, RuleBuilder
from rules.schema.errors import expected, reason_of
from rules.schema.field_types import (
    MAX_ENTRIES,
    WORD,
    Annotations,
    Labels,
    MatchDocument,
    NodeAffinityDocument,
    ObjectName,
    ResourcePattern,
    RuleDocument,
    SecurityContextDocument,
    TextDocument,
    TolerationDocument,
    VolumeDocument,
    VolumeMountDocument,
    build_match,
)
from rules.text.glob import is_glob
from rules.text.i18n import Message
from rules.text.paths import Path

# Printable ASCII except `=`: Kubernetes since 1.32 (RelaxedEnvironmentVariableValidation).
_ENV_NAME: Final = r"^[ -<>-~]+$"
_ONE_SOURCE: Final = Message("expected exactly one of value, valueFrom, fromResource")
_NOTHING: Final = Message("nothing to inject: set env, volumes, tolerations, …")
_VARIABLE: Final = Message("variable")
_VOLUME: Final = Message("volume")
_MOUNT_PATH: Final = Message("mount path")
_FORMAT: Final = Message("text with {value}, {bytes}, {MiB} or {GiB} and no other braces")
_WHOLE: Final = Message("a whole quantity above zero")


class FromResourceDocument(RuleDocument):
    """A value calculated from the container's quantity of a resource."""

    name: ResourcePattern = Field(
        description="the resource, not a glob; no variable is injected for a container without it"
    )
    unit: str = Field(
        "1", description="the size of one unit of the resource: a whole quantity, such as 256Mi"
    )
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

    name: str = Field(pattern=_ENV_NAME, description="name of the variable: printable ASCII except `=`")
    value: str | None = Field(None, description="the text, as in the Kubernetes API")
    value_from: dict[str, Any] | None = Field(None, alias="valueFrom", description="as in the Kubernetes API")
    from_resource: FromResourceDocument | None = Field(
        None, alias="fromResource", description="calculated from the container's quantity of a resource"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if [self.value, self.value_from, self.from_resource].count(None) != 2:
            raise ValueError(_ONE_SOURCE)
        return self


class _InjectDocument(RuleDocument):
    """What a rule injects: env, mounts and securityContext into the container, the rest into its pod."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    env: list[EnvDocument] = Field(
        [],
        max_length=MAX_ENTRIES,
        description="variables that the container does not have, each from one of the three sources",
    )
    volumes: list[VolumeDocument] = Field(
        [], max_length=MAX_ENTRIES, description="volumes that the pod does not have, by name"
    )
    volume_mounts: list[VolumeMountDocument] = Field(
        [],
        alias="volumeMounts",
        max_length=MAX_ENTRIES,
        description="mounts that the container does not have, by mountPath",
    )
    security_context: SecurityContextDocument | None = Field(
        None, alias="securityContext", description="as in the Kubernetes API; only capabilities"
    )
    tolerations: list[TolerationDocument] = Field(
        [], max_length=MAX_ENTRIES, description="tolerations that the pod does not have"
    )
    node_affinity: NodeAffinityDocument = Field(
        NodeAffinityDocument(), alias="nodeAffinity", description="as in the Kubernetes API"
    )
    labels: Labels = Field({}, description="labels that the pod does not have")
    annotations: Annotations = Field({}, description="annotations that the pod does not have")

    @model_validator(mode="after")
    def _injects_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(_NOTHING)
        for subject, names in (
            (_VARIABLE, [entry.name for entry in self.env]),
            (_VOLUME, [volume.name for volume in self.volumes]),
            (_MOUNT_PATH, [mount.mount_path for mount in self.volume_mounts]),
        ):
            for name, times in Counter(names).items():
                if times > 1:
                    raise ValueError(
                        Message(
                            "{what} {name!r} is listed {times} times; keep one",
                            what=subject,
                            name=name,
                            times=times,
                        )
                    )
        return self


_POD_FIELD_TYPES: Final = {str: ObjectName, bool: bool, int: Annotated[int, Field(ge=1, le=2**31 - 1)]}
if TYPE_CHECKING:
    InjectDocument = _InjectDocument
else:
    InjectDocument = create_model(
        "InjectDocument",
        __base__=_InjectDocument,
        __doc__=_InjectDocument.__doc__,
        **{
            field.name: (
                _POD_FIELD_TYPES[field.kind],
                Field(field.kind(), description=field.description),
            )
            for field in POD_FIELDS
        },
    )


class InjectionRuleDocument(KindDocument):
    """What is injected into matching containers and their pods."""

    description: TextDocument = Field(TextDocument(), description="the purpose, for listings")
    enforcement_action: Annotated[InjectionAction, WORD] = Field(
        InjectionAction.INJECT,
        alias="enforcementAction",
        description="dryrun: the audit log shows what would be injected",
    )
    override: bool = Field(
        False,
        description="true: replaces values of the user, except volumes, mounts, tolerations and capabilities",
    )
    match: MatchDocument = Field(
        description="the containers that the rule applies to; all conditions must match"
    )
    inject: InjectDocument = Field(description="what is injected; at least one key")

    def rule(self, builder: RuleBuilder) -> InjectionRule:
        """Return the rule."""
        match, inject = self.match, self.inject
        affinity = inject.node_affinity
        return InjectionRule(
            name=builder.name,
            match=build_match(match),
            inject=Injection(
                env=tuple(_env(builder, inject.env)),
                volumes=tuple(volume.entry() for volume in inject.volumes),
                volume_mounts=tuple(mount.entry() for mount in inject.volume_mounts),
                capabilities=tuple(context.capabilities.add) if (context := inject.security_context) else (),
                tolerations=tuple(toleration.entry() for toleration in inject.tolerations),
                required_terms=tuple(term.entry() for term in affinity.required.terms)
                if affinity.required
                else (),
                preferred_terms=tuple(
                    {"weight": term.weight, "preference": term.preference.entry()}
                    for term in affinity.preferred
                ),
                pod_fields={
                    field.name: value for field in POD_FIELDS if (value := getattr(inject, field.name))
                },
                labels=inject.labels,
                annotations=inject.annotations,
            ),
            override=self.override,
            action=self.enforcement_action,
            description=self.description.text,
            enabled=builder.enabled,
            location=builder.location,
        )


def _env(
    builder: RuleBuilder, entries: list[EnvDocument]
) -> Iterator[tuple[str, EnvFromResource | dict[str, Any]]]:
    for index, entry in enumerate(entries):
        source = entry.from_resource
        if source is None:
            yield entry.name, entry.model_dump(by_alias=True, exclude_none=True)
            continue
        path: Path = ("inject", "env", index, "fromResource")
        if is_glob(source.name):
            builder.add_error(
                (*path, "name"),
                Message("{name!r} matches many resources; name one resource", name=source.name),
                builder.inner,
            )
        if set("{}") & set(PLACEHOLDER.sub("", source.format)):
            builder.add_error((*path, "format"), expected(_FORMAT, repr(source.format)), builder.inner)
        try:
            unit = parse_quantity(source.unit)
        except QuantityError as error:
            builder.add_error((*path, "unit"), reason_of(error), builder.inner)
            continue
        if not isinstance(unit, int) or unit <= 0:
            builder.add_error((*path, "unit"), expected(_WHOLE, repr(source.unit)), builder.inner)
            continue
        yield entry.name, EnvFromResource(source.name, unit, source.format)
