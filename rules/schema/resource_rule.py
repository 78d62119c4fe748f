"""Resource rules (`cf-crl-*` ConfigMaps): document model and builder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from rules.cel.expression import VALIDATION_VARIABLES, Expression, ExpressionError
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.resource_index import ResourceIndex
from rules.model.rule import Action, LimitsPolicy, RequestsPolicy, ResourceRule, Validation
from rules.schema.base import ACTIONS, NonEmpty, RuleDocument
from rules.schema.builder import RuleBuilder
from rules.schema.errors import Code, RuleError, describe, schema_errors
from rules.schema.field_types import ObjectName, ResourcePattern
from rules.text.glob import glob, is_glob
from rules.text.i18n import Text
from rules.text.paths import Path

_KEPT: Final = "for user interfaces; not used in admission"


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


_MILDNESS: Final = (Action.DENY, Action.WARN, Action.DRYRUN)


def build_resource_rule(part: RuleBuilder, data: Any) -> ResourceRule | None:
    """Return the rule that a `cf-crl-*` ConfigMap's data states, or None with the mistakes kept in part."""
    path: Path = (*part.path, "data")
    try:
        read = ResourceRuleData.model_validate(data)
    except ValidationError as error:
        part.errors += schema_errors(error, ResourceRuleData, part.document, path, part.name)
        return None
    if read.default_value:
        try:
            default = parse_quantity(read.default_value)
        except QuantityError as error:
            part.fail((*path, "defaultValue"), str(error))
        else:
            if read.data_type == "integer" and not isinstance(default, int):
                part.fail(
                    (*path, "defaultValue"), f"dataType is integer, {read.default_value!r} is not whole"
                )
            if default < 0:
                part.fail((*path, "defaultValue"), f"expected zero or more, got {read.default_value!r}")
    if is_glob(read.key) and (read.default_value or "required" in (read.limits, read.requests)):
        part.fail(
            (*path, "key"), f"{read.key!r} names many resources, so none can be required or have a default"
        )
    return ResourceRule(
        name=part.name,
        key=read.key,
        key_pattern=glob(read.key) if is_glob(read.key) else None,
        group=part.group,
        integer=read.data_type == "integer",
        default=read.default_value,
        limits=LimitsPolicy(read.limits),
        requests=RequestsPolicy(read.requests),
        excludes=ResourceIndex((name, name) for name in _names(read.exclude_resources)),
        validations=tuple(_validations(part, (*path, "validations"), read)),
        runtime_class=read.runtime_class_name,
        action=Action(read.enforcement_action),
        description=Text(read.description_en, read.description_zh),
        enabled=part.enabled,
        location=part.document.locate(part.path),
    )


def _names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _validations(part: RuleBuilder, path: Path, rule: ResourceRuleData) -> Iterator[Validation]:
    if not rule.validations.strip():
        return
    document = part.embedded(path)
    if document is None:
        return
    if not isinstance(document.value, list):
        wanted = f"expected a YAML list of validations, got {describe(document.value)}"
        part.fail(path, wanted, code=Code.WRONG_TYPE)
        return
    for index, item in enumerate(document.value):
        try:
            read = ValidationDocument.model_validate(item)
        except ValidationError as error:
            found = schema_errors(error, ValidationDocument, document, (index,), part.name)
            part.errors += [
                RuleError(mistake.location, (*path, index), mistake.message, part.name, mistake.code)
                for mistake in found
            ]
            continue
        try:
            expression = Expression(read.expression, VALIDATION_VARIABLES)
        except ExpressionError as error:
            place, message = document.locate((index, "expression")), f"CEL: {error}"
            inside: Path = (*path, index, "expression")
            part.errors.append(RuleError(place, inside, message, part.name, Code.BAD_EXPRESSION))
            continue
        actions = [Action(each.enforcement_action) for each in (rule, read)]
        yield Validation(
            expression, Text(read.message_en, read.message_zh), max(actions, key=_MILDNESS.index)
        )
