"""A pause of the garbage collector while a long text becomes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Bytes or characters from which on the collector is paused: it would pass the new objects again and again,
# for up to five times as long as decoding takes, while no other thread runs.
_LONG: Final = 64 * 2**10


@contextmanager
def gc_paused(length: int) -> Iterator[None]:
    """Pause the collector for a long text. With two threads, the first to end resumes it: harmless."""
    if length <= _LONG:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
