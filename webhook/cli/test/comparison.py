"""Comparison of a test case's expectation with the decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Struct

from rules.kube.json_patch import value_at
from rules.model.decision import Decision
from rules.model.finding import Finding
from rules.text.i18n import Language
from webhook.cli.test.schema import ExpectDocument, ViolationDocument

E = TypeVar("E")
A = TypeVar("A")

EXPECTED: Final = "-"
ACTUAL: Final = "+"
BOTH: Final = " "
_ANYTHING: Final = "*"
_ABSENT: Final = "absent"


class Difference(Struct, frozen=True):
    """A difference between expectation and decision.

    Attributes:
        key: the key in `expect`, or a JSON Pointer.
        lines: pairs of mark and text. Marks: EXPECTED (only expected), ACTUAL (only in the decision), BOTH.
    """

    key: str
    lines: tuple[tuple[str, str], ...]

    def marked(self, mark: str) -> list[str]:
        """Return the lines with a mark or with BOTH."""
        return [text for line_mark, text in self.lines if line_mark in (mark, BOTH)]


def differences(
    expect: ExpectDocument, decision: Decision, patched: Any, language: Language
) -> list[Difference]:
    """Return the differences between expectation and decision.

    patched: the object after the decision. language: of the expected messages.
    """
    set_keys = expect.model_fields_set
    compared = [
        _value_difference("allowed", expect.allowed, decision.allowed),
        _violation_difference(expect.violations, decision.violations, language),
    ]
    if "warnings" in set_keys:
        compared.append(
            _warning_difference(
                expect.warnings, [line.in_language(language) for line in decision.warning_lines]
            )
        )
    if "patch" in set_keys:
        expected = [operation.model_dump() for operation in expect.patch]
        compared.append(_patch_difference(expected, decision.patch))
    compared += [
        _value_difference(place, value, value_at(patched, place)) for place, value in expect.fields.items()
    ]
    return [difference for difference in compared if any(mark != BOTH for mark, _ in difference.lines)]


def _text(value: Any) -> str:
    """Return a value as JSON, which distinguishes true from 1, and 4 from "4"."""
    return _ABSENT if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _value_difference(key: str, expected: Any, actual: Any) -> Difference:
    before, after = _text(expected), _text(actual)
    if before == after:
        return Difference(key, ((BOTH, after),))
    return Difference(key, ((EXPECTED, before), (ACTUAL, after)))


def _patch_difference(expected: Sequence[Any], actual: Sequence[Any]) -> Difference:
    before, after = [_text(operation) for operation in expected], [_text(operation) for operation in actual]
    lines: list[tuple[str, str]] = []
    matcher = SequenceMatcher(a=before, b=after, autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            lines += [(BOTH, text) for text in before[start:end]]
        else:
            lines += [(EXPECTED, text) for text in before[start:end]]
            lines += [(ACTUAL, text) for text in after[other_start:other_end]]
    return Difference("patch", tuple(lines))


def _violation_difference(
    expected: Sequence[ViolationDocument], actual: Sequence[Finding], language: Language
) -> Difference:
    pairs = _pairs(expected, actual, partial(_is_violation, language))
    rows = [
        *(
            (EXPECTED, [violation.rule, violation.action, violation.path, violation.message])
            for at, violation in enumerate(expected)
            if at not in pairs.values()
        ),
        *(
            (
                BOTH if at in pairs else ACTUAL,
                [
                    violation.rule,
                    violation.action.value,
                    violation.path,
                    violation.message.in_language(language),
                ],
            )
            for at, violation in enumerate(actual)
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


def _warning_difference(expected: Sequence[str], actual: Sequence[str]) -> Difference:
    pairs = _pairs(expected, actual, _is_part)
    return Difference(
        "warnings",
        (
            *((EXPECTED, text) for at, text in enumerate(expected) if at not in pairs.values()),
            *((BOTH if at in pairs else ACTUAL, text) for at, text in enumerate(actual)),
        ),
    )


def _is_violation(language: Language, expected: ViolationDocument, actual: Finding) -> bool:
    return (
        expected.rule in ("", actual.rule)
        and expected.action in ("", actual.action)
        and f"{actual.path}.".startswith(
            (f"{expected.path}.", f"{expected.path}[", "." if expected.path else "")
        )
        and _is_part(expected.message, actual.message.in_language(language))
    )


def _is_part(part: str, text: str) -> bool:
    """Return whether a text contains a part, ignoring differences in white space."""
    return " ".join(part.split()) in " ".join(text.split())


def _pairs(expected: Sequence[E], actual: Sequence[A], matches: Callable[[E, A], bool]) -> dict[int, int]:
    """Return a maximum bipartite matching: index of an actual item to index of an expected item.

    An unspecific expectation can match several items, so the matching uses augmenting paths.
    """
    pairs: dict[int, int] = {}

    def assign(at: int, tried: set[int]) -> bool:
        for index, item in enumerate(actual):
            if index not in tried and matches(expected[at], item):
                tried.add(index)
                if index not in pairs or assign(pairs[index], tried):
                    pairs[index] = at
                    return True
        return False

    for at in range(len(expected)):
        assign(at, set())
    return pairs
