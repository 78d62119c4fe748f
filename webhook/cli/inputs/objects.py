"""Kubernetes objects from files, as the admission requests that the API server would send for them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules import AdmissionRequest, Workloads
from rules.text.i18n import Message, MessageError, Text, located
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Document, Location, SourceError, read
from webhook.cli.inputs.files import read_path
from webhook.cli.terminal.console import print_warning

# Fields of a container's resources in which people misspell others.
_RESOURCE_FIELDS: Final = ("limits", "requests")
_MIN_SIMILARITY: Final = 0.8
NO_OBJECTS: Final = Message("contains no objects")
NO_OBJECT: Final = Message("expected a Kubernetes object with apiVersion and kind")
_LAST_USED: Final = Message("{duplicate}; the last value is used")
_UNKNOWN_KIND: Final = Message("unknown kind {kind!r} – did you mean {expected!r}?")
_UNKNOWN_FIELD: Final = Message("{place}: unknown field {key!r} – did you mean {expected!r}?")


class ObjectSource(Struct, frozen=True):
    """The place of an object in a file; as a text, file and line."""

    document: Document
    path: Path = ()

    def __str__(self) -> str:
        location = self.locate("")
        return f"{location.file}:{location.line}"

    def locate(self, text: str) -> Location:
        """Return the location of the field path at the start of a text, or of its nearest existing parent."""
        value: Any = self.document.value
        for step in self.path:
            value = value[step]
        return self.document.locate((*self.path, *_steps(value, text)))


class InputError(MessageError):
    """One object cannot be evaluated. The author's fault. problem: the text without the place."""

    def __init__(self, place: ObjectSource, problem: Message) -> None:
        super().__init__(located(place, problem))
        self.problem = problem


def _steps(value: Any, text: str) -> Iterator[str | int]:
    """Yield the steps of the field path at the start of a text, as far as they exist in the value."""
    path: Path = ()
    while isinstance(value, dict | list):
        steps = value if isinstance(value, dict) else range(len(value))
        matching = [step for step in steps if _begins(text, field_path((*path, step)))]
        if not matching:
            return
        step = max(matching, key=lambda candidate: len(str(candidate)))
        path, value = (*path, step), value[step]
        yield step


def _begins(text: str, path: str) -> bool:
    """Return whether a text begins with a path, and not only with a prefix of a longer step."""
    return text.startswith(path) and text[len(path) :][:1] in ("", ".", "[", ":", " ")


class Subject(NamedTuple):
    """An object to evaluate."""

    source: ObjectSource
    request: AdmissionRequest
    name: str  # of a generateName: with `*` at its end


def objects_in(path: str) -> Iterator[tuple[ObjectSource, Any] | SourceError]:
    """Yield each object in a file or folder with its place, or what is wrong; lists are split into items.

    Yields one SourceError if there is no document at all, as after a pipe whose first command failed.
    """
    empty = True
    for name, text in read_path(path):
        for document in read(text, name):
            empty = empty and not isinstance(document, SourceError) and document.value is None
            if isinstance(document, SourceError):
                yield document
            elif document.value is not None:
                for duplicate in document.duplicates:
                    print_warning(_LAST_USED.having(duplicate=duplicate.text))
                for place, value in document.objects():
                    yield ObjectSource(document, place), value
    if empty:
        yield SourceError(Location(path), NO_OBJECTS)


def subject_of(source: ObjectSource, value: Any, namespace: str, workloads: Workloads) -> Subject:
    """Return an object to evaluate. namespace: for an object that does not set one.

    Raises InputError, also for a misspelt field of resources, and for a kind that differs from a workload
    kind only in upper and lower case.
    """
    request, name = request_of(source, value, namespace)
    known = {kind.lower(): kind for group, kind in workloads.paths if group == request.group}
    expected = known.get(request.kind.lower(), request.kind)
    if expected != request.kind:
        raise InputError(source, _UNKNOWN_KIND.having(kind=request.kind, expected=expected))
    _check_resources(source, value)
    return Subject(source, request, name)


def _check_resources(source: ObjectSource, document: Any) -> None:
    """Raise InputError for a misspelt field of a container's resources, as the API server and kubectl do.

    Every object of a document is read once.
    """
    todo: list[tuple[Path, Any]] = [((), document)]
    while todo:
        path, value = todo.pop()
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if isinstance(value, dict) and path[-1:] == ("resources",):
            for key in value.keys() - set(_RESOURCE_FIELDS):
                if similar := get_close_matches(str(key), _RESOURCE_FIELDS, n=1, cutoff=_MIN_SIMILARITY):
                    place = field_path((*path, key))
                    raise InputError(source, _UNKNOWN_FIELD.having(place=place, key=key, expected=similar[0]))
        todo += [((*path, step), inner) for step, inner in items if isinstance(inner, dict | list)]


def request_of(source: ObjectSource, value: Any, namespace: str) -> tuple[AdmissionRequest, str]:
    """Return the request that the API server would send to create an object, and the object's name."""
    if not isinstance(value, dict) or not all(
        isinstance(value.get(key), str) for key in ("apiVersion", "kind")
    ):
        raise InputError(source, NO_OBJECT)
    if value["kind"] == "AdmissionReview":
        from webhook.admission.review import ReviewError, decode_review, encode

        try:
            review = decode_review(encode(value), mutating=True)
        except ReviewError as error:
            raise InputError(source, Text(str(error))) from None
        return review.request, review.name or _name(review.request.object or review.request.old_object or {})
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    where = metadata.get("namespace")
    request = AdmissionRequest(
        operation="CREATE",
        group=value["apiVersion"].rpartition("/")[0],
        kind=value["kind"],
        namespace=where if isinstance(where, str) and where else namespace,
        object=value,
    )
    return request, _name(value)


def _name(value: Any) -> str:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return "(no name)"
    return str(metadata.get("name") or f"{metadata.get('generateName', '')}*")
