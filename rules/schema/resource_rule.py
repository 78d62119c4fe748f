"""Resource rules (`cf-crl-*` ConfigMaps): document model and builder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from rules.cel.variables import CONDITION_VARIABLES, VALIDATION_VARIABLES, described
from rules.kube.names import ANNOTATION, DEFAULT_SCHEDULERS, is_resource_pattern, requesting_annotation
from rules.kube.pod import AnnotationRequest
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.match import ResourceIndex
from rules.model.rule import (
    Action,
    FailurePolicy,
    LimitsPolicy,
    RequestsPolicy,
    ResourceRule,
    Validation,
    mildest,
)
from rules.schema.builder import RuleBuilder
from rules.schema.errors import Code, expected, kind_of, reason_of
from rules.schema.field_types import (
    ACTIONS,
    MAX_EXPRESSIONS,
    WORD,
    Condition,
    EnforcementAction,
    ObjectName,
    ResourcePattern,
    RuleDocument,
    ValidationExpression,
)
from rules.schema.validation_errors import schema_errors
from rules.text.glob import glob, is_glob
from rules.text.i18n import Message, Text
from rules.text.paths import Path

_NOT_NEGATIVE: Final = Message("zero or more")
_POSITIVE: Final = Message("a positive quantity such as 256Mi or 10m")
_MOST_VALIDATIONS: Final = Message("at most {most} validations", most=MAX_EXPRESSIONS)
_VALIDATIONS: Final = Message("a YAML list of validations")
_SCHEDULERS: Final = Message("the schedulerNames of the schedulers that read the annotation")
_RESOURCE: Final = Message("the name of a resource that nodes offer, such as nvidia.com/gpu")
_NO_GLOB: Final = Message("the name of one annotation, without * or ?")
_ONLY_OPTIONAL: Final = Message("limits: optional, requests: disabled")
# Errors that follow if a part of `data` is in another place.
_ABSENT: Final = (Code.MISSING_KEY, Code.WRONG_TYPE)
# Values of the required keys, which no check rejects; for data in which they are wrong.
_PLACEHOLDERS: Final = {
    "key": "example.com/device",
    "dataType": "string",
    "limits": "optional",
    "requests": "disabled",
}
# What an additional rule may set, besides its validations.
_OF_ADDITIONAL: Final = {
    "limits": LimitsPolicy.OPTIONAL.value,
    "requests": RequestsPolicy.DISABLED.value,
    **dict.fromkeys(("defaultValue", "excludeResources", "runtimeClassName", "unit"), ""),
}
_ONLY_VALIDATIONS: Final = Message("an additional rule only adds validations; {advice}")
_REMOVE: Final = Message("remove {key}")
_WRITE: Final = Message("write {key}: {value}")
_NO_VALUE: Final = Message(
    "an additional rule is evaluated once a container and has no value; use container.gpus, or limits['NAME']"
)
_UNUSED: Final = "for user interfaces; not used in admission"


class ValidationDocument(RuleDocument):
    """A CEL expression that a value must satisfy."""

    expression: ValidationExpression = Field(
        description=f"CEL over {described(VALIDATION_VARIABLES)}; must be true"
    )
    message_en: str = Field("", alias="messageEn", description="the expected value, in English")
    message_zh: str = Field("", alias="messageZh", description="the expected value, in Chinese")
    fix_en: str = Field(
        "",
        alias="fixEn",
        description="what to do, in English; default: nothing, or to change another resource it depends on",
    )
    fix_zh: str = Field("", alias="fixZh", description="what to do, in Chinese")
    variable: str = Field(
        "",
        description="the variable in `env` that is wrong if the expression is false: the message has its "
        "value and place, instead of the quantity",
    )
    enforcement_action: EnforcementAction = Field(
        Action.DENY, alias="enforcementAction", description="as for the rule; the milder of the two is used"
    )


class ResourceRuleData(RuleDocument):
    """How containers request one extended resource."""

    key: ResourcePattern = Field(
        description="the resource; a glob if names contain a profile, in which case there is no default; "
        f"`{ANNOTATION}NAME`: an annotation of the pod by which a scheduler shares devices; it counts as a "
        "limit of one container"
    )
    data_type: Literal["integer", "float", "string"] = Field(
        alias="dataType", description="integer: whole numbers only; float, string: any quantity"
    )
    default_value: str = Field(
        "",
        alias="defaultValue",
        description="the quantity to set if the limit or request is absent; empty: none",
    )
    default_when: Condition | None = Field(
        None,
        alias="defaultWhen",
        description=f"CEL over {described(CONDITION_VARIABLES)}; `defaultValue` is set only if it is "
        "true, and not if it cannot be evaluated",
    )
    description_zh: str = Field(
        "", alias="descriptionZh", description="description of the resource in messages, in Chinese"
    )
    description_en: str = Field(
        "", alias="descriptionEn", description="description of the resource in messages, in English"
    )
    additional: Literal["true", "false"] = Field(
        "false",
        description="true: the rule only adds validations, which are evaluated once for each container that "
        "asks for a resource of `key`; the resource still needs a rule of its own",
    )
    group: str = Field("", description=f"{_UNUSED}; the group label is used")
    limits: Annotated[LimitsPolicy, WORD] = Field(
        description="disabled: must be absent; required, optional: if absent, `defaultValue` is set; "
        "without a default, required is violated"
    )
    requests: Annotated[RequestsPolicy, WORD] = Field(
        description="disabled: must be absent or equal to the limit; required: if absent, the limit is set, "
        "else `defaultValue`; without both it is violated; fromLimits: is set to the limit"
    )
    exclude_resources: str = Field(
        "",
        alias="excludeResources",
        description="comma-separated names or globs that must not be used together with `key`",
    )
    validations: str = Field("", description="a YAML list in a string: conditions of the value")
    failure_policy: Annotated[FailurePolicy, WORD] = Field(
        FailurePolicy.FAIL,
        alias="failurePolicy",
        description="if a validation cannot be evaluated, Fail: it is violated; Ignore: a warning",
    )
    unit: str = Field(
        "",
        description="what one of the resource is: bytes such as 256Mi, or a part of a GPU such as 10m; for "
        "suggested values. Default: `resourceUnit`, if that is a quantity",
    )
    enforcement_action: EnforcementAction = Field(
        Action.DENY, alias="enforcementAction", description=f"effect of a violation: {ACTIONS}"
    )
    schedulers: str = Field(
        "",
        description="of an annotation, required: comma-separated schedulerNames of the schedulers that read "
        "it; the rule is not for other pods",
    )
    shares_of: str = Field(
        "",
        alias="sharesOf",
        description="of an annotation, required: the resource of which nodes offer the devices, such as "
        "nvidia.com/gpu",
    )
    container_from: str = Field(
        "",
        alias="containerFrom",
        description="of an annotation: the annotation that names the container it is for; default: the first "
        "container",
    )
    runtime_class_name: ObjectName = Field(
        "", alias="runtimeClassName", description="for pods without one that have a limit of `key`"
    )
    group_i18n: str = Field("", alias="groupI18n", description=_UNUSED)
    label_en: str = Field("", alias="labelEn", description=_UNUSED)
    label_zh: str = Field("", alias="labelZh", description=_UNUSED)
    resource_unit: str = Field("", alias="resourceUnit", description=_UNUSED)
    related_resources: str = Field(
        "",
        alias="relatedResources",
        description="comma-separated keys: a container with one of these or `key` is checked by the rules of "
        "all, as by those of one group",
    )
    ignore_node_check: str = Field("", alias="ignoreNodeCheck", description=_UNUSED)


def build_resource_rule(builder: RuleBuilder, data: Any) -> ResourceRule | None:
    """Return the rule in a `cf-crl-*` ConfigMap's data, or None with the errors added to builder."""
    path: Path = (*builder.path, "data")
    valid = True
    try:
        read = ResourceRuleData.model_validate(data)
    except ValidationError as error:
        valid = False
        for mistake in schema_errors(error, ResourceRuleData, builder.document, path, builder.name):
            if not (builder.incomplete and mistake.code in _ABSENT):
                builder.errors.append(mistake)
        read = _valid_part(data, error)
    if read.default_value:
        _check_default(builder, (*path, "defaultValue"), read)
    if read.unit and not _unit(read.model_copy(update={"resource_unit": ""})):
        builder.add_error((*path, "unit"), expected(_POSITIVE, repr(read.unit)))
    if is_glob(read.key) and (read.default_value or "required" in (read.limits, read.requests)):
        message = Message(
            "{key!r} matches many resources, so they cannot be required or have a default", key=read.key
        )
        builder.add_error((*path, "key"), message)
    _check_annotation(builder, path, read)
    validations = tuple(_validations(builder, (*path, "validations"), read))
    if additional := read.additional == "true":
        _check_additional(builder, path, read, validations)
    if not valid:
        return None
    return ResourceRule(
        name=builder.name,
        key=read.key,
        key_pattern=glob(read.key) if is_glob(read.key) else None,
        group=builder.group,
        integer=read.data_type == "integer",
        default=read.default_value,
        limits=read.limits,
        requests=read.requests,
        excludes=ResourceIndex((name, name) for name in _names(read.exclude_resources)),
        validations=validations,
        failure_policy=read.failure_policy,
        unit="" if additional else _unit(read),
        runtime_class=read.runtime_class_name,
        action=read.enforcement_action,
        default_when=read.default_when,
        additional=additional,
        related=tuple(_names(read.related_resources)),
        by_annotation=_annotation_request(read),
        description=Text(read.description_en, zh=read.description_zh),
        enabled=builder.enabled,
        location=builder.location,
    )


