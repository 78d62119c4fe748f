"""Paths in JSON documents, and their Kubernetes notation."""

from __future__ import annotations

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
