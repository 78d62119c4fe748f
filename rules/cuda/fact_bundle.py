"""Bundle of facts: the tables of `facts/` as one JSON file.

    {"schema": 2, "date": "2026-11-25", "tables": {"drivers": {…}, …}}

A bundle is checked as a whole before it is used; an error names its place. A table must have the form of the
built-in table: a key that all rows of a list have is required, and a key that no row has is unknown. Tables
and sections that a bundle lacks are the built-in ones, so that a bundle of an older schema is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct, field

from rules.cuda.tables import DERIVED, GENERATED, Facts, Status
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.text.i18n import Joined, Message
from rules.text.paths import Path, field_path
from rules.text.regex import most_steps

# It goes up with each new table, section or key of rows. An older gpugate refuses such a bundle: it cannot
# know whether a row still holds without the key. A key keeps its meaning, and a new key of rows is optional.
SCHEMA: Final = 2
# Bytes of a bundle, unpacked: who may write a rule can make a gate read so many, in half a second. The tables
# of this release are 0.28 MB.
MAX_BYTES: Final = 2 * 2**20
_DATE: Final = re.compile(r"20\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])", re.ASCII)
# Tables whose keys are names; the keys of any other table are sections, which code reads.
_TABLES_OF_NAMES: Final = frozenset({"sources"})


class FactBundleError(ValueError):
    """A bundle cannot be used. The fault of its author. place: in the bundle; empty: all of it."""

    def __init__(self, place: str, text: Message) -> None:
        super().__init__(f"{place}: {text.en}" if place else text.en)
        self.place, self.text = place, text


class FactBundle(Struct, frozen=True):
    """A release of all tables; a table or section that is not in the file is the built-in one."""

    date: str  # YYYY-MM-DD
    tables: Mapping[str, Any]  # by name


def write_bundle(bundle: FactBundle) -> str:
    """Return the text of a bundle: a table in a line, by name."""
    tables = [
        f"{json.dumps(name)}: {json.dumps(bundle.tables[name], ensure_ascii=False)}"
        for name in sorted(bundle.tables)
    ]
    head = f'{{"schema": {SCHEMA}, "date": {json.dumps(bundle.date)}, "tables": {{\n'
    return head + ",\n".join(tables) + "\n}}\n"


def read_bundle(data: bytes, built_in: Mapping[str, Any]) -> FactBundle:
    """Return the bundle of a file. built_in: the tables of this release. Raises FactBundleError."""
    document = _json(data)
    if (schema := document.get("schema")) not in range(1, SCHEMA + 1):
        raise FactBundleError("schema", _other_schema(schema))
    for key in document:
        if key not in ("schema", "date", "tables"):
            raise FactBundleError("", _unknown_key(key, ("schema", "date", "tables")))
    return checked_bundle(document.get("date"), document.get("tables"), built_in)


def checked_bundle(date: Any, tables: Any, built_in: Mapping[str, Any]) -> FactBundle:
    """Return the bundle of plain values. Raises FactBundleError."""
    if not isinstance(date, str) or not _DATE.fullmatch(date):
        raise FactBundleError("date", Message("expected a date such as 2026-11-25"))
    if not isinstance(tables, dict):
        raise FactBundleError("tables", Message("expected an object"))
    for name, table in tables.items():
        if name not in built_in:
            known = Joined(", ", sorted(built_in))
            raise FactBundleError(
                f"tables.{name}",
                Message("unknown table; the tables of this release are {names}", names=known),
            )
        for path, text in _shape_of(name, built_in[name]).errors(table, ("tables", name)):
            raise FactBundleError(field_path(path), text)
    filled = {
        name: {**built_in[name], **table} if isinstance(table, dict) else table
        for name, table in tables.items()
    }
    bundle = FactBundle(date, {**built_in, **filled})
    for path, text in contradictions(bundle.tables, built_in):
        raise FactBundleError(field_path(path), text)
    return bundle


def read_all(facts: Facts) -> None:
    """Compute all that is derived from facts, which keep it. Raises FactBundleError if a value is wrong."""
    for function in DERIVED:
        try:
            function(facts)
        except (LookupError, TypeError, ValueError, AttributeError, re.error) as error:
            why = str(error) or type(error).__name__
            raise FactBundleError("tables", Message("a value cannot be read: {why}", why=why)) from None


def _json(data: bytes) -> dict[str, Any]:
    """Return the members of a JSON object. Raises FactBundleError."""
    if len(data) > MAX_BYTES:
        raise FactBundleError("", Message("larger than {most:,} bytes", most=MAX_BYTES))
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_members)
    except FactBundleError:
        raise
    except json.JSONDecodeError as error:
        raise FactBundleError(f"{error.lineno}:{error.colno}", _NOT_JSON.having(why=error.msg)) from None
    except (ValueError, RecursionError) as error:
        raise FactBundleError("", _NOT_JSON.having(why=type(error).__name__)) from None
    if not isinstance(document, dict):
        raise FactBundleError("", Message("expected an object"))
    return document


_NOT_JSON: Final = Message(
    "not JSON: {why}; write a bundle of a folder of tables with `gpugate facts bundle FOLDER > facts.json`"
)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Raises FactBundleError for a duplicate key."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        key = next(name for name in names if names.count(name) > 1)
        raise FactBundleError("", Message("duplicate key {key!r}", key=key))
    return members


def _other_schema(schema: object) -> Message:
    if isinstance(schema, int) and schema > SCHEMA:
        return Message(
            "the facts have schema {schema}, and this gpugate reads schemas up to {known}; upgrade gpugate",
            schema=schema,
            known=SCHEMA,
        )
    return Message("expected a number from 1 to {known}, the schemas that this gpugate reads", known=SCHEMA)


def _unknown_key(key: str, known: tuple[str, ...]) -> Message:
    near = Message("; known keys: {names}", names=", ".join(known))
    return Message("unknown key {key!r}{near}", key=key, near=near)


class _Shape(Struct):
    """The form of the values at one place of a table."""

    row: bool = False  # the place is an item of a list
    kinds: set[type] = field(default_factory=set)
    objects: int = 0  # objects at this place
    members: dict[str, _Shape] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # objects that have a member
    sections: bool = False  # no other members are known
    item: _Shape | None = None

    def add(self, value: Any) -> None:
        """Count a value."""
        self.kinds.add(type(value))
        if isinstance(value, dict):
            self.objects += 1
            for name, child in value.items():
                self.members.setdefault(name, _Shape()).add(child)
                self.counts[name] = self.counts.get(name, 0) + 1
        elif isinstance(value, list):
            self.item = self.item or _Shape(row=True)
            for child in value:
                self.item.add(child)

    def errors(self, value: Any, path: Path) -> Iterator[tuple[Path, Message]]:
        """Yield the places below a value that have another form."""
        if type(value) not in self.kinds:
            expected = Joined(" or ", sorted({_KINDS[kind] for kind in self.kinds}, key=str))
            actual = _KINDS[type(value)]
            yield path, Message("expected {what}, got {actual}{near}", what=expected, actual=actual, near="")
        elif isinstance(value, dict):
            yield from self._errors_in(value, path)
        elif isinstance(value, list) and self.item and self.item.kinds:
            for index, child in enumerate(value):
                yield from self.item.errors(child, (*path, index))

    def _errors_in(self, members: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Message]]:
        for name, count in self.counts.items():
            if name not in members and count == self.objects and self.row:
                yield path, Message("required key {key!r} is missing", key=name)
        for name, child in members.items():
            if name in self.members:
                yield from self.members[name].errors(child, (*path, name))
            elif self.row or self.sections:
                yield path, _unknown_key(name, tuple(sorted(self.members)))


_KINDS: Final = {
    str: Message("a string"),
    int: Message("a number"),
    float: Message("a number"),
    bool: Message("a boolean"),
    dict: Message("an object"),
    list: Message("a list"),
    type(None): Message("nothing"),
}


def _shape_of(name: str, table: Any) -> _Shape:
    shape = _Shape(sections=name not in _TABLES_OF_NAMES)
    shape.add(table)
    return shape


# Rules between tables.

_STATUSES: Final = tuple(status.value for status in Status)
# Columns with versions, by list, with the type of each version; a text may have several, separated by spaces.
_VERSIONS: Final[Mapping[str, Mapping[str, Callable[[str], object]]]] = {
    "toolkits": {
        "cuda": CudaVersion.parse,
        "built_for": ComputeCapability.parse,
        "driver": DriverVersion.parse,
    },
    "toolkit_wheels": {"cuda": CudaVersion.parse, "built_for": ComputeCapability.parse},
    "branches": {"cuda": CudaVersion.parse},
    "driver_redist": {"cuda": CudaVersion.parse},
    "forward": {"cuda": CudaVersion.parse},
    "forward_once_listed": {"cuda": CudaVersion.parse},
    **{
        name: {"cuda": CudaVersion.parse, "base": CudaVersion.parse}
        for name in GENERATED
        if name.endswith("_images")
    },
    "gpus": {"compute": ComputeCapability.parse, "listed": DriverVersion.parse},
    "gpu_profiles": {"compute": ComputeCapability.parse},
    "last_branches": {"below": ComputeCapability.parse},
    "first_branches": {"compute": ComputeCapability.parse},
    "minor_version_floors": {"driver": DriverVersion.parse},
}
# Keys of regular expressions: characters of a text, and at how many of them a match may start. A command that
# is longer, as may be a path of an image, takes as many times as long.
_PATTERNS: Final = {
    "tag": (128, 1),
    "image_name": (255, 1),
    "label": (63, 1),
    "value": (512, 1),
    "part": (512, 1),
    "parts": (200, 200),
    "command": (2**20, 2**17),
    "image": (640, 640),
    "version": (640, 640),
    "other_platforms": (640, 640),
}
# Of all expressions of a bundle, with texts that are the worst for each; a step takes some nanoseconds. Those
# of this release take half of it.
_MAX_STEPS: Final = 250_000_000
# Characters of all expressions, which take 4 µs each to read; those of this release have a fifth of them.
_MAX_PATTERNS: Final = 64 * 2**10


def contradictions(tables: Mapping[str, Any], built_in: Mapping[str, Any]) -> Iterator[tuple[Path, Message]]:
    """Yield errors of rows: in sources, statuses, versions, patterns and the order of driver branches.

    built_in: its driver branches may be named, too, since sections of it fill up those of a bundle.
    """
    for path, row in _rows(tables, ("tables",)):
        yield from _errors_of_row(path, row, tables["sources"])
    yield from _errors_of_patterns(tables)
    branches = tables["drivers"]["branches"]
    numbers = {row["branch"] for row in (*branches, *built_in["drivers"]["branches"])}
    place: Path = ("tables", "drivers")
    for index, (row, later) in enumerate(pairwise(branches)):
        versions = CudaVersion.parse(row["cuda"]), CudaVersion.parse(later["cuda"])
        if row["branch"] >= later["branch"] or (versions[0] and versions[1] and versions[0] > versions[1]):
            text = Message(
                "branch {later} has CUDA {cuda}, which does not follow branch {branch}",
                later=later["branch"],
                cuda=later["cuda"],
                branch=row["branch"],
            )
            yield (*place, "branches", index + 1), text
    for section in ("last_branches", "first_branches"):
        for index, row in enumerate(tables["drivers"][section]):
            for key in ("branch", "chips"):
                if row.get(key, row["branch"]) not in numbers:
                    text = Message("driver branch {branch} is not in the table of branches", branch=row[key])
                    yield (*place, section, index, key), text


def _rows(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each object that is an item of a list, with its place."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _rows(child, (*path, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, dict):
                yield (*path, index), child
            yield from _rows(child, (*path, index))


def _errors_of_row(
    path: Path, row: Mapping[str, Any], sources: Mapping[str, Any]
) -> Iterator[tuple[Path, Message]]:
    if "status" in row and "source" in row and (source := row["source"]) not in sources:
        yield (*path, "source"), Message("unknown source {source!r}; add it to sources", source=source)
    if (status := row.get("status", _STATUSES[0])) not in _STATUSES:
        expected = Message("one of {words}", words=Joined(", ", _STATUSES))
        yield (
            (*path, "status"),
            Message("expected {what}, got {actual}{near}", what=expected, actual=repr(status), near=""),
        )
    place = str(path[-2])
    for key, parse in _VERSIONS.get(place, {}).items():
        if wrong := [word for word in row.get(key, "").split() if parse(word) is None]:
            yield (*path, key), Message("{text!r} is not a version", text=wrong[0])


def _errors_of_patterns(tables: Mapping[str, Any]) -> Iterator[tuple[Path, Message]]:
    steps = characters = 0
    for path, source in _texts(tables, ("tables",)):
        longest, starts = _PATTERNS.get(str(path[-1]), (0, 0))
        if not starts:
            continue
        characters += len(source)
        if characters > _MAX_PATTERNS:
            yield path, Message("more than {most:,} characters of regular expressions", most=_MAX_PATTERNS)
            return
        try:
            # What code adds to an expression that it searches for says that a name ends there.
            steps += most_steps(source if starts == 1 else rf"(?:{source})\b", longest) * starts
        except ValueError as error:
            yield path, Message("not a regular expression: {why}", why=error.args[0])
        if steps > _MAX_STEPS:
            yield path, _TOO_SLOW
            return


_TOO_SLOW: Final = Message(
    "matching this regular expression can take too long; after each choice, `*`, `+` and `?` write "
    "a character with which the alternatives, or another repetition, cannot start"
)


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each text, with its place."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(child, (*path, key))