def _check_default(builder: RuleBuilder, path: Path, rule: ResourceRuleData) -> None:
    try:
        default = parse_quantity(rule.default_value)
    except QuantityError as error:
        builder.add_error(path, reason_of(error))
        return
    if rule.data_type == "integer" and not isinstance(default, int):
        message = Message("dataType is integer, but {value!r} is not whole", value=rule.default_value)
        builder.add_error(path, message)
    if default < 0:
        builder.add_error(path, expected(_NOT_NEGATIVE, repr(rule.default_value)))


def _check_additional(
    builder: RuleBuilder, path: Path, rule: ResourceRuleData, validations: tuple[Validation, ...]
) -> None:
    """Add the errors of what an additional rule must not set, and of validations that name `value`."""
    values = rule.model_dump(by_alias=True)
    for key, value in _OF_ADDITIONAL.items():
        if values[key] != value:
            advice = _WRITE.having(key=key, value=value) if value else _REMOVE.having(key=key)
            builder.add_error((*path, key), _ONLY_VALIDATIONS.having(advice=advice))
    if any("value" in validation.expression.variables for validation in validations):
        builder.add_error((*path, "validations"), _NO_VALUE)


def _check_annotation(builder: RuleBuilder, path: Path, rule: ResourceRuleData) -> None:
    """Add the errors of a key that is an annotation, and of keys that only annotations have."""
    keys = {"schedulers": rule.schedulers, "sharesOf": rule.shares_of, "containerFrom": rule.container_from}
    if not requesting_annotation(rule.key):
        for name in (name for name, text in keys.items() if text):
            builder.add_error((*path, name), Message("only a key {prefix}NAME has it", prefix=ANNOTATION))
        return
    schedulers = _names(rule.schedulers)
    if not schedulers or not set(DEFAULT_SCHEDULERS).isdisjoint(schedulers):
        builder.add_error((*path, "schedulers"), expected(_SCHEDULERS, repr(rule.schedulers)))
    if not is_resource_pattern(rule.shares_of) or is_glob(rule.shares_of):
        builder.add_error((*path, "sharesOf"), expected(_RESOURCE, repr(rule.shares_of)))
    if is_glob(rule.key):
        builder.add_error((*path, "key"), expected(_NO_GLOB, repr(rule.key)))
    if rule.limits is not LimitsPolicy.OPTIONAL or rule.requests is not RequestsPolicy.DISABLED:
        message = expected(_ONLY_OPTIONAL, f"limits: {rule.limits}, requests: {rule.requests}")
        builder.add_error((*path, "limits"), message)
    if rule.default_value:
        message = Message("an annotation has no default, because the pod's owner chooses the scheduler")
        builder.add_error((*path, "defaultValue"), message)


