"""YAML and JSON documents: plain values, each with its location in the text.

Values are read as kubectl reads them (YAML 1.1 booleans, no timestamps). Tabs and alias expansion attacks are
errors with a location, duplicate keys are recorded. Rule files and manifests use the same reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import count, islice, takewhile
from typing import Any, Final

import yaml
from msgspec import Struct
from msgspec.structs import replace

from rules.text.gc_pause import gc_paused
from rules.text.i18n import Message, MessageError, Text, located
from rules.text.paths import Path

# Every reader of the values recurses; Kubernetes' own JSON decoder stops at 10,000, and no
# object that an API server accepts is deeper than some forty levels.
MAX_DEPTH: Final = 200

# Characters that the YAML reader rejects or takes as a line break, and escapes of surrogates.
_SPECIAL: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_SURROGATE: Final = ("\\ud", "\\uD")
# Numbers that YAML 1.1 reads as floats too: `1e3` is a string in YAML 1.1.
_FLOAT: Final = re.compile(r"-?[0-9]+\.[0-9]+(?:[eE][-+][0-9]+)?")
_BLANKS: Final = " \t\n\r"


def read_json(text: str) -> Any:
    """Return the object or list of a JSON text, with the values that YAML 1.1 gives its members.

    Returns None if the text is not JSON, or if the YAML reader reports it: a duplicate key, a character that
    it does not accept, or nesting deeper than MAX_DEPTH.
    """
    if not text.lstrip(_BLANKS).startswith(("{", "[")) or _has_special_characters(text):
        return None
    try:
        with gc_paused(len(text)):
            value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return None if _is_deeper(value, MAX_DEPTH) else value


def _has_special_characters(text: str) -> bool:
    special = "\x7f" in text if text.isascii() else _SPECIAL.search(text) is not None
    return special or any(escape in text for escape in _SURROGATE)


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        if not level:
            return False
        level = [
            member
            for container in level
            for member in (container.values() if isinstance(container, dict) else container)
            if isinstance(member, dict | list)
        ]
    return bool(level)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members):
        raise ValueError("duplicate key")
    return value


def _float(text: str) -> float | str:
    return float(text) if _FLOAT.fullmatch(text) else text


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


try:
    from yaml import CSafeLoader as _Library
except ImportError:  # PyYAML without libyaml is slower
    from yaml import SafeLoader as _Library  # type: ignore[assignment]

# A document may have this many more values than characters: aliases of real rules do not repeat thousands.
MAX_VALUES: Final = 5_000
# Documents of a text: to read one takes 30 µs, also an empty one. Manifests of a cluster have some thousand.
MAX_DOCUMENTS: Final = 20_000
# Duplicate keys of a document that are recorded; the others would only repeat the message.
MAX_DUPLICATES: Final = 100
# Characters up to which the members of a JSON document are located: to compose a MiB takes 0.3 s and 40 MiB.
_MAX_LOCATED: Final = 2**20
# Characters up to which a document keeps its node tree, which takes 15 times the memory of its text.
_LONG: Final = 64 * 2**10
# Objects merged by `<<` in which a key is searched to locate it.
_MAX_MERGED: Final = 64

NOT_UTF8: Final = Message("not UTF-8; save the file as UTF-8")
_SEPARATOR: Final = re.compile(r"---(\s|$)")
_Scalar: Final = yaml.ScalarNode
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
_TEXT: Final = f"{_TAG}str"
_START: Final = yaml.Mark("", 0, 0, 0, None, 0)
_NOWHERE: Final = yaml.ScalarNode(_TEXT, "", _START, _START)
_TOO_MANY: Final = Message(
    "more than {most:,} documents; split the file, or write them as a List", most=MAX_DOCUMENTS
)
_TOO_DEEP: Final = Message("nested deeper than {most} levels", most=MAX_DEPTH)
_TOO_MANY_VALUES: Final = Message("more than {most} values: aliases expand too much")
_DUPLICATE: Final = Message("duplicate key {key!r}: remove one of them")
_NO_MAPPING: Final = Message("expected an object or a list of objects after `<<`")
_KEY: Final = Message("expected a string as key{hint}")
# In the message of libyaml's own limit of 1,000 levels, which PyYAML has since 6.0.4.
_LIBRARY_DEPTH: Final = "maximum nesting depth"
_NO_HINT: Final = Message()
_TEMPLATE: Final = Message("; {{ is template syntax: render the template first")
# Parts of the parser's messages, and what the author most likely did.
_TABS: Final = Message("; indent with spaces, YAML does not allow tabs")
_INDENTATION: Final = Message("; check the indentation")
_BRACKETS: Final = Message(
    "; close each {one} and {other}, and quote a value that begins with one", one="[", other="{"
)
_HINTS: Final = (
    ("did not find expected key", _INDENTATION),
    ("expected '-' indicator", _INDENTATION),
    ("expected <block end>", _INDENTATION),
    (
        "mapping values are not allowed",
        Message("; check the indentation, and quote a value that contains `: `"),
    ),
    ("while parsing a flow", _BRACKETS),
    ("cannot start any token", Message("; quote a value that begins with @, ` or %")),
    ("quoted scalar", Message("; close the quote")),
    ("undefined alias", Message("; quote a value that begins with *")),
)
_TRUE: Final = frozenset({"true", "yes", "on"})
_OCTAL: Final = re.compile(r"[-+]?0[0-9_]")  # in YAML 1.1 a leading zero is enough


class SourceError(MessageError):
    """The text is not YAML, or too large or too deep. The fault of its author.

    problem: the text without the location.
    """

    def __init__(self, location: Location, problem: Message) -> None:
        super().__init__(located(location, problem))
        self.location = location
        self.problem = problem


class Document(Struct, frozen=True):
    """One document of a text: its value, and the location of each path."""

    value: Any
    file: str
    lines: tuple[str, ...]  # of the text; empty for JSON
    duplicates: tuple[SourceError, ...]  # the first duplicate keys; the last value of a key is used
    tree: Callable[[], yaml.Node]  # returns the node tree; only its root for a large JSON document
    # Where the document begins in the file, counted from 0; -1 for an object without a text.
    line: int = 0
    column: int = 0
    within: str = ""  # the key of the string that contains the document, in an object without a text

    def locate(self, path: Path = (), *, key: bool = False) -> Location:
        """Return the location of the value at the path, or of its key; if absent, of the nearest parent."""
        key_node, node = self._nodes(path)
        inline = isinstance(node, yaml.ScalarNode) and node.start_mark.line == key_node.start_mark.line
        place = node if inline and not key else key_node
        return Location(self.file, *self._at(place.start_mark), self.within)

    def duplicates_below(self, path: Path) -> list[SourceError]:
        """Return the duplicates in the value at the path, which must exist."""
        if not self.duplicates:
            return []
        _, node = self._nodes(path)
        begin, end = self._at(node.start_mark), self._at(node.end_mark)
        return [
            error for error in self.duplicates if begin <= (error.location.line, error.location.column) < end
        ]

    def objects(self) -> Iterator[tuple[Path, Any]]:
        """Yield the Kubernetes objects with their paths: the value, or the items of a list, each typed."""
        yield from _objects(self.value, ())

    def embedded(self, path: Path) -> Document:
        """Return the document in the string at the path, such as `data["rule.yaml"]` of a ConfigMap.

        Locations are in the outer text if the string is a literal block (`|`), and in the string if it has
        several lines and the outer document has no text. Otherwise they are the location of the string.
        Raises SourceError.
        """
        text = self.value
        for step in path:
            text = text[step]
        own, (_, node) = self.locate(path), self._nodes(path)
        block = isinstance(node, yaml.ScalarNode) and node.style == "|"
        above = node.start_mark.line + 1
        indent = self.column + _margin(self.lines[above:]) - _margin(text.splitlines())
        above += self.line

        within = str(path[-1]) if self.line < 0 and "\n" in text else ""

        def place(inner: Location) -> Location:
            if within:
                return replace(inner, within=within)
            return Location(self.file, inner.line + above, inner.column + indent) if block else own

        documents = []
        for document in read(text, self.file):
            if isinstance(document, SourceError):
                raise SourceError(place(document.location), document.problem)
            if document.value is not None:
                documents.append(document)
        if len(documents) != 1:
            actual = len(documents) or Message("none")
            raise SourceError(own, Message("expected one YAML document, got {actual}", actual=actual))
        (inner,) = documents
        duplicates = tuple(SourceError(place(error.location), error.problem) for error in inner.duplicates)
        if within:
            return replace(inner, duplicates=duplicates, within=within)
        if block:
            return replace(inner, duplicates=duplicates, line=inner.line + above, column=indent)
        return replace(inner, duplicates=duplicates, tree=lambda: node, line=self.line, column=self.column)

    def _nodes(self, path: Path) -> tuple[yaml.Node, yaml.Node]:
        """Return the nodes of key and value at the path, or of the nearest parent."""
        key_node = node = self.tree()
        for step in path:
            if (child := _child(node, step)) is None:
                break
            key_node, node = child
        return key_node, node

    def _at(self, mark: Any) -> tuple[int, int]:
        """Return line and column of a mark in the file, counted from 1."""
        return mark.line + 1 + self.line, mark.column + 1 + self.column


def read(text: str | Mapping[str, Any], file: str) -> Iterator[Document | SourceError]:
    """Yield each document of a text, or its error; JSON is YAML. An object of a cluster is one document.

    An empty document has the value None. As in kubectl, the text is split at lines of `---` first, so that an
    error in one document does not hide another. A text with more than MAX_DOCUMENTS yields one error.
    """
    if not isinstance(text, str):
        yield Document(text, file, (), (), lambda: _NOWHERE, line=-1, column=-1)
        return
    if (value := read_json(text := text.removeprefix("\ufeff"))) is not None:
        yield Document(value, file, (), (), cache(lambda: _json_tree(text)))
        return
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
    return SourceError(replace(error.location, line=error.location.line + lines), error.problem)


def _read(lines: list[str], file: str) -> Iterator[Document]:
    text = "".join(lines)
    try:
        loader = _Loader(text)
        for index in takewhile(lambda _: loader.check_node(), count()):
            values = _Values(file, len(text) + MAX_VALUES)
            with gc_paused(len(text)):
                root: Any = loader.get_node()
                value = values.of(root)
                tree = _tree(text, index, root)
                root = None  # before the collector passes the nodes of a long text
            yield Document(value, file, tuple(lines), tuple(values.duplicates), tree)
    except yaml.MarkedYAMLError as error:
        raise SourceError(_place(file, error.problem_mark), _explain(error, lines)) from None
    except yaml.reader.ReaderError as error:  # its position counts bytes or characters
        raise _forbidden(text, text.index(chr(error.character)), file, error.reason) from None
    except UnicodeEncodeError as error:
        raise _forbidden(text, error.start, file, error.reason) from None


def _tree(text: str, index: int, root: yaml.Node) -> Callable[[], yaml.Node]:
    """Return a function that returns the node tree of a document; a long text is composed again."""
    if len(text) <= _LONG:
        return lambda: root
    return cache(lambda: next(islice(yaml.compose_all(text, Loader=_Loader), index, None)))


def _json_tree(text: str) -> yaml.Node:
    """Return the node tree of a JSON text; only its root if it is large, or no YAML."""
    if len(text) <= _MAX_LOCATED:
        with suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=_Loader) or _NOWHERE
    return _NOWHERE


def _place(file: str, mark: Any) -> Location:
    """Return the location of a mark; the type allows None, but there is always one."""
    return Location(file, mark.line + 1, mark.column + 1)


def _forbidden(text: str, position: int, file: str, reason: str) -> SourceError:
    *above, line = f"{text[:position]} ".splitlines()
    character = text[position]
    # Bytes that are not UTF-8 were decoded by `surrogateescape`.
    is_byte = "\udc80" <= character <= "\udcff"
    problem = NOT_UTF8 if is_byte else Text(f"{reason} (#x{ord(character):04x})")
    return SourceError(Location(file, len(above) + 1, len(line)), problem)


def _explain(error: yaml.MarkedYAMLError, lines: list[str]) -> Message:
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if _LIBRARY_DEPTH in problem:
        return _TOO_DEEP
    problem = problem.removesuffix("; first occurrence second occurrence")  # of a duplicate anchor
    mark = error.problem_mark
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        hint = _TABS
    elif "{{" in line:
        hint = _TEMPLATE
    else:
        hint = next((hint for part, hint in _HINTS if part in problem), _NO_HINT)
    return Message("not YAML: {problem}{hint}", problem=problem, hint=hint)


class _Loader(_Library):
    """PyYAML's loader, which resolves each plain scalar once and stops at MAX_DEPTH.

    It composes by recursion in C, and before 6.0.4 without a limit.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._tags: dict[str, str] = {}
        self._depth = 0

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is not _Scalar:
            return ""
        if not implicit[0]:
            return _TEXT
        if (tag := self._tags.get(value)) is None:
            tag = self._tags[value] = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:  # noqa: ARG002 - PyYAML's
        self._depth += 1
        if self._depth > MAX_DEPTH + 1 and parent is not None:
            raise yaml.MarkedYAMLError(problem=_LIBRARY_DEPTH, problem_mark=parent.start_mark)

    def ascend_resolver(self) -> None:
        self._depth -= 1


