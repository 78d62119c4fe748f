"""The result of a compatibility check on one node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from rules.cuda.tables import cuda_error
from rules.model.edit import Edit
from rules.text.i18n import Message
from rules.text.paths import Path

_NO_TEXT: Final = Message()


class Level(IntEnum):
    """How compatible a node is, from fully to not at all."""

    COMPATIBLE = 0
    UNSTABLE = 1  # runs, with a warning
    UNKNOWN = 2  # a label is missing
    INCOMPATIBLE = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One reason for a level.

    origin: the source of the requirement. remedy: a suggested fix. Both may be empty. code: the CUDA error
    that the container would end in, or 0. setting: the key of the rule that decides so (policy), or empty: it
    follows from facts about image, driver and GPU. warns: whether a pod is warned of it if it is UNSTABLE;
    otherwise it only makes other nodes preferable. path: of what causes it in the object; empty: the image.
    edits: as of a finding. instead: a flag as written that causes it, and the value that resolves it, or
    nothing.
    """

    level: Level
    reason: Message
    remedy: Message = _NO_TEXT
    code: int = 0
    origin: Message = _NO_TEXT
    setting: str = ""
    warns: bool = True
    path: Path = ()
    edits: tuple[Edit, ...] = ()
    instead: tuple[str, str] = ("", "")
    # Reason and error; a result is made once and shown often.
    summary: Message = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        error = self.error
        summary = Message("{reason}: {error}", reason=self.reason, error=error) if error else self.reason
        object.__setattr__(self, "summary", summary)

    @property
    def error(self) -> str:
        """The error's name and number, or an empty string."""
        known = cuda_error(self.code)
        return f"{known.driver_name or known.name} ({known.code})" if known else ""


def level_of(results: Iterable[CheckResult]) -> Level:
    """Return the worst level of the results."""
    worst = Level.COMPATIBLE
    for result in results:
        worst = max(worst, result.level)
    return worst


def unmet(*, certain: bool) -> Level:
    """Return the level of a requirement that is not met."""
    return Level.INCOMPATIBLE if certain else Level.UNSTABLE


def capped(setting: Level, *, certain: bool) -> Level:
    """Return the level of a finding of an optional check. setting: that of the check in the rule."""
    return min(setting, unmet(certain=certain))


def unknown(*, certain: bool) -> Level:
    """Return the level of a requirement of which it is unknown whether it is met."""
    return Level.UNKNOWN if certain else Level.UNSTABLE
