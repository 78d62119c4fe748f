"""A pseudo-terminal of a given width for commands under test."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def on_terminal(arguments: Sequence[str | Path], columns: int) -> tuple[int, str]:
    """Return the exit status of `gpugate` and its output on a terminal, without colours."""
    master, slave = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns)}
    with subprocess.Popen(
        [sys.executable, "-m", "webhook", *arguments], stdout=slave, env=environment
    ) as process:
        os.close(slave)
        written = b""
        try:
            while chunk := os.read(master, 65536):
                written += chunk
        except OSError:  # on Linux: the other end of the terminal is closed
            pass
        os.close(master)
    return process.returncode, _COLOUR.sub("", written.decode())
