"""The labels of namespaces among documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def namespace_labels(documents: Iterable[object]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the Namespaces among documents, by name; other documents are skipped."""
    labels: dict[str, Mapping[str, str]] = {}
    for document in documents:
        if not isinstance(document, Mapping) or document.get("kind") != "Namespace":
            continue
        metadata = document.get("metadata")
        if document.get("apiVersion") != "v1" or not isinstance(metadata, Mapping):
            continue
        written = metadata.get("labels")
        texts = written.items() if isinstance(written, Mapping) else ()
        name = metadata.get("name")
        if isinstance(name, str):
            # The API server sets it: https://kubernetes.io/docs/reference/labels-annotations-taints/
            own = {"kubernetes.io/metadata.name": name}
            labels[name] = {key: text for key, text in texts if isinstance(text, str)} | own
    return labels
