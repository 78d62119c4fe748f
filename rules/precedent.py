"""Decisions on the gists of pods, each found once: what was decided of a gist before is decided again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from rules.gist import from_gist
from rules.memo import remembered
from rules.model import AdmissionRequest, Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from rules.patch import Operation
    from rules.pod import Pod

# Decisions that are remembered, and the characters of what one says and puts in. With the longest gists and
# most to say they are 40 KB each, with what other memories keep of them; usual ones 4 to 7 KB.
_REMEMBERED: Final = 1024
_LONGEST: Final = 4096

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Precedents:
    """Decides on the gists of pods, and remembers what it decided. Any thread may ask it."""

    __slots__ = ("_decide", "_found")

    def __init__(self, decide: Callable[[AdmissionRequest, Pod, float], Decision]) -> None:
        """Decide by `decide`, which takes what `from_gist` returns."""
        self._decide = decide
        self._found = remembered(self._find, _REMEMBERED, lambda _: True)

    def __call__(self, gist: bytes) -> Decision | None:
        """Return the decision on a gist, whose patch is the caller's own; None where none is remembered."""
        found = self._found(gist)
        if found is None:
            return None
        decision, patch = found
        return _with_patch(decision, tuple(_decode(patch))) if patch else decision

    def _find(self, gist: bytes) -> tuple[Decision, bytes] | None:
        """Return a decision without its patch, and that as JSON; None where it says or puts in too much."""
        decision = self._decide(*from_gist(gist))
        patch = _encode(decision.patch) if decision.patch else b""
        said = [found.message for found in decision.violations]
        # What JSON has no number for is written as null.
        if len(patch) + sum(map(len, (*said, *decision.warnings))) > _LONGEST or b"null" in patch:
            return None
        return _with_patch(decision, ()), patch


def _with_patch(decision: Decision, patch: tuple[Operation, ...]) -> Decision:
    return Decision(
        decision.allowed,
        decision.message,
        decision.violations,
        decision.warnings,
        patch,
        decision.audit,
        decision.rules,
        decision.cuda_sources,
    )
