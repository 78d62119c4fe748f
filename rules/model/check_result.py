"""The result of a compatibility check on one node, and the edit that resolves it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from rules.cuda.tables import cuda_error
from rules.kube.pod import Container
from rules.text.i18n import Message
from rules.text.paths import Path


class Edit(NamedTuple):
    """A change of one scalar of an object.

    path: of the scalar. old: what is replaced: the scalar, or a part of a command line in it; empty: the
    scalar is absent and is added to an object. new: what replaces it.
    """

    path: Path
    old: str
    new: str


def edit_of_flag(container: Container, written: str, value: str) -> Edit | None:
    """Return the edit that gives a flag or variable of a container another value.

    written: with its value, such as `--tp 4` or `TP=4`. None unless it is written exactly once.
    """
    separator = " " if " " in written else "="
    name, _, old = written.partition(separator)
    edits: list[Edit] = []
    for key in ("command", "args"):
        words = container.strings(key)
        for index, word in enumerate(words):
            path = (*container.path, key, index)
            if separator == " " and words[index : index + 2] == [name, old]:
                edits.append(Edit((*path[:-1], index + 1), old, value))
            elif written in word:
                edits.append(Edit(path, written, f"{name}{separator}{value}"))
    if separator == "=" and container.variables.get(name, {}).get("value") == old:
        edits.append(Edit((*container.variable_path(name), "value"), old, value))
    return edits[0] if len(edits) == 1 else None


_NO_TEXT: Final = Message()


class Level(IntEnum):
    """How compatible a node is, from fully to not at all."""

    COMPATIBLE = 0
    UNSTABLE = 1  # runs, with a warning
    UNKNOWN = 2  # a label is missing
    INCOMPATIBLE = 3


# As a setting of a rule: the check is off.
OFF: Final = Level.COMPATIBLE


class CheckResult(Struct, frozen=True, dict=True):
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

    @cached_property
    def summary(self) -> Message:
        """Reason and error."""
        error = self.error
        return Message("{reason}: {error}", reason=self.reason, error=error) if error else self.reason

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
