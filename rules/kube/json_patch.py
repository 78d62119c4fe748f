"""Edits recorded as RFC 6902 operations while they are made.

The document is never changed: reading through the recorder sees it as it will be, in a view that shares with
it whatever no edit has touched. Fields that no edit named cannot be touched.
Source: RFC 6902 (JSON Patch), RFC 6901 (JSON Pointer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from rules.text.paths import Path, field_path

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
    text = "".join([f"/{step}" for step in path])
    if "~" not in text and text.count("/") == len(path):
        return text
    return "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path])


class Recorder:
    """Records edits of one JSON document and shows the document as they leave it.

    document: any JSON object, read only.
    """

    __slots__ = ("_copied", "_document", "_made", "_view")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # The document as the edits leave it. Objects and lists on the way to an edit are copies, each made
        # once; all else is the document's own.
        self._view: Any = dict(document)
        self._copied: set[Path] = {()}
        # The operations by the path of what they put in, which is ours to change in place.
        self._made: dict[Path, Operation] = {}

    @property
    def operations(self) -> list[Operation]:
        """The edits in the order of application, without those that came back to what stood there."""
        return [
            operation
            for path, operation in self._made.items()
            if operation["op"] == "add" or not _same(operation["value"], _find(self._document, path))
        ]

    def get(self, path: Path) -> Any:
        """Return what stands at the path after the edits so far, read only, or None."""
        return _find(self._view, path)

    def items(self, path: Path) -> list[Any]:
        """Return the list at the path after the edits so far, empty where absent. Raises ObjectError."""
        items = self.get(path)
        if items is None:
            return []
        if not isinstance(items, list):
            raise ObjectError(path, "a list", items)
        return items

    def set(self, path: Path, value: Any) -> None:
        """Put value at the path, as a member of the object there; absent parents are made on the way.

        `replace` where the member stands already, else `add`. value becomes the recorder's own. Raises
        ObjectError where the parent has no such members.
        """
        while (parent := self.get(path[:-1])) is None:  # also where the document says null
            path, value = path[:-1], {str(path[-1]): value}
        step = path[-1]
        wanted = list if isinstance(step, int) else dict
        if not isinstance(parent, wanted):
            raise ObjectError(path[:-1], _TYPES[wanted], parent)
        if not self._is_made(path[:-1]):
            self._forget_below(path)
            if path in self._made:
                self._made[path]["value"] = value
            else:
                op = "replace" if isinstance(step, int) or step in parent else "add"
                self._made[path] = {"op": op, "path": pointer(path), "value": value}
        self._own(path[:-1])[step] = value

    def append(self, path: Path, item: Any) -> None:
        """Append item to the list at the path; an absent list is made. Raises ObjectError."""
        items = self.get(path)
        if items is None:
            self.set(path, [item])
            return
        if not isinstance(items, list):
            raise ObjectError(path, "a list", items)
        if not self._is_made(path):
            operation: Operation = {"op": "add", "path": pointer((*path, "-")), "value": item}
            self._made[*path, len(items)] = operation
        self._own(path).append(item)

    def _is_made(self, path: Path) -> bool:
        """Tell whether the path is in what an edit put in."""
        made = self._made
        return bool(made) and any(path[:depth] in made for depth in range(1, len(path) + 1))

    def _forget_below(self, path: Path) -> None:
        """Drop the edits of what is about to be replaced as a whole."""
        if path in self._copied:
            depth = len(path)
            self._copied = {other for other in self._copied if other[:depth] != path}
            self._made = {other: made for other, made in self._made.items() if other[:depth] != path}

    def _own(self, path: Path) -> Any:
        """Return the object or list at the path of the view, ours to change."""
        node = self._view
        for depth, step in enumerate(path, start=1):
            place = path[:depth]
            if place in self._made:
                return _find(node, path[depth - 1 :])
            if place not in self._copied:
                self._copied.add(place)
                node[step] = node[step].copy()
            node = node[step]
        return node


def _find(node: Any, path: Path) -> Any:
    for step in path:
        if isinstance(node, dict):
            node = node.get(step)
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node


def _same(one: object, other: object) -> bool:
    """Tell whether two values are one in JSON, where true is not 1."""
    return type(one) is type(other) and one == other
