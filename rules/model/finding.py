"""What there is to say of a container on a node, and how bad that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from rules.cuda.tables import cuda_error
from rules.text.i18n import Text

_NO_TEXT: Final = Text()


class Level(IntEnum):
    """How well a node suits, from well to not at all."""

    COMPATIBLE = 0
    UNSTABLE = 1  # runs, with a warning
    UNKNOWN = 2  # nobody can tell: a label is missing
    INCOMPATIBLE = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One reason for a level.

    origin: where the need was read. remedy: what would help. Both may be empty. code: the CUDA error that it
    would be, or 0.
    """

    level: Level
    reason: Text
    remedy: Text = _NO_TEXT
    code: int = 0
    origin: Text = _NO_TEXT

    @property
    def error(self) -> str:
        """The error's name and number, or an empty string."""
        known = cuda_error(self.code)
        return f"{known.driver_name or known.name} ({known.code})" if known else ""


def level_of(findings: tuple[CheckResult, ...]) -> Level:
    """Return the worst level of the findings."""
    return max([finding.level for finding in findings], default=Level.COMPATIBLE)


def incompatible(*, certain: bool) -> Level:
    """Return what follows from a need that is not met."""
    return Level.INCOMPATIBLE if certain else Level.UNSTABLE


def unknown(*, certain: bool) -> Level:
    """Return what follows from a need of which nobody can tell."""
    return Level.UNKNOWN if certain else Level.UNSTABLE
