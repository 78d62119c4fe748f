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
    text = ""
    for step in path:
        if isinstance(step, str) and ("/" in step or "~" in step):
            text += f"/{step.replace('~', '~0').replace('/', '~1')}"
        else:
            text += f"/{step}"
    return text


def value_at(document: Any, place: str) -> Any:
    """Return the value at a JSON Pointer (RFC 6901), or None."""
    for step in place.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


class Recorder:
    """Records edits of one JSON document and reads the document with the edits applied.

    document: any JSON object, read only.
    edits: each value that was set or appended, with its path, in order.
    """

    __slots__ = ("_added", "_document", "_made", "_own", "_view", "edits")

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # The document with the edits applied. What an edit is in is copied once; the rest is the document's.
        self._view: Any = dict(document)
        # The objects and lists of the view that are not the document's, by their identity; and those of them
        # that an operation adds: an edit in one changes the value of the operation.
        self._own: dict[int, Any] = {}
        self._added: set[int] = set()
        self._made: dict[Path, Operation] = {}  # the operations by the path of the value that they add
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
        parent, depth, is_added = self._descend(path[:-1])
        for step in path[:depth:-1]:  # below what is absent or null
            value = {str(step): value}
        path, step = path[: depth + 1], path[depth]
        expected: type[Any] = list if isinstance(step, int) else dict
        if not isinstance(parent, expected):
            raise ObjectError(path[:depth], expected, parent)
        if path in self._made:
            self._made[path]["value"] = value
            self._take(value)
        elif not is_added:
            before = _find(parent, (step,))
            if id(before) in self._own:  # there may be edits below, which are gone
                self._made = {other: made for other, made in self._made.items() if other[: depth + 1] != path}
            op = "replace" if isinstance(step, int) or step in parent else "add"
            self._made[path] = {"op": op, "path": pointer(path), "value": value}
            self._take(value)
        parent[step] = value

    def append(self, path: Path, item: Any) -> None:
        """Append item to the list at the path; an absent list is created. Raises ObjectError."""
        items, depth, is_added = self._descend(path)
        if depth < len(path):
            self.edits.append(((*path, 0), item))
            self._set(path, [item])
            return
        if not isinstance(items, list):
            raise ObjectError(path, list, items)
        place = (*path, len(items))
        self.edits.append((place, item))
        if not is_added:
            self._made[place] = {"op": "add", "path": pointer((*path, "-")), "value": item}
            self._take(item)
        items.append(item)

    def _take(self, value: Any) -> None:
        """Take what an operation adds into the view."""
        if isinstance(value, dict | list):
            self._own[id(value)] = value
            self._added.add(id(value))

    def _descend(self, path: Path) -> tuple[Any, int, bool]:
        """Return the last value on a path that exists, its depth, and whether an operation adds it.

        It and what it is in are made the view's own, so that it can be changed.
        """
        node, is_added = self._view, False
        for depth, step in enumerate(path):
            child = node.get(step) if isinstance(node, dict) else _find(node, (step,))
            if child is None:
                return node, depth, is_added
            identity = id(child)
            if identity in self._added:
                is_added = True
            elif identity not in self._own and isinstance(child, dict | list):
                child = node[step] = child.copy()
                self._own[id(child)] = child
            node = child
        return node, len(path), is_added


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
