"""Kubernetes objects from files, as the admission requests that the API server would send for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rules import AdmissionRequest
from rules.text.yaml_document import Location, SourceError, read
from webhook.admission.review import ReviewError, decode_review, encode
from webhook.cli.inputs.files import read_path
from webhook.cli.terminal.console import print_warning


class InputError(ValueError):
    """One object cannot be evaluated; the message has the place and the reason. The author's fault."""


def objects_in(path: str) -> Iterator[tuple[str, Any]]:
    """Yield (place, object or SourceError) for each object in a file or folder; lists are split into items.

    Yields one SourceError if there is no document at all, as after a pipe whose first command failed.
    """
    empty = True
    for name, text in read_path(path):
        for document in read(text, name):
            empty = empty and not isinstance(document, SourceError) and document.value is None
            if isinstance(document, SourceError):
                yield str(document.location), document
            elif document.value is not None:
                for duplicate in document.duplicates:
                    print_warning(f"{duplicate}; the last value is used")
                for place, value in document.objects():
                    yield _place(str(document.locate(place))), value
    if empty:
        yield path, SourceError(Location(path), "contains no objects")


def _place(location: str) -> str:
    """Return file and line of a location, without the column."""
    return location.rpartition(":")[0]


def request_of(source: str, value: Any, namespace: str) -> tuple[AdmissionRequest, str]:
    """Return the request that the API server would send to create an object, and the object's name."""
    if isinstance(value, SourceError):
        raise InputError(str(value))
    if not isinstance(value, dict) or not all(
        isinstance(value.get(key), str) for key in ("apiVersion", "kind")
    ):
        raise InputError(f"{source}: expected a Kubernetes object with apiVersion and kind")
    if value["kind"] == "AdmissionReview":
        try:
            review = decode_review(encode(value), mutating=True)
        except ReviewError as error:
            raise InputError(f"{source}: {error}") from None
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
