"""RuleBuilder: context for building a compiled rule from a rule document."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec import Struct
from pydantic import ValidationError

from rules.model.rule import Rule
from rules.schema.config_map import DOCUMENT_KEY
from rules.schema.errors import Code, RuleError, expected, kind_of, unknown_key
from rules.schema.field_types import RuleDocument
from rules.schema.validation_errors import schema_errors
from rules.text.i18n import Message
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Document, Location, SourceError

# Keys of a rule's document that may also be in `data`, where they take precedence: kustomize and Helm can set
# a key of a ConfigMap, but not a key inside a text. A nested key is written `checks.taints` there.
PATCHABLE: Final = (
    "enforcementAction",
    "minorVersionCompatibility",
    "majorVersionMismatch",
    "newerMajorVersions",
    "noFittingNode",
    "newNodes",
    "migSlices",
    "baseline",
    "declarations",
    "containerRuntime",
    "checks",
)


class RuleBuilder(Struct):
    """The ConfigMap of a rule under construction, and its errors, which are reported together."""

    document: Document
    path: Path  # of the ConfigMap in the document
    name: str
    enabled: bool
    group: str
    errors: list[RuleError]
    inner: Document | None = None  # the document in its `rule.yaml`, if readable
    incomplete: bool = False  # an error is reported for a part of `data` that is in another place

    def add_error(
        self,
        path: Path,
        message: Message,
        document: Document | None = None,
        *,
        key: bool = False,
        code: Code = Code.WRONG_VALUE,
    ) -> None:
        """Add an error at a path of the document."""
        location = (document or self.document).locate(path, key=key)
        self.errors.append(RuleError(location, path, message, self.name, code))

    @property
    def location(self) -> Location:
        """The location of the ConfigMap."""
        return self.document.locate(self.path)

    def embedded(self, path: Path) -> Document | None:
        """Return the document in the string at the path, or None; its errors are added."""
        try:
            document = self.document.embedded(path)
        except SourceError as error:
            self.errors.append(RuleError(error.location, path, error.problem, self.name, Code.NOT_YAML))
            return None
        self.errors += [
            RuleError(error.location, path, error.problem, self.name, Code.DUPLICATE_KEY)
            for error in document.duplicates
        ]
        return document

    def locate(self, path: Path) -> Location:
        """Return the location of a path of the rule's own document, or of its ConfigMap's metadata."""
        if self.inner is not None and path[:1] != ("metadata",):
            return self.inner.locate(path)
        return self.document.locate((*self.path, *path))


class KindDocument(RuleDocument):
    """The document of a kind of rule."""

    def rule(self, builder: RuleBuilder) -> Rule:
        """Return the rule, with errors added to builder if it is invalid as a whole."""
        raise NotImplementedError


def patchable_keys(schema: type[RuleDocument]) -> list[str]:
    """Return the keys of PATCHABLE in documents of a schema; nested keys are written `checks.taints`."""
    fields = {field.alias or name: field.annotation for name, field in schema.model_fields.items()}
    keys = []
    for key in PATCHABLE:
        inner = fields.get(key)
        if isinstance(inner, type) and issubclass(inner, RuleDocument):
            keys += [f"{key}.{field.alias or name}" for name, field in inner.model_fields.items()]
        elif inner is not None:
            keys.append(key)
    return keys


def _patched(value: Mapping[str, Any], key: str, setting: Any) -> dict[str, Any]:
    """Return a document with a patchable key set."""
    name, dot, inner = key.partition(".")
    if not dot:
        return {**value, name: setting}
    setting = setting if isinstance(setting, str) else str(setting)  # the API server accepts only texts
    before = value.get(name)
    return {**value, name: {**(before if isinstance(before, Mapping) else {}), inner: setting}}


def read_rule(builder: RuleBuilder, data: Any, schema: type[KindDocument]) -> Rule | None:
    """Return the rule in `rule.yaml`, or None with the errors added to builder.

    The patchable keys in data take precedence over the document.
    """
    path: Path = (*builder.path, "data")
    data = data if isinstance(data, dict) else {}
    patchable = patchable_keys(schema)
    known = [DOCUMENT_KEY, *patchable]
    unknown = [key for key in data if key not in known]
    for key in unknown:
        builder.add_error((*path, key), unknown_key(str(key), known), key=True, code=Code.UNKNOWN_KEY)
    if DOCUMENT_KEY not in data:
        if not (builder.incomplete or get_close_matches(DOCUMENT_KEY, unknown)):
            message = Message("required key {key!r} is missing: it contains the rule", key=DOCUMENT_KEY)
            builder.add_error(path, message, key=True, code=Code.MISSING_KEY)
        return None
    if not isinstance(data[DOCUMENT_KEY], str):
        remedy = Message(": write `{key}: |` and indent the rule below it", key=DOCUMENT_KEY)
        message = expected(kind_of(""), kind_of(data[DOCUMENT_KEY]), remedy)
        builder.add_error((*path, DOCUMENT_KEY), message, key=True, code=Code.WRONG_TYPE)
        return None
    document = builder.inner = builder.embedded((*path, DOCUMENT_KEY))
    if document is None:
        return None
    value = document.value
    read: KindDocument | None = None
    try:
        read = schema.model_validate(value)
    except ValidationError as error:
        builder.errors += schema_errors(error, schema, document, (), builder.name)
    settings = [key for key in patchable if key in data and isinstance(value, dict)]
    for key in settings:
        patched, at = _patched(value, key, data[key]), (*path, key)
        try:
            read = schema.model_validate(patched)
        except ValidationError as error:
            # A condition over several keys has no path; it is this key's error if the document satisfied it.
            paths = {field_path((*path, *key.split("."))), *([field_path(path)] if read else [])}
            for mistake in schema_errors(error, schema, builder.document, path, builder.name):
                if mistake.path in paths:
                    builder.add_error(at, mistake.text, code=mistake.code)
        else:
            value = patched
    return read.rule(builder) if read else None
