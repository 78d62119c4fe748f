"""Decisions on the gists of pods, each found once: what was decided of a gist before is decided again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from rules.decision.gist import MARK, from_gist, without_names
from rules.model.decision import Decision
from rules.text.bounded_cache import bounded_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rules.kube.json_patch import Operation
    from rules.kube.pod import Pod
    from rules.model.request import AdmissionRequest

# Decisions that are remembered, and the characters of what one says and puts in. With the longest gists and
# most to say they are 40 KB each, with what other memories keep of them; usual ones 4 to 7 KB.
_REMEMBERED: Final = 1024
_REMEMBERED_WITHOUT_NAMES: Final = 256
_LONGEST: Final = 4096

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Precedents:
    """Decides on the gists of pods, and remembers what it decided. Any thread may ask it.

    Pods that differ in the names of their containers alone are decided once, and each is told its own.
    """

    __slots__ = ("_decide", "_found", "_found_without_names")

    def __init__(self, decide: Callable[[AdmissionRequest, Pod, float], Decision]) -> None:
        """Decide by `decide`, which takes what `from_gist` returns."""
        self._decide = decide
        self._found = bounded_cache(self._find, _REMEMBERED, lambda _: True)
        self._found_without_names = bounded_cache(
            self._find_without_names, _REMEMBERED_WITHOUT_NAMES, lambda _: True
        )

    def __call__(self, gist: bytes) -> Decision | None:
        """Return the decision on a gist, whose patch is the caller's own; None where none is remembered."""
        found = self._found(gist)
        if found is None:
            return None
        decision, patch = found
        return _with_patch(decision, tuple(_decode(patch))) if patch else decision

    def _find(self, gist: bytes) -> tuple[Decision, bytes] | None:
        """Return a decision without its patch, and that as JSON; None where it says or puts in too much."""
        nameless, names = without_names(gist)
        found = self._found_without_names(nameless)
        if found is None:
            return None
        decision, patch, says_names = found
        return (_with_names(decision, names) if says_names else decision), patch

    def _find_without_names(self, gist: bytes) -> tuple[Decision, bytes, bool] | None:
        """Return likewise, and whether the decision says names of containers, or what stands for them."""
        decision = self._decide(*from_gist(gist))
        patch = _encode(decision.patch) if decision.patch else b""
        said = [found.message for found in decision.violations]
        # What JSON has no number for is written as null.
        if len(patch) + sum(map(len, (*said, *decision.warnings))) > _LONGEST or b"null" in patch:
            return None
        told = "".join([decision.message, *decision.warnings, *decision.audit.values(), *said])
        return _with_patch(decision, ()), patch, MARK in told


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


def _with_names(decision: Decision, names: Mapping[str, str]) -> Decision:
    """Return a decision that says these names, by what stands for them."""

    def named(text: str) -> str:
        for mark, name in names.items():
            text = text.replace(mark, name)
        return text

    return replace(
        decision,
        message=named(decision.message),
        violations=tuple([replace(found, message=named(found.message)) for found in decision.violations]),
        warnings=tuple(map(named, decision.warnings)),
        audit={key: named(text) for key, text in decision.audit.items()},
    )
