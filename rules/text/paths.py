"""Paths in JSON documents, and how Kubernetes prints them."""

from __future__ import annotations

# A place in a JSON document: member names and list indexes, from the root.
Path = tuple[str | int, ...]


def field_path(path: Path) -> str:
    """Return a path as Kubernetes prints it: `spec.containers[0].resources.limits[nvidia.com/gpu]`."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int) or not step.replace("_", "").isalnum():
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if parts else step)
    return "".join(parts)
