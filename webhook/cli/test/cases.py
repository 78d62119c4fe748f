"""Reader of rule tests: each case as an admission request, the nodes, and the expected result.

A document with an error has no cases. The caller opens the files that it names; nothing here reads from disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from pydantic import ValidationError

from rules import inventory_of
from rules.model.decision import AdmissionRequest
from rules.nodes.inventory import Inventory
from rules.nodes.node_row import InventoryError
from rules.schema.errors import RuleError, kind_of, suggested
from rules.schema.exemption import instant
from rules.schema.validation_errors import schema_errors
from rules.text.i18n import Language, Message, MessageError
from rules.text.paths import Path
from rules.text.yaml_document import Document, Location, SourceError, read
from webhook.cli.test.schema import (
    KIND,
    SHORT_METADATA,
    CaseDocument,
    ExpectDocument,
    NodeDocument,
    RuleTestDocument,
)

# Returns the documents of a file that a test names. Raises MessageError if it cannot be read.
Opener = Callable[[str], list[Document]]

_NO_TEST: Final = Message("no document of kind {kind} in this file", kind=KIND)
_DUPLICATE: Final = Message("duplicate name: {place} has it too")
_OTHER_KIND: Final = Message("expected kind: {kind}, got {actual}{hint}")
_OBJECTS: Final = Message("expected a file with one object, found {count}")
_NO_OBJECT: Final = Message("expected a Kubernetes object with apiVersion, kind and metadata")


class Case(Struct, frozen=True):
    """One case, ready to be decided."""

    name: str
    document: Document
    path: Path  # of the case in the document
    request: AdmissionRequest
    inventory: Inventory
    namespaces: Mapping[str, Mapping[str, str]]  # their labels, if they are known
    now: float  # seconds since the epoch
    expect: ExpectDocument

    @property
    def location(self) -> Location:
        """The location in the text."""
        return self.document.locate(self.path)


class RuleTest(Struct, frozen=True):
    """One valid document: the rules to test, and the cases."""

    document: Document
    rules: tuple[str, ...]
    enable: tuple[str, ...]
    disable: tuple[str, ...]
    language: Language
    cases: tuple[Case, ...]


def read_tests(text: str, file: str, opener: Opener) -> tuple[list[RuleTest], list[RuleError]]:
    """Return the valid test documents of a text, and the errors in invalid ones.

    A text without documents is an error, and so are two cases with the same name.
    """
    tests: list[RuleTest] = []
    errors: list[RuleError] = []
    names: dict[str, Case] = {}
    documents = [
        document
        for document in read(text, file)
        if isinstance(document, SourceError) or document.value is not None
    ]
    if not documents:
        errors.append(RuleError(Location(file), (), _NO_TEST))
    for document in documents:
        if isinstance(document, SourceError):
            errors.append(RuleError(document.location, (), document.problem))
            continue
        reader = _Reader(document, opener)
        test = reader.test()
        for case in test.cases if test else ():
            first = names.setdefault(case.name, case)
            if first is not case:
                reader.add_error((*case.path, "name"), _DUPLICATE.having(place=first.location))
        errors += reader.errors
        if test and not reader.errors:
            tests.append(test)
    return tests, errors


class _Reader:
    """Reads one document and collects its errors."""

    def __init__(self, document: Document, opener: Opener) -> None:
        self._document = document
        self._opener = opener
        self.errors = [
            RuleError(duplicate.location, (), duplicate.problem) for duplicate in document.duplicates
        ]

    def add_error(self, path: Path, message: Message) -> None:
        """Add an error at a path of the document."""
        self.errors.append(RuleError(self._document.locate(path), path, message))

    def test(self) -> RuleTest | None:
        """Return the test in the document, or None; with errors, the test may be incomplete."""
        value = self._document.value
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind != KIND:
            hint = suggested(str(kind), [KIND])
            problem = _OTHER_KIND.having(kind=KIND, actual=kind or kind_of(value), hint=hint)
            self.add_error(("kind",) if kind else (), problem)
            return None
        try:
            test = RuleTestDocument.model_validate(value)
        except ValidationError as error:
            self.errors += schema_errors(error, RuleTestDocument, self._document, (), "")
            return None
        shared = self._inventory(test.nodes, ("nodes",))
        cases = [self._case(case, ("cases", at), shared) for at, case in enumerate(test.cases)]
        return RuleTest(
            self._document,
            tuple(test.rules),
            tuple(test.enable),
            tuple(test.disable),
            test.lang,
            tuple(case for case in cases if case),
        )

    def _case(self, case: CaseDocument, path: Path, shared: Inventory) -> Case | None:
        has_nodes = "nodes" in case.model_fields_set
        inventory = self._inventory(case.nodes, (*path, "nodes")) if has_nodes else shared
        request = self._request(case, (*path, "pod"))
        if request is None:
            return None
        now = instant(case.now) if case.now else math.inf
        labels = case.namespace_labels
        namespaces = {} if labels is None else {request.namespace: labels}
        return Case(case.name, self._document, path, request, inventory, namespaces, now, case.expect)

    def _request(self, case: CaseDocument, path: Path) -> AdmissionRequest | None:
        """Return the request of the API server to create the case's object."""
        value: Any = case.pod
        if "file" in value:
            path = (*path, "file")
            documents = self._open(value["file"], path)
            objects = [item for document in documents for _, item in document.objects()]
            if len(objects) != 1:
                if documents:
                    self.add_error(path, _OBJECTS.having(count=len(objects)))
                return None
            (value,) = objects
        elif "kind" not in value:
            value = _complete(value)
        kind = value.get("kind") if isinstance(value, dict) else None
        metadata = value.get("metadata", {}) if kind else None
        if not isinstance(kind, str) or not isinstance(metadata, dict):
            self.add_error(path, _NO_OBJECT)
            return None
        group = str(value.get("apiVersion", "")).rpartition("/")[0]
        namespace = metadata.get("namespace") or case.namespace or "default"
        return AdmissionRequest("CREATE", group, kind, str(namespace), value)

    def _inventory(self, nodes: list[NodeDocument], path: Path) -> Inventory:
        """Return the inventory of the nodes of a document."""
        objects: list[Any] = []
        for at, node in enumerate(nodes):
            in_file = [document.value for document in self._open(node.file, (*path, at))] if node.file else []
            for item in in_file or node.objects():
                try:
                    inventory_of(item)
                except InventoryError as error:
                    place = f"{node.file}: " if node.file else ""
                    problem = Message("{place}{problem}", place=place, problem=error.text)
                    self.add_error((*path, at), problem)
                else:
                    objects.append(item)
        return inventory_of(objects)

    def _open(self, name: str, path: Path) -> list[Document]:
        """Return the documents of the file named at a path, without empty ones."""
        try:
            documents = [document for document in self._opener(name) if document.value is not None]
        except MessageError as error:
            self.add_error(path, error.text)
            return []
        if not documents:
            self.add_error(path, Message("{name}: the file is empty", name=name))
        return documents


def _complete(short: dict[str, Any]) -> dict[str, Any]:
    """Return the Pod of a short form: a spec that also contains metadata, or labels and annotations."""
    spec = {name: value for name, value in short.items() if name not in ("metadata", *SHORT_METADATA)}
    own = {name: short[name] for name in SHORT_METADATA if name in short}
    metadata = {"name": "pod"} | short.get("metadata", {}) | own
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
