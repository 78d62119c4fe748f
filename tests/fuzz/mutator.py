"""Mutations that keep an input plausible: JSON stays valid JSON, text gets words of its target."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

# What programs stumble over, in place of anything.
_ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    10**30,
    0.5,
    1e308,
    "",
    "0",
    "x" * 300,
    "\x00\x1b[2J\n",
    "١٢",
    "$(A)$(A)",
    "a/b~0.c",
    [],
    {},
    [None],
    [[]],
    {"": None},
)


def mutated(data: bytes, words: Sequence[str], chance: Random) -> bytes:
    """Return the input with one to four changes, of its structure if it is a JSON object.

    words: texts of the trade, of which some find their way in.
    """
    changes = chance.randint(1, 4)
    try:
        value = json.loads(data) if data.startswith(b"{") else None
    except (ValueError, RecursionError):
        value = None
    if value is None:
        for _ in range(changes):
            at = chance.randint(0, len(data))
            data = data[:at] + chance.choice(words).encode() + data[at + chance.randint(0, 3) :]
        return data
    for _ in range(changes):
        places = list(_places([value]))
        _change(*chance.choice(places[1:] or places), places, words, chance)
    return json.dumps(value, ensure_ascii=chance.random() < 0.9).encode("utf-8", "replace")


def texts(value: Any) -> Iterator[str]:
    """Yield every key and string of a JSON value."""
    for parent, key in _places([value]):
        if isinstance(key, str):
            yield key
        if isinstance(parent[key], str):
            yield parent[key]


def _places(parent: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (object or list, key) of every member at any depth."""
    for key in list(parent) if isinstance(parent, dict) else range(len(parent)):
        yield parent, key
        if isinstance(parent[key], dict | list):
            yield from _places(parent[key])


def _change(
    parent: Any, key: Any, places: list[tuple[Any, Any]], words: Sequence[str], chance: Random
) -> None:
    other, other_key = chance.choice(places)
    match chance.randrange(7):
        case 0:
            parent[key] = deepcopy(chance.choice(_ODD))
        case 1:
            parent[key] = chance.choice(words)
        case 2:
            parent[key] = deepcopy(other[other_key])
        case 3:
            del parent[key]
        case 4 if isinstance(parent, list):
            parent.insert(key, deepcopy(parent[key]))
        case 4:
            parent[chance.choice(words)] = parent.pop(key)
        case 5 if isinstance(parent[key], str):
            text, at = parent[key], chance.randint(0, len(parent[key]))
            parent[key] = text[:at] + chance.choice(words) + text[at + chance.randint(0, 2) :]
        case _ if isinstance(parent[key], list):
            parent[key].append(deepcopy(other[other_key]))
        case _ if isinstance(parent[key], dict):
            parent[key][chance.choice(words)] = deepcopy(other[other_key])
        case _:
            parent[key] = chance.choice(words)
