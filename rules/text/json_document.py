"""Fast JSON decoding, with the values that the YAML reader reads."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from rules.text.gc_pause import gc_paused

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
            for each in level
            for member in (each.values() if isinstance(each, dict) else each)
            if isinstance(member, dict | list)
        ]
    return bool(level)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("duplicate key")
    return found


def _float(text: str) -> float | str:
    return float(text) if _FLOAT.fullmatch(text) else text


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
