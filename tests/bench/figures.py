"""Figures: rounds that measure cases alternately, medians with quartiles, ratios within a round, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import thread_time
from typing import Final


@dataclass(frozen=True, slots=True)
class Effort:
    """The size of a measurement.

    rounds: each measures all cases. seconds: of a case in a round. requests: over HTTP in a round.
    soak: requests of the memory measurement. creates: pods of each kind in a real cluster.
    nodes: cluster sizes.
    """

    rounds: int
    seconds: float
    requests: int
    soak: int
    creates: int
    nodes: tuple[int, int, int]


FULL: Final = Effort(
    rounds=9, seconds=0.012, requests=384, soak=20_000, creates=180, nodes=(10, 1_000, 10_000)
)
QUICK: Final = Effort(
    rounds=5, seconds=0.003, requests=128, soak=2_000, creates=30, nodes=(10, 1_000, 10_000)
)
# Only checks that everything runs; its figures mean nothing.
TINY: Final = Effort(rounds=1, seconds=0.0001, requests=64, soak=64, creates=4, nodes=(10, 20, 30))


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some measurements, and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        low, middle, high = quantiles(values, method="inclusive") if len(values) > 1 else [*values] * 3
        return cls(middle, low, high)

    def __str__(self) -> str:
        digits = 2 if self.median < 10 else 1 if self.median < 100 else 0
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title; the first column names the row. note: text below the table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A promise, the measured figure, and whether the promise is met; None if it was not measured."""

    promise: str
    measured: str
    met: bool | None

    @property
    def result(self) -> str:
        """Return the word for `met` in tables."""
        return {True: "yes", False: "NO", None: "?"}[self.met]


@dataclass(frozen=True, slots=True)
class Section:
    """The results of one benchmark."""

    tables: tuple[Table, ...]
    targets: tuple[Target, ...] = ()


class Samples:
    """The measurements of each case by round, in any unit."""

    def __init__(self, rounds: Mapping[str, Sequence[float]]) -> None:
        """Take the measurements by case name; all cases have the same rounds."""
        self._rounds = rounds

    def of(self, case: str) -> Spread:
        """Return a case's figure."""
        return Spread.of(self._rounds[case])

    def ratio(self, case: str, baseline: str) -> Spread:
        """Return the ratio of two cases, computed in each round: what disturbs a round disturbs both."""
        pairs = zip(self._rounds[case], self._rounds[baseline], strict=True)
        return Spread.of([one / other for one, other in pairs])

    def median(self, case: str) -> float:
        """Return the median of a case."""
        return median(self._rounds[case])


def measure(cases: Mapping[str, Callable[[], object]], effort: Effort) -> Samples:
    """Return the microseconds of CPU of a call of each case, in this thread.

    CPU, because other processes on a busy machine interrupt a round, and wall time would count them.
    """
    repeats = {name: _repeats(call, effort.seconds) for name, call in cases.items()}
    rounds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(effort.rounds):
        for name, call in cases.items():
            count = repeats[name]
            call()  # fills the caches of this case again, after the case before
            start = thread_time()
            for _ in range(count):
                call()
            rounds[name].append((thread_time() - start) / count * 1e6)
    return Samples(rounds)


def _repeats(call: Callable[[], object], seconds: float) -> int:
    call()
    start = thread_time()
    call()
    return max(1, int(seconds / max(thread_time() - start, 1e-6)))
