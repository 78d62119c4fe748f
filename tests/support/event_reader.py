"""The reader of YAML by events that composing replaces: for one commit, to compare both.

Values are read as kubectl reads them (YAML 1.1 booleans, no timestamps). Tabs and alias expansion attacks are
errors with a location, duplicate keys are recorded. Rule files and manifests use the same reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

import yaml

from rules.text.json_document import MAX_DEPTH
from rules.text.location import Location
from rules.text.paths import Path

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml is slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

# A document may have this many more values than characters: aliases of real rules do not repeat thousands.
MAX_VALUES: Final = 5_000
# Documents of a text: to read one takes 30 µs, also an empty one. Manifests of a cluster have some thousand.
MAX_DOCUMENTS: Final = 20_000
# Duplicate keys of a document that are recorded; the others would only repeat the message.
MAX_DUPLICATES: Final = 100
# Objects merged by `<<` in which a key is searched to locate it.
_MAX_MERGED: Final = 64

_NOT_UTF8: Final = "not UTF-8; save the file as UTF-8"  # for bytes that Python decoded by `surrogateescape`
_SEPARATOR: Final = re.compile(r"---(\s|$)")
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
_TEXT: Final = f"{_TAG}str"
_TOO_MANY: Final = f"more than {MAX_DOCUMENTS:,} documents; split the file, or write them as a List"
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
# In the message of libyaml's own limit of 1,000 levels, which PyYAML has since 6.0.4.
_LIBRARY_DEPTH: Final = "maximum nesting depth"
_TEMPLATE: Final = "; {{ is template syntax: render the template first"
# Parts of the parser's messages, and what the author most likely did.
_INDENTATION: Final = "; check the indentation"
_HINTS: Final = (
    ("did not find expected key", _INDENTATION),
    ("expected <block end>", _INDENTATION),
    ("mapping values are not allowed", f"{_INDENTATION}, and quote a value that contains `: `"),
)
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
    tree: returns the node tree, which is read on the first call: most documents need no locations.
    line, column: where the document begins in the file, counted from 0.
    """

    value: Any
    file: str
    lines: tuple[str, ...]
    duplicates: tuple[SourceError, ...]
    tree: Callable[[], yaml.Node]
    line: int = 0
    column: int = 0

    def locate(self, path: Path = (), *, key: bool = False) -> Location:
        """Return the location of the value at the path, or of its key; if absent, of the nearest parent."""
        place = node = self.tree()
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
        return replace(inner, duplicates=duplicates, tree=lambda: node, line=self.line, column=self.column)

    def _node(self, path: Path) -> yaml.Node:
        node = self.tree()
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
    error in one document does not hide another. Of a text with more than MAX_DOCUMENTS none is read.
    """
    text = text.removeprefix("\ufeff")
    lines = text.splitlines(keepends=True)
    starts = [0, *(number for number, line in enumerate(lines) if _SEPARATOR.match(line))]
    if len(starts) > MAX_DOCUMENTS:
        yield SourceError(Location(file, starts[MAX_DOCUMENTS] + 1, 1), _TOO_MANY)
        return
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
    tree = cache(lambda: next(yaml.compose_all(text, Loader=_Loader)))
    try:
        events = yaml.parse(text, Loader=_Loader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(events, file, len(text) + MAX_VALUES)
                value = builder.build()
                yield Document(value, file, tuple(lines), tuple(builder.duplicates), tree)
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


def _explain(error: yaml.MarkedYAMLError, lines: list[str]) -> str:
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if _LIBRARY_DEPTH in problem:
        return _TOO_DEEP
    mark = error.problem_mark
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        problem += "; indent with spaces, YAML does not allow tabs"
    elif "{{" in line:
        problem += _TEMPLATE
    elif hint := next((hint for part, hint in _HINTS if part in problem), ""):
        problem += hint
    return f"not YAML: {problem}"


class _Builder:
    """Converts the events of one YAML document into at most `limit` values.

    It does not compose the node tree, which takes six times as long.
    """

    def __init__(self, events: Iterator[yaml.Event], file: str, limit: int) -> None:
        self._file, self._limit = file, limit
        self._count = 0
        self._events = self._recorded(events)
        self._record: list[yaml.Event] = []  # all events since the first anchor
        self._anchors: dict[str, int] = {}  # positions in the record
        self._scalars: dict[str, tuple[str, Any]] = {}  # tags and values of plain scalars
        self._resolver = yaml.resolver.Resolver()
        self.duplicates: list[SourceError] = []

    def build(self) -> Any:
        """Return the value of the next node."""
        return self._value(next(self._events), self._events, 0)

    def _recorded(self, events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
        for event in events:
            if self._record:
                self._record.append(event)
            yield event

    def _value(self, event: Any, events: Iterator[yaml.Event], depth: int) -> Any:
        """Return the value that begins with an event; `events` yields those after it."""
        if event.anchor is not None:
            event, events = self._resolved(event, events)
        self._count += 1
        if self._count > self._limit:
            raise self._error(event, f"more than {self._limit} values: aliases expand too much")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)[1]
        if depth >= MAX_DEPTH:
            raise self._error(event, _TOO_DEEP)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, events, depth + 1)
        items = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(self._value(item, events, depth + 1))
        return items

    def _mapping(self, start: yaml.Event, events: Iterator[yaml.Event], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            tag, key = self._key(event, events)
            value = self._value(next(events), events, depth)
            if tag == _MERGE:
                merged.extend(value if isinstance(value, list) else [value])
                continue
            if key in result and len(self.duplicates) < MAX_DUPLICATES:
                self.duplicates.append(self._error(event, f"duplicate key {key!r}: remove one of them"))
            result[key] = value
        if not merged:
            return result
        whole: dict[str, Any] = {}
        for mapping in reversed(merged):  # the first one of several takes precedence
            if not isinstance(mapping, dict):
                raise self._error(start, "expected an object or a list of objects after `<<`")
            whole |= mapping
        return whole | result

    def _key(self, event: Any, events: Iterator[yaml.Event]) -> tuple[str, str]:
        """Return tag and text of the key that begins with an event."""
        if event.anchor is not None:
            event, events = self._resolved(event, events)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)[0], event.value
        depth = 1
        while depth:  # a syntax error in the key takes precedence
            found = next(events)
            depth += isinstance(found, yaml.CollectionStartEvent)
            depth -= isinstance(found, yaml.CollectionEndEvent)
        hint = _TEMPLATE * isinstance(event, yaml.MappingStartEvent)
        raise self._error(event, f"expected a string as key{hint}")

    def _resolved(self, event: Any, events: Iterator[yaml.Event]) -> tuple[Any, Iterator[yaml.Event]]:
        """Return an event with an anchor and those after it; for an alias, those of its anchor."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._error(event, "not YAML: found undefined alias")
            begin = self._anchors[event.anchor]
            events = map(self._record.__getitem__, range(begin, len(self._record)))
            return next(events), events
        if not self._record:
            self._record.append(event)
        begin = self._anchors.setdefault(event.anchor, len(self._record) - 1)
        if self._record[begin] is not event:
            raise self._error(event, "not YAML: found duplicate anchor")
        return event, events

    def _scalar(self, event: yaml.ScalarEvent) -> tuple[str, Any]:
        """Return tag and value of a scalar."""
        text, tag = event.value, event.tag
        if tag not in (None, "!"):
            return tag, _scalar(text, tag)
        if not event.implicit[0]:
            return _TEXT, text
        if (known := self._scalars.get(text)) is None:
            tag = self._resolver.resolve(yaml.ScalarNode, text, event.implicit)  # type: ignore[no-untyped-call]
            known = self._scalars[text] = tag, _scalar(text, tag)
        return known

    def _error(self, event: yaml.Event, message: str) -> SourceError:
        return SourceError(_place(self._file, event.start_mark), message)


def _scalar(text: str, tag: str) -> Any:
    """Return the value of a scalar."""
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in _TRUE
        case "int":
            return _number(text, partial(int, base=8 if _OCTAL.match(text) else 0))
        case "float":
            return _number(text, float)
    return text


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
        merged = [value for key, value in node.value if key.tag == _MERGE]
        of_lists = [each.value if isinstance(each, yaml.SequenceNode) else [each] for each in merged]
        todo += [each for found in reversed(of_lists) for each in reversed(found)]
    return None


def _margin(lines: Iterable[str]) -> int:
    """Return the indentation of the first line that is not blank."""
    return next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), 0)
