"""Timing: the best of several rounds, cases taken in turn, so that a busy machine hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter


def measure(
    cases: Mapping[str, Callable[[], object]], rounds: int = 15, seconds: float = 0.04
) -> dict[str, float]:
    """Return the microseconds of a call of each case: the least of the rounds, each of so many seconds."""
    repeats = {}
    for name, call in cases.items():
        call()
        start = perf_counter()
        call()
        repeats[name] = max(1, int(seconds / max(perf_counter() - start, 1e-7)))
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, call in cases.items():
            start = perf_counter()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best[name], (perf_counter() - start) / repeats[name] * 1e6)
    return best


def show(title: str, unit: str, figures: Mapping[str, float], baseline: str) -> None:
    """Print figures under a title, each with its ratio to the baseline."""
    width = max(len(name) for name in figures)
    print(f"\n{title}")
    print(f"  {'':{width}}  {unit:>9}  ratio")
    for name, figure in figures.items():
        print(f"  {name:{width}}  {figure:9.1f}  {figure / figures[baseline]:5.2f}")
