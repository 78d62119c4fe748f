"""CPU time of a call, relative to the machine, so that a bound holds on a slow one too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

# Iterations of the loop that is the unit; it takes about a hundredth of a second.
_ITERATIONS = 300_000


def loops(call: Callable[[], object]) -> float:
    """Return how many times as long as a plain loop a call takes, in CPU time of this thread."""
    gc.freeze()  # or the garbage collector passes over the objects of all other tests
    try:
        took = _seconds(call)
    finally:
        gc.unfreeze()
    return took / min(_seconds(_loop) for _ in range(3))


def _seconds(call: Callable[[], object]) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


def _loop() -> int:
    total = 0
    for number in range(_ITERATIONS):
        total += number & 7
    return total
