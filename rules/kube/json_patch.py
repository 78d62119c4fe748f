"""A recorder that turns edits of a JSON document into RFC 6902 operations.

The document is never modified: the recorder reads from a view with the edits applied, which shares everything
else with the document. Only fields that an edit names are patched.
Source: RFC 6902 (JSON Patch), RFC 6901 (JSON Pointer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from rules.text.i18n import Message, MessageError, Text
from rules.text.paths import Path, field_path

_TYPES: Final[dict[type, Message]] = {
    dict: Message("an object"),
    list: Message("a list"),
    str: Message("a string"),
    int: Message("a number"),
    float: Message("a number"),
    bool: Message("a boolean"),
    type(None): Text("null"),
}


class ObjectError(MessageError):
    """The object does not match its kind's schema. The fault of the client; an API server never sends it."""

    def __init__(self, path: Path, expected: type, value: object) -> None:
        text = Message("{path}: expected {expected}, got {actual}")
        place = field_path(path) or "object"
        super().__init__(text.having(path=place, expected=_TYPES[expected], actual=_TYPES[type(value)]))


class Operation(TypedDict):
    """One RFC 6902 operation; only `add` and `replace` are used."""

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
    """Records edits of one JSON document and reads the document with the edits applied.

    document: any JSON object, read only.
    edits: each value that was set or appended, with its path, in order.
    """

    __slots__ = ("_copied", "_document", "_made", "_view", "edits")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # The document with the edits applied. Objects and lists on the path of an edit are copied once; the
        # rest is shared with the document.
        self._view: Any = dict(document)
        self._copied: set[Path] = {()}
        # The operations by the path of the value that they add, which the recorder may modify in place.
        self._made: dict[Path, Operation] = {}
        self.edits: list[tuple[Path, Any]] = []

    @property
    def operations(self) -> list[Operation]:
        """The edits in order of application, without those that restore the existing value."""
        return [
            operation
            for path, operation in self._made.items()
            if operation["op"] == "add" or not _same(operation["value"], _find(self._document, path))
        ]

    def get(self, path: Path) -> Any:
        """Return the value at the path after the edits so far, read only, or None."""
        return _find(self._view, path)

    def items(self, path: Path) -> list[Any]:
        """Return the list at the path after the edits so far; empty if absent. Raises ObjectError."""
        items = self.get(path)
        if items is None:
            return []
        if not isinstance(items, list):
            raise ObjectError(path, list, items)
        return items

    def set(self, path: Path, value: Any) -> None:
        """Set the value at the path; absent parents are created.

        The operation is `replace` if the member exists, else `add`. The recorder takes ownership of value.
        Raises ObjectError if the parent is not an object or list.
        """
        self.edits.append((path, value))
        self._set(path, value)

    def _set(self, path: Path, value: Any) -> None:
        parent, depth, last = self._view, 0, len(path) - 1
        while depth < last and (child := _find(parent, (path[depth],))) is not None:
            parent, depth = child, depth + 1
        for step in path[:depth:-1]:  # below what is absent or null
            value = {str(step): value}
        path, place, step = path[: depth + 1], path[:depth], path[depth]
        expected = list if isinstance(step, int) else dict
        if not isinstance(parent, expected):
            raise ObjectError(place, expected, parent)
        if not self._is_made(place):
            self._forget_below(path)
            if path in self._made:
                self._made[path]["value"] = value
            else:
                op = "replace" if isinstance(step, int) or step in parent else "add"
                self._made[path] = {"op": op, "path": pointer(path), "value": value}
        self._own(place)[step] = value

    def append(self, path: Path, item: Any) -> None:
        """Append item to the list at the path; an absent list is created. Raises ObjectError."""
        items = self.get(path)
        if items is None:
            self.edits.append(((*path, 0), item))
            self._set(path, [item])
            return
        if not isinstance(items, list):
            raise ObjectError(path, list, items)
        self.edits.append(((*path, len(items)), item))
        if not self._is_made(path):
            operation: Operation = {"op": "add", "path": pointer((*path, "-")), "value": item}
            self._made[*path, len(items)] = operation
        self._own(path).append(item)

    def _is_made(self, path: Path) -> bool:
        """Return whether the path is in a value that an edit added."""
        if self._made:
            for depth in range(1, len(path) + 1):
                if path[:depth] in self._made:
                    return True
        return False

    def _forget_below(self, path: Path) -> None:
        """Remove the edits below a path that is about to be replaced."""
        if path in self._copied:
            depth = len(path)
            self._copied = {other for other in self._copied if other[:depth] != path}
            self._made = {other: made for other, made in self._made.items() if other[:depth] != path}

    def _own(self, path: Path) -> Any:
        """Return the object or list at the path of the view, which the recorder may modify."""
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
    """Return whether two values are equal in JSON, where true is not 1."""
    return type(one) is type(other) and one == other
