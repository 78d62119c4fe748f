"""Differences of facts, in words: `branch 620 added: CUDA 13.5, LTS to 2029-09`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from rules.cuda.tables import GENERATED
from rules.text.i18n import Joined, Message

Row = Mapping[str, Any]


class Difference(Struct, frozen=True):
    """A row or table that was added, removed or changed. table: with its section: `drivers.branches`."""

    table: str
    change: str  # added, removed or changed
    text: Message


class _Noun(Struct, frozen=True):
    """What a row is about. keys: the columns that identify it, which `text` shows."""

    keys: tuple[str, ...]
    text: Message


_CUDA: Final = _Noun(("cuda",), Message("CUDA {cuda}"))
_BRANCH: Final = _Noun(("branch",), Message("branch {branch}"))
_GPU: Final = _Noun(("product", "label"), Message("GPU {product}"))
_IMAGE: Final = _Noun(("image",), Message("image {image}"))
# By table and section. Rows of other lists are counted.
_NOUNS: Final = {
    "aws_instances": _Noun(("value",), Message("instance family {value}")),
    "toolkits": _CUDA,
    "toolkit_wheels": _CUDA,
    "drivers.branches": _BRANCH,
    "drivers.lifecycle": _Noun(("branch",), Message("support of branch {branch}")),
    "driver_branches": _BRANCH,
    "driver_redist": _BRANCH,
    "toolkit_modes": _Noun(("toolkit",), Message("{toolkit}")),
    **{name: _IMAGE for name in GENERATED if name.endswith("_images")},
    "drivers.toolkits": _Noun(("release",), Message("toolkit {release}")),
    "drivers.forward": _Noun(("cuda",), Message("cuda-compat {cuda}")),
    "drivers.forward_once_listed": _Noun(("cuda",), Message("cuda-compat {cuda}, once listed")),
    "drivers.first_branches": _Noun(("compute",), Message("first branch of compute capability {compute}")),
    "drivers.last_branches": _Noun(("arch",), Message("last branch of {arch}")),
    "gpus": _GPU,
    "gpu_profiles": _GPU,
    "images": _Noun(("name",), Message("image family {name}")),
    "lock.documents": _Noun(("table", "document"), Message("document {document} of {table}")),
}
# What says where a row is from, not what it says.
_ORIGIN: Final = frozenset({"source", "document"})
_VALUES: Final = {
    "cuda": Message("CUDA {value}"),
    "built_for": Message("built for {value}"),
    "compute": Message("compute capability {value}"),
    "driver": Message("driver {value}"),
}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield what is different in the tables, by table and in the order of rows."""
    for name in sorted({*old, *new}):
        yield from _of_value(name, old.get(name, []), new.get(name, []))


def _of_value(place: str, old: Any, new: Any) -> Iterator[Difference]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            if name not in new:
                yield Difference(place, "removed", Message("{name} removed", name=f"{place}.{name}"))
            elif name not in old and not isinstance(new[name], list):
                yield Difference(place, "added", Message("{name} added", name=f"{place}.{name}"))
            else:
                yield from _of_value(f"{place}.{name}", old.get(name, []), new[name])
    elif noun := _NOUNS.get(place):
        yield from _of_rows(place, noun, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _counted(place, old, new)
    else:
        text = Message("{name}: {old} → {new}", name=place, old=_shown(old), new=_shown(new))
        yield Difference(place, "changed", text)


def _of_rows(place: str, noun: _Noun, old: Sequence[Row], new: Sequence[Row]) -> Iterator[Difference]:
    before, after = _by_key(noun, old), _by_key(noun, new)
    for key in dict.fromkeys((*after, *before)):
        if key not in after:
            yield Difference(place, "removed", Message("{name} removed", name=_name(noun, before[key])))
        elif key not in before:
            yield Difference(place, "added", _added(noun, after[key]))
        elif before[key] != after[key]:
            text = Message(
                "{name}: {changes}",
                name=_name(noun, after[key]),
                changes=Joined(", ", _changes(before[key], after[key])),
            )
            yield Difference(place, "changed", text)


def _by_key(noun: _Noun, rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    """Return rows by their identity, and by a number among rows with an equal one."""
    numbers: Counter[tuple[Any, ...]] = Counter()
    by_key = {}
    for row in rows:
        key = tuple(row.get(name) for name in noun.keys)
        by_key[*key, numbers[key]] = row
        numbers[key] += 1
    return by_key


def _name(noun: _Noun, row: Row) -> Message:
    return noun.text.having(**{name: row.get(name, "") for name in noun.keys})


def _added(noun: _Noun, row: Row) -> Message:
    hidden = {*noun.keys, *_ORIGIN, "status", "kind", "end"}
    details = [
        _VALUES.get(name, Message("{key} {value}", key=name)).having(value=_shown(value))
        for name, value in row.items()
        if name not in hidden
    ]
    if kind := row.get("kind"):
        kind = "LTS" if kind == "lts" else kind
        end = row.get("end")
        details.append(
            Message("{kind} to {end}", kind=kind, end=end) if end else Message("{kind}", kind=kind)
        )
    name = _name(noun, row)
    if not details:
        return Message("{name} added", name=name)
    return Message("{name} added: {details}", name=name, details=Joined(", ", details))


def _changes(old: Row, new: Row) -> Iterator[Message]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            before, after = _shown(old.get(name)), _shown(new.get(name))
            yield Message("{name} {old} → {new}", name=name, old=before, new=after)


def _counted(place: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[Difference]:
    """Yield how many rows of a list were added and removed, without their names."""
    before, after = (Counter(json.dumps(row, sort_keys=True) for row in rows) for rows in (old, new))
    added, removed = (after - before).total(), (before - after).total()
    if added or removed:
        text = Message(
            "{name}: {added} rows added, {removed} removed", name=place, added=added, removed=removed
        )
    else:
        text = Message("{name}: another order", name=place)
    yield Difference(place, "changed", text)


def _shown(value: Any) -> str:
    """Return a value in one line: `-` for none, lists with spaces."""
    if value is None or value == "":
        return "-"
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return " ".join(map(str, value)) or "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
