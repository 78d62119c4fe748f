"""The end of NVIDIA's support of driver branches and CUDA toolkits. It decides nothing; people are told."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rules.cuda.tables import Facts, branch_of_cuda, lifecycle_of_branch
from rules.cuda.versions import CudaVersion
from rules.nodes.node_capabilities import NodeCapabilities, branch_of
from rules.text.i18n import Message

# An end is announced to people this many months before: time for a roll-out of another driver.
_MONTHS_BEFORE: Final = 6
_MONTHS_PER_YEAR: Final = 12


class SupportState(StrEnum):
    """Whether NVIDIA supports a driver branch in a month."""

    SUPPORTED = "supported"
    ENDING = "ending"  # within six months
    ENDED = "ended"


class DriverSupport(NamedTuple):
    """NVIDIA's support of a driver branch in a month."""

    branch: int
    kind: str  # as in Lifecycle
    end: str | None  # as in Lifecycle
    state: SupportState | None  # None: no end is announced

    @property
    def text(self) -> Message | None:
        """The message about the end of support; None if it does not end soon."""
        match self.state:
            case SupportState.ENDED:
                return Message("out of support since {end}", end=self.end)
            case SupportState.ENDING:
                return Message("support ends {end}", end=self.end)
        return None

    @property
    def line(self) -> Message | None:
        """The text with the branch."""
        text = self.text
        return Message("driver branch {branch}: {text}", branch=self.branch, text=text) if text else None

    def document(self) -> dict[str, Any]:
        """Return the support as JSON."""
        return self._asdict()


def driver_support(facts: Facts, branch: int, month: str) -> DriverSupport | None:
    """Return the support of a driver branch in a month, such as 2026-11; None if the branch is unknown."""
    fact = lifecycle_of_branch(facts, branch)
    if fact is None:
        return None
    kind, end = fact.value.kind, fact.value.end
    return DriverSupport(branch, kind, end, _state(end, month) if end else None)


def end_of_support(facts: Facts, branch: int) -> str | None:
    """Return the last month of NVIDIA's support of a driver branch; None if unknown or not announced."""
    fact = lifecycle_of_branch(facts, branch)
    return fact.value.end if fact else None


def support_of(capabilities: NodeCapabilities, month: str) -> DriverSupport | None:
    """Return the support of a node's driver in a month; None if that is unknown."""
    branch = branch_of(capabilities)
    return driver_support(capabilities.facts, branch, month) if branch else None


def support_lines(supports: Iterable[DriverSupport | None]) -> list[Message]:
    """Return a line for each driver branch whose support ends or has ended, the oldest first."""
    known = sorted({support for support in supports if support})
    return [line for support in known if (line := support.line)]


def ended_toolkits(facts: Facts, toolkits: Iterable[CudaVersion], month: str) -> dict[CudaVersion, str]:
    """Return the CUDA toolkits out of support in a month, the oldest first, with the last month of each.

    NVIDIA updates the images of a toolkit while it supports the driver branch that the toolkit came with.
    Source: https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/support-policy.md
    """
    branches = {cuda: branch_of_cuda(facts, cuda) for cuda in sorted(set(toolkits))}
    supports = {cuda: driver_support(facts, branch, month) for cuda, branch in branches.items() if branch}
    return {
        cuda: support.end
        for cuda, support in supports.items()
        if support and support.end and support.state is SupportState.ENDED
    }


def _state(end: str, month: str) -> SupportState:
    left = _months(end) - _months(month)
    if left < 0:
        return SupportState.ENDED
    return SupportState.ENDING if left <= _MONTHS_BEFORE else SupportState.SUPPORTED


def _months(month: str) -> int:
    year, _, number = month.partition("-")
    return int(year) * _MONTHS_PER_YEAR + int(number)