class _Values:
    """Converts a node tree into at most `limit` values; each alias is converted again."""

    def __init__(self, file: str, limit: int) -> None:
        self._file, self._limit = file, limit
        self._count = 1
        self.duplicates: list[SourceError] = []

    def of(self, node: yaml.Node, depth: int = 0) -> Any:
        """Return the value of a node."""
        if isinstance(node, _Scalar):
            return node.value if node.tag == _TEXT else _scalar(node.value, node.tag)
        if depth >= MAX_DEPTH:
            raise self._error(node, _TOO_DEEP)
        self._count += len(node.value)
        if self._count > self._limit:
            raise self._error(node, _TOO_MANY_VALUES.having(most=self._limit))
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item, depth + 1) for item in node.value]
        result: dict[str, Any] = {}
        merged: list[Any] = []
        for key, member in node.value:
            if not isinstance(key, _Scalar):
                hint = _TEMPLATE if isinstance(key, yaml.MappingNode) else _NO_HINT
                raise self._error(key, _KEY.having(hint=hint))
            is_text = member.tag == _TEXT and isinstance(member, _Scalar)  # most are: this saves a call
            value = member.value if is_text else self.of(member, depth + 1)
            if key.tag == _MERGE:
                merged += value if isinstance(value, list) else [value]
                continue
            name = key.value
            if name in result and len(self.duplicates) < MAX_DUPLICATES:
                self.duplicates.append(self._error(key, _DUPLICATE.having(key=name)))
            result[name] = value
        if not merged:
            return result
        whole: dict[str, Any] = {}
        for mapping in reversed(merged):  # the first one of several takes precedence
            if not isinstance(mapping, dict):
                raise self._error(node, _NO_MAPPING)
            whole |= mapping
        return whole | result

    def _error(self, node: yaml.Node, problem: Message) -> SourceError:
        return SourceError(_place(self._file, node.start_mark), problem)


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
    """Return the (key, value) nodes of a member: the last of that name, else the first merged one, else None.

    At most _MAX_MERGED merged objects are searched.
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
        of_lists = [
            mapping.value if isinstance(mapping, yaml.SequenceNode) else [mapping] for mapping in merged
        ]
        todo += [mapping for mappings in reversed(of_lists) for mapping in reversed(mappings)]
    return None


def _margin(lines: Iterable[str]) -> int:
    """Return the indentation of the first line that is not blank."""
    return next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), 0)


class Location(Struct, frozen=True):
    """A location in a rule file; line and column count from 1, 0 if unknown."""

    file: str
    line: int = 0
    column: int = 0
    within: str = ""  # the key of the string in which line and column count, if it is in no file

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([f"{self.file} {self.within}".rstrip(), *numbers])