def _annotation_request(rule: ResourceRuleData) -> AnnotationRequest | None:
    if not requesting_annotation(rule.key):
        return None
    return AnnotationRequest(tuple(_names(rule.schedulers)), rule.shares_of, rule.container_from)


def _valid_part(data: Any, error: ValidationError) -> ResourceRuleData:
    """Return the data without the keys that have errors, so that the other values are checked."""
    wrong = {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}
    valid = {key: value for key, value in data.items() if key not in wrong} if isinstance(data, dict) else {}
    return ResourceRuleData.model_validate({**_PLACEHOLDERS, **valid})


def _unit(rule: ResourceRuleData) -> str:
    """Return the unit of the resource, empty if it is unknown."""
    for text in (rule.unit, rule.resource_unit):
        try:
            if text and parse_quantity(text) > 0:
                return text
        except QuantityError:  # a word for user interfaces
            continue
    return ""


def _names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _validations(builder: RuleBuilder, path: Path, rule: ResourceRuleData) -> Iterator[Validation]:
    if not rule.validations.strip():
        return
    document = builder.embedded(path)
    if document is None:
        return
    if not isinstance(document.value, list):
        message = expected(_VALIDATIONS, kind_of(document.value))
        builder.add_error(path, message, code=Code.WRONG_TYPE)
        return
    if len(document.value) > MAX_EXPRESSIONS:
        builder.add_error(path, expected(_MOST_VALIDATIONS, str(len(document.value))))
        return
    for index, item in enumerate(document.value):
        try:
            read = ValidationDocument.model_validate(item)
        except ValidationError as error:
            mistakes = schema_errors(error, ValidationDocument, document, (index,), builder.name)
            builder.errors += [mistake.below(path) for mistake in mistakes]
            continue
        action = mildest(rule.enforcement_action, read.enforcement_action)
        message, fix = Text(read.message_en, zh=read.message_zh), Text(read.fix_en, zh=read.fix_zh)
        yield Validation(read.expression, message, action, fix, read.variable)
