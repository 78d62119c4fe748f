"""RuleBuilder: context for building a compiled rule from a rule document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from rules.schema.base import RuleDocument
from rules.schema.errors import Code, RuleError, schema_errors
from rules.text.location import Location
from rules.text.paths import Path
from rules.text.yaml_document import Document, SourceError

D = TypeVar("D", bound=RuleDocument)

DOCUMENT_KEY: Final = "rule.yaml"


@dataclass(slots=True)
class RuleBuilder:
    """The ConfigMap of a rule under construction, and the errors found in it.

    path: the path of the ConfigMap in the document. inner: the document in its `rule.yaml`, if it could be
    read. Errors are collected, so that all are reported together.
    """

    document: Document
    path: Path
    name: str
    enabled: bool
    group: str
    errors: list[RuleError]
    inner: Document | None = None

    def add_error(
        self,
        path: Path,
        message: str,
        document: Document | None = None,
        *,
        key: bool = False,
        code: Code = Code.WRONG_VALUE,
    ) -> None:
        """Add an error at a path of the document."""
        location = (document or self.document).locate(path, key=key)
        self.errors.append(RuleError(location, path, message, self.name, code))

    def embedded(self, path: Path) -> Document | None:
        """Return the document in the string at the path, or None; its errors are added."""
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
        """Return the location of a path of the rule's own document, or of its ConfigMap's metadata."""
        if self.inner is not None and path[:1] != ("metadata",):
            return self.inner.locate(path)
        return self.document.locate((*self.path, *path))


def read_rule(builder: RuleBuilder, data: Any, schema: type[D]) -> tuple[Document, D] | None:
    """Return the document in `rule.yaml` and its model, or None with the errors added to builder."""
    path: Path = (*builder.path, "data", DOCUMENT_KEY)
    text = data.get(DOCUMENT_KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        message = f"required key {DOCUMENT_KEY!r} is missing: it contains the rule"
        builder.add_error(path[:-1], message, key=True, code=Code.MISSING_KEY)
        return None
    for key in data:
        if key != DOCUMENT_KEY:
            message = f"unknown key {key!r}; a rule has only {DOCUMENT_KEY!r}"
            builder.add_error((*path[:-1], key), message, key=True, code=Code.UNKNOWN_KEY)
    document = builder.inner = builder.embedded(path)
    if document is None:
        return None
    try:
        return document, schema.model_validate(document.value)
    except ValidationError as error:
        builder.errors += schema_errors(error, schema, document, (), builder.name)
    return None
