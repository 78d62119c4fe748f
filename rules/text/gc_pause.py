"""A pause of the garbage collector while a long text becomes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

# Bytes or characters from which on the collector is paused: it would pass the new objects again and again,
# for up to five times as long as decoding takes, while no other thread runs.
_LONG: Final = 64 * 2**10


def gc_paused(length: int) -> AbstractContextManager[None]:
    """Pause the collector for a long text. With two threads, the first to end resumes it: harmless."""
    return _paused() if length > _LONG else nullcontext()


@contextmanager
def _paused() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
