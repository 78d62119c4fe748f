"""YAML and JSON documents: plain values, each with its location in the text.

Values are read as kubectl reads them (YAML 1.1 booleans, no timestamps). Tabs and alias expansion attacks are
errors with a location, duplicate keys are recorded. Rule files and manifests use the same reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import yaml

from rules.text.json_document import MAX_DEPTH, read_json
from rules.text.location import Location
from rules.text.paths import Path

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml is slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

# A document may have this many more values than characters: aliases of real rules do not repeat thousands.
MAX_VALUES: Final = 5_000
# Duplicate keys of a document that are recorded; the others would only repeat the message.
MAX_DUPLICATES: Final = 100
# Objects merged by `<<` in which a key is searched to locate it.
_MAX_MERGED: Final = 64

_NOT_UTF8: Final = "not UTF-8; save the file as UTF-8"  # for bytes that Python decoded by `surrogateescape`
_SEPARATOR: Final = re.compile(r"---(\s|$)")
_TAG: Final = "tag:yaml.org,2002:"
_TEMPLATE: Final = "; {{ is template syntax: render the template first"
_TRUE: Final = frozenset({"true", "yes", "on"})
_OCTAL: Final = re.compile(r"[-+]?0[0-9_]")  # in YAML 1.1 a leading zero is enough


class SourceError(ValueError):
    """The text is not YAML, or too large or too deep. The fault of its author."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(f"{location}: {message}")
        self.location = location
        self.message = message


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text: its value, and the location of each path.

    lines: the lines of the text, empty for JSON. duplicates: the first duplicate keys of objects; the last
    value of a key is used.
    root: the node tree. line, column: where the document begins in the file, counted from 0.
    """

    value: Any
    file: str
    lines: tuple[str, ...]
    duplicates: tuple[SourceError, ...]
    root: yaml.Node
    line: int = 0
    column: int = 0

    def locate(self, path: Path = (), *, key: bool = False) -> Location:
        """Return the location of the value at the path, or of its key; if absent, of the nearest parent."""
        place = node = self.root
        for step in path:
            if (child := _child(node, step)) is None:
                break
            key_node, node = child
            inline = isinstance(node, yaml.ScalarNode) and node.start_mark.line == key_node.start_mark.line
            place = node if inline and not key else key_node
        return Location(self.file, *self._at(place.start_mark))

    def duplicates_below(self, path: Path) -> list[SourceError]:
        """Return the duplicates in the value at the path, which must exist."""
        node = self._node(path)
        begin, end = self._at(node.start_mark), self._at(node.end_mark)
        return [
            error for error in self.duplicates if begin <= (error.location.line, error.location.column) < end
        ]

    def objects(self) -> Iterator[tuple[Path, Any]]:
        """Yield the Kubernetes objects with their paths: the value, or the items of a list, each typed."""
        yield from _objects(self.value, ())

    def embedded(self, path: Path) -> Document:
        """Return the document in the string at the path, such as `data["rule.yaml"]` of a ConfigMap.

        Locations are those in the outer text if the string is a literal block (`|`), else the location of the
        string. Raises SourceError.
        """
        node = self._node(path)
        own, text = self.locate(path), str(node.value)
        block = isinstance(node, yaml.ScalarNode) and node.style == "|"
        above = node.start_mark.line + 1
        indent = self.column + _margin(self.lines[above:]) - _margin(text.splitlines())
        above += self.line

        def place(inner: Location) -> Location:
            return Location(self.file, inner.line + above, inner.column + indent) if block else own

        documents = []
        for found in read(text, self.file):
            if isinstance(found, SourceError):
                raise SourceError(place(found.location), found.message)
            if found.value is not None:
                documents.append(found)
        if len(documents) != 1:
            raise SourceError(own, f"expected one YAML document, got {len(documents) or 'none'}")
        (inner,) = documents
        duplicates = tuple(SourceError(place(error.location), error.message) for error in inner.duplicates)
        if block:
            return replace(inner, duplicates=duplicates, line=inner.line + above, column=indent)
        return replace(inner, duplicates=duplicates, root=node, line=self.line, column=self.column)

    def _node(self, path: Path) -> yaml.Node:
        node = self.root
        for step in path:
            if (child := _child(node, step)) is None:
                raise KeyError(path)
            node = child[1]
        return node

    def _at(self, mark: Any) -> tuple[int, int]:
        """Return line and column of a mark in the file, counted from 1."""
        return mark.line + 1 + self.line, mark.column + 1 + self.column


def read(text: str, file: str) -> Iterator[Document | SourceError]:
    """Yield each document of a text, or its error; JSON is YAML.

    An empty document has the value None. As in kubectl, the text is split at lines of `---` first, so that an
    error in one document does not hide another.
    """
    if found := read_json(text := text.removeprefix("\ufeff")):
        yield Document(found.value, file, (), (), found.root)
        return
    lines = text.splitlines(keepends=True)
    starts = [0, *(number for number, line in enumerate(lines) if _SEPARATOR.match(line))]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        try:
            for document in _read(lines[start:end], file):
                duplicates = tuple(_later(error, start) for error in document.duplicates)
                yield replace(document, duplicates=duplicates, line=start)
        except SourceError as error:
            yield _later(error, start)


def _objects(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list)):
        yield path, value
        return
    of_list = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}  # PodList
    for index, item in enumerate(value["items"]):
        typed = item if kind == "List" or not isinstance(item, dict) else of_list | item
        yield from _objects(typed, (*path, "items", index))


def _later(error: SourceError, lines: int) -> SourceError:
    return SourceError(replace(error.location, line=error.location.line + lines), error.message)


def _read(lines: list[str], file: str) -> Iterator[Document]:
    text = "".join(lines)
    try:
        _check_depth(text, file)
        loader = _Loader(text)
        while loader.check_node():
            node: yaml.Node = loader.get_node()  # type: ignore[assignment]  # check_node returned True
            builder = _Builder(file, len(text) + MAX_VALUES)
            value = builder.build(node, 0)
            yield Document(value, file, tuple(lines), tuple(builder.duplicates), node)
    except yaml.MarkedYAMLError as error:
        raise SourceError(_place(file, error.problem_mark), _explain(error, lines)) from None
    except yaml.reader.ReaderError as error:  # its position counts bytes or characters
        raise _forbidden(text, text.index(chr(error.character)), file, error.reason) from None
    except UnicodeEncodeError as error:
        raise _forbidden(text, error.start, file, error.reason) from None


def _place(file: str, mark: Any) -> Location:
    """Return the location of a mark; the type allows None, but there is always one."""
    return Location(file, mark.line + 1, mark.column + 1)


def _forbidden(text: str, position: int, file: str, reason: str) -> SourceError:
    *above, line = f"{text[:position]} ".splitlines()
    found = text[position]
    what = _NOT_UTF8 if "\udc80" <= found <= "\udcff" else f"{reason} (#x{ord(found):04x})"
    return SourceError(Location(file, len(above) + 1, len(line)), what)


def _check_depth(text: str, file: str) -> None:
    """Raise SourceError for deep nesting before the composer, which recurses in C, reads it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise SourceError(_place(file, event.start_mark), f"nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _explain(error: yaml.MarkedYAMLError, lines: list[str]) -> str:
    problem = " ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        problem += "; indent with spaces, YAML does not allow tabs"
    elif "{{" in line:
        problem += _TEMPLATE
    return f"not YAML: {problem}"


class _Builder:
    """Converts a node tree into at most `limit` values."""

    def __init__(self, file: str, limit: int) -> None:
        self._file, self._limit = file, limit
        self._count = 0
        self.duplicates: list[SourceError] = []

    def build(self, node: yaml.Node, depth: int) -> Any:
        self._count += 1
        if self._count > self._limit:
            raise self._error(node, f"more than {self._limit} values: aliases expand too much")
        if depth > MAX_DEPTH:
            raise self._error(node, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, depth + 1) for item in node.value]
        result: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                value = self.build(value_node, depth + 1)
                merged.extend(value if isinstance(value, list) else [value])
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                hint = _TEMPLATE * isinstance(key_node, yaml.MappingNode)
                raise self._error(key_node, f"expected a string as key{hint}")
            key = str(key_node.value)
            if key in result and len(self.duplicates) < MAX_DUPLICATES:
                self.duplicates.append(self._error(key_node, f"duplicate key {key!r}: remove one of them"))
            result[key] = self.build(value_node, depth + 1)
        if not merged:
            return result
        whole: dict[str, Any] = {}
        for mapping in reversed(merged):  # the first one of several takes precedence
            if not isinstance(mapping, dict):
                raise self._error(node, "expected an object or a list of objects after `<<`")
            whole |= mapping
        return whole | result

    @staticmethod
    def _scalar(node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int":
                return _number(text, partial(int, base=8 if _OCTAL.match(text) else 0))
            case "float":
                return _number(text, float)
        return text

    def _error(self, node: yaml.Node, message: str) -> SourceError:
        return SourceError(_place(self._file, node.start_mark), message)


def _number(text: str, read_number: Callable[[str], float]) -> float | str:
    """Return a number; what JSON cannot represent as a number stays a string."""
    try:
        return read_number(text.replace("_", ""))
    except ValueError:  # sexagesimal 1:30, .inf, more digits than Python converts
        return text


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the (key, value) nodes of a member: the last one of that name, or the first merged one.

    None if it is in none of the first _MAX_MERGED objects that are merged.
    """
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    todo, seen = [node], set[int]()
    while todo and len(seen) < _MAX_MERGED:
        node = todo.pop()
        if not isinstance(node, yaml.MappingNode) or id(node) in seen:
            continue
        seen.add(id(node))
        for key, value in reversed(node.value):
            if key.value == str(step):
                return key, value
        merged = [value for key, value in node.value if key.tag == f"{_TAG}merge"]
        of_lists = [each.value if isinstance(each, yaml.SequenceNode) else [each] for each in merged]
        todo += [each for found in reversed(of_lists) for each in reversed(found)]
    return None


def _margin(lines: Iterable[str]) -> int:
    """Return the indentation of the first line that is not blank."""
    return next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), 0)
