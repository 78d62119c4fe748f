"""Edits recorded as RFC 6902 operations while they are made.

The document is never copied and never changed: what a recorder puts in is kept beside it, and reading through
the recorder sees the document as it will be. Fields that no edit named cannot be touched.
Source: RFC 6902 (JSON Patch), RFC 6901 (JSON Pointer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict, cast

# A place in a JSON document: member names and list indexes, from the root.
Path = tuple[str | int, ...]


_TYPES: Final = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class ObjectError(ValueError):
    """The object is not shaped as its kind is. The fault of whoever sent it; an API server never does."""

    def __init__(self, path: Path, wanted: str, found: object) -> None:
        super().__init__(f"{field_path(path) or 'object'}: expected {wanted}, got {_TYPES[type(found)]}")


class Operation(TypedDict):
    """One RFC 6902 operation; only `add` and `replace` are ever made."""

    op: str
    path: str
    value: Any


def pointer(path: Path) -> str:
    """Return the JSON Pointer of a path: `("limits", "a/b")` is `/limits/a~1b`."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def field_path(path: Path) -> str:
    """Return a path as Kubernetes prints it: `spec.containers[0].resources.limits[nvidia.com/gpu]`."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int) or not step.replace("_", "").isalnum():
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if parts else step)
    return "".join(parts)


class Recorder:
    """Records edits of one JSON document and shows the document as they leave it.

    document: any JSON object, read only. operations: the edits so far, in the order of application.
    """

    __slots__ = ("_appended", "_document", "_ours", "operations")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # Values of ours by the path where they were put; they alone may be changed in place.
        self._ours: dict[Path, Any] = {}
        self._appended: dict[Path, list[Any]] = {}
        self.operations: list[Operation] = []

    def get(self, path: Path) -> Any:
        """Return what stands at the path after the edits so far, or None."""
        current: Any = self._document
        for depth, step in enumerate(path, start=1):
            if (mine := self._ours.get(path[:depth])) is not None:
                current = mine
            elif isinstance(current, dict):
                current = current.get(str(step))
            elif isinstance(current, list) and isinstance(step, int) and step < len(current):
                current = current[step]
            else:
                return None
        return current

    def items(self, path: Path) -> list[Any]:
        """Return the list at the path after the edits so far, empty where absent. Raises ObjectError."""
        items = self.get(path)
        if items is None:
            return []
        if not isinstance(items, list):
            raise ObjectError(path, "a list", items)
        edited = [self._ours.get((*path, index), item) for index, item in enumerate(items)]
        return edited + self._appended.get(path, [])

    def set(self, path: Path, value: Any) -> None:
        """Put value at the path, as a member of the object there; absent parents are made on the way.

        `replace` where the member stands already, else `add`. value becomes the recorder's own.
        """
        parent_path = path[:-1]
        parent = self.get(parent_path)
        while parent is None:  # also where the document says null
            value = {str(path[-1]): value}
            path = parent_path
            parent_path = path[:-1]
            parent = self.get(parent_path)
        step = path[-1]
        if not isinstance(parent, dict | list):
            raise ObjectError(parent_path, "an object", parent)
        if self._is_ours(parent_path):
            cast("dict[str | int, Any]", parent)[step] = value
            return
        exists = isinstance(step, int) or step in parent or path in self._ours
        self._ours[path] = value
        self.operations.append({"op": "replace" if exists else "add", "path": pointer(path), "value": value})

    def append(self, path: Path, item: Any) -> None:
        """Append item to the list at the path; an absent list is made."""
        items = self.get(path)
        if items is None:
            self.set(path, [item])
        elif self._is_ours(path):
            items.append(item)
        else:
            appended = self._appended.setdefault(path, [])
            self._ours[(*path, len(items) + len(appended))] = item
            appended.append(item)
            self.operations.append({"op": "add", "path": pointer((*path, "-")), "value": item})

    def _is_ours(self, path: Path) -> bool:
        return any(path[:depth] in self._ours for depth in range(1, len(path) + 1))
