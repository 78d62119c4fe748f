"""Paths in JSON documents, their Kubernetes notation, and the objects at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.text.printable import printable

# Member names and list indexes, from the root of a JSON document.
Path = tuple[str | int, ...]


def field_path(path: Path) -> str:
    """Return a path in Kubernetes notation: `spec.containers[0].resources.limits[nvidia.com/gpu]`."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int) or not step.replace("_", "").isalnum():
            parts.append(f"[{step if isinstance(step, int) else printable(step)}]")
        else:
            parts.append(f".{step}" if parts else step)
    return "".join(parts)


def object_at(document: object, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of member names; an empty one if there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}
