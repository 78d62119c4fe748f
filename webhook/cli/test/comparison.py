"""Comparison of a test case's expectation with the decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Any, Final, TypeVar

from rules.model.decision import Decision, Violation
from rules.text.i18n import Language
from webhook.cli.test.schema import ExpectDocument, ViolationDocument

W = TypeVar("W")
F = TypeVar("F")

EXPECTED: Final = "-"
FOUND: Final = "+"
BOTH: Final = " "
_ANYTHING: Final = "*"
_ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between expectation and decision. what: the key in `expect`, or a JSON Pointer.

    lines: each with its mark: EXPECTED (only expected), FOUND (only found), or BOTH.
    """

    what: str
    lines: tuple[tuple[str, str], ...]

    def marked(self, mark: str) -> list[str]:
        """Return the lines with a mark, and those with BOTH."""
        return [text for each, text in self.lines if each in (mark, BOTH)]


def differences(
    expect: ExpectDocument, decision: Decision, patched: Any, language: Language
) -> list[Difference]:
    """Return the differences between expectation and decision. patched: the object after the decision.

    language: of the messages that are expected.
    """
    given = expect.model_fields_set
    found = [
        _one("allowed", expect.allowed, decision.allowed),
        _violations(expect.violations, decision.violations, language),
    ]
    if "warnings" in given:
        found.append(
            _warnings(expect.warnings, [line.in_language(language) for line in decision.warning_lines])
        )
    if "patch" in given:
        wanted = [operation.model_dump() for operation in expect.patch]
        found.append(_patch(wanted, decision.patch))
    found += [_one(place, value, value_at(patched, place)) for place, value in expect.fields.items()]
    return [difference for difference in found if any(mark != BOTH for mark, _ in difference.lines)]


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


def _text(value: Any) -> str:
    """Return a value as JSON, which distinguishes true from 1, and 4 from "4"."""
    return _ABSENT if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _one(what: str, wanted: Any, found: Any) -> Difference:
    expected, present = _text(wanted), _text(found)
    if expected == present:
        return Difference(what, ((BOTH, present),))
    return Difference(what, ((EXPECTED, expected), (FOUND, present)))


def _patch(wanted: Sequence[Any], found: Sequence[Any]) -> Difference:
    before, after = [_text(operation) for operation in wanted], [_text(operation) for operation in found]
    lines: list[tuple[str, str]] = []
    matcher = SequenceMatcher(a=before, b=after, autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            lines += [(BOTH, text) for text in before[start:end]]
        else:
            lines += [(EXPECTED, text) for text in before[start:end]]
            lines += [(FOUND, text) for text in after[other_start:other_end]]
    return Difference("patch", tuple(lines))


def _violations(
    wanted: Sequence[ViolationDocument], found: Sequence[Violation], language: Language
) -> Difference:
    pairs = _pairs(wanted, found, partial(_is_violation, language))
    rows = [
        *(
            (EXPECTED, [each.rule, each.action, each.path, each.message])
            for at, each in enumerate(wanted)
            if at not in pairs.values()
        ),
        *(
            (
                BOTH if at in pairs else FOUND,
                [each.rule, each.action.value, each.path, each.message.in_language(language)],
            )
            for at, each in enumerate(found)
        ),
    ]
    return Difference("violations", tuple(zip((mark for mark, _ in rows), _aligned(rows), strict=True)))


def _aligned(rows: Sequence[tuple[str, list[str]]]) -> list[str]:
    """Return rows as lines with aligned columns; an empty cell is shown as `*`."""
    cells = [[cell or _ANYTHING for cell in row] for _, row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in cells
    ]


def _warnings(wanted: Sequence[str], found: Sequence[str]) -> Difference:
    pairs = _pairs(wanted, found, _is_part)
    return Difference(
        "warnings",
        (
            *((EXPECTED, text) for at, text in enumerate(wanted) if at not in pairs.values()),
            *((BOTH if at in pairs else FOUND, text) for at, text in enumerate(found)),
        ),
    )


def _is_violation(language: Language, wanted: ViolationDocument, found: Violation) -> bool:
    return (
        wanted.rule in ("", found.rule)
        and wanted.action in ("", found.action)
        and f"{found.path}.".startswith((f"{wanted.path}.", f"{wanted.path}[", "." if wanted.path else ""))
        and _is_part(wanted.message, found.message.in_language(language))
    )


def _is_part(part: str, text: str) -> bool:
    """Return whether a text contains a part, ignoring differences in white space."""
    return " ".join(part.split()) in " ".join(text.split())


def _pairs(wanted: Sequence[W], found: Sequence[F], matches: Callable[[W, F], bool]) -> dict[int, int]:
    """Return a maximum bipartite matching: index of a found item to index of an expected item.

    An unspecific expectation can match several items, so the matching uses augmenting paths.
    """
    pairs: dict[int, int] = {}

    def assign(at: int, tried: set[int]) -> bool:
        for index, each in enumerate(found):
            if index not in tried and matches(wanted[at], each):
                tried.add(index)
                if index not in pairs or assign(pairs[index], tried):
                    pairs[index] = at
                    return True
        return False

    for at in range(len(wanted)):
        assign(at, set())
    return pairs
