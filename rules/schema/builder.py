"""From a rule document to a compiled rule: quantities read, expressions and globs compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from rules.cel.expression import CONDITION_VARIABLES, VALIDATION_VARIABLES, Expression, ExpressionError
from rules.decision.injection_stage import PLACEHOLDER
from rules.kube.json_patch import Path
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.match import Match, ResourceIndex, SelectorTerm, glob, is_glob
from rules.model.nouns import (
    Action,
    EnvFromResource,
    Injection,
    InjectionAction,
    InjectionRule,
    LimitsPolicy,
    Location,
    RequestsPolicy,
    ResourceRule,
    Text,
    Validation,
)
from rules.schema.base import (
    EnvDocument,
    InjectionRuleDocument,
    MatchDocument,
    PodSelectorDocument,
    ResourceRuleData,
    RuleDocument,
    ValidationDocument,
)
from rules.schema.errors import Code, RuleError, describe, schema_errors
from rules.text.yaml_document import Document, SourceError

D = TypeVar("D", bound=RuleDocument)

DOCUMENT_KEY: Final = "rule.yaml"
_MILDNESS: Final = (Action.DENY, Action.WARN, Action.DRYRUN)


@dataclass(slots=True)
class Part:
    """A part of a document under construction: its ConfigMap, and the mistakes found in it.

    path: where the ConfigMap stands in the document. inner: the document in its `rule.yaml`, where it has one
    that was read. Mistakes are kept, so that all are reported together.
    """

    document: Document
    path: Path
    name: str
    enabled: bool
    group: str
    errors: list[RuleError]
    inner: Document | None = None

    def fail(
        self,
        path: Path,
        message: str,
        document: Document | None = None,
        *,
        key: bool = False,
        code: Code = Code.WRONG_VALUE,
    ) -> None:
        """Keep a mistake at a path of the document."""
        place = (document or self.document).locate(path, key=key)
        self.errors.append(RuleError(place, path, message, self.name, code))

    def embedded(self, path: Path) -> Document | None:
        """Return the document that the string at the path is, or None; its mistakes are kept."""
        try:
            document = self.document.embedded(path)
        except SourceError as error:
            self.errors.append(RuleError(error.location, path, error.message, self.name, Code.NOT_YAML))
            return None
        self.errors += [
            RuleError(error.location, path, error.message, self.name, Code.DUPLICATE_KEY)
            for error in document.duplicates
        ]
        return document

    def locate(self, path: Path) -> Location:
        """Return where a path of the rule's own document stands, or one of its ConfigMap's metadata."""
        if self.inner is not None and path[:1] != ("metadata",):
            return self.inner.locate(path)
        return self.document.locate((*self.path, *path))


def build_resource_rule(part: Part, data: Any) -> ResourceRule | None:
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


def _validations(part: Part, path: Path, rule: ResourceRuleData) -> Iterator[Validation]:
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


def read_rule(part: Part, data: Any, schema: type[D]) -> tuple[Document, D] | None:
    """Return the document in `rule.yaml` as its schema has it, or None with the mistakes kept in part."""
    path: Path = (*part.path, "data", DOCUMENT_KEY)
    text = data.get(DOCUMENT_KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        message = f"required key {DOCUMENT_KEY!r} is missing: it holds the rule"
        part.fail(path[:-1], message, key=True, code=Code.MISSING_KEY)
        return None
    for key in data:
        if key != DOCUMENT_KEY:
            message = f"unknown key {key!r}; a rule has only {DOCUMENT_KEY!r}"
            part.fail((*path[:-1], key), message, key=True, code=Code.UNKNOWN_KEY)
    document = part.inner = part.embedded(path)
    if document is None:
        return None
    try:
        return document, schema.model_validate(document.value)
    except ValidationError as error:
        part.errors += schema_errors(error, schema, document, (), part.name)
    return None


def build_injection_rule(part: Part, data: Any) -> InjectionRule | None:
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


def build_match(part: Part, document: Document, match: MatchDocument) -> Match:
    """Return what a rule applies to, with its globs and expressions compiled."""
    conditions = tuple(_conditions(part, document, match.conditions))
    return Match(
        resources=tuple(match.resources),
        images=tuple(glob(pattern) for pattern in match.images),
        include=tuple(glob(pattern) for pattern in match.namespaces.include),
        exclude=tuple(glob(pattern) for pattern in match.namespaces.exclude),
        selector=build_selector(match.pod_selector),
        conditions=conditions,
        terms=tuple(term for condition in conditions for term in condition.terms()),
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


def _conditions(part: Part, document: Document, sources: list[str]) -> Iterator[Expression]:
    for index, source in enumerate(sources):
        try:
            yield Expression(source, CONDITION_VARIABLES)
        except ExpressionError as error:
            path: Path = ("match", "conditions", index)
            part.fail(path, f"CEL: {error}", document, code=Code.BAD_EXPRESSION)


def _env(
    part: Part, document: Document, entries: list[EnvDocument]
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
