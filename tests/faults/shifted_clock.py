"""`gpugate serve`, as in tests/e2e/quick_serve.py, with a clock that jumps.

Run as `FAULTS_CLOCK=FILE python tests/faults/shifted_clock.py serve …`; the file contains the offset in
seconds. The time of day in Python is shifted before gpugate is imported. The monotonic clock is not, because
a change of the time of day does not affect it; nor is the time that OpenSSL uses.
"""

from __future__ import annotations

import datetime as dt
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Final

_NOW: Final = time.time
_FILE: Final = Path(os.environ["FAULTS_CLOCK"])


def shifted() -> float:
    """Return the time in seconds since the epoch, plus the offset in the file."""
    return _NOW() + float(_FILE.read_text("utf-8") or 0)


class Shifted(dt.datetime):
    """A datetime whose `now` is shifted."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Shifted:
        """Return the shifted time."""
        return cls.fromtimestamp(shifted(), tz)


if __name__ == "__main__":
    vars(time).update(time=shifted)
    vars(dt).update(datetime=Shifted)
    program = Path(__file__).parents[1] / "e2e/quick_serve.py"
    sys.argv[0] = str(program)
    runpy.run_path(str(program), run_name="__main__")
