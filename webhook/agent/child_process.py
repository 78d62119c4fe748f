"""Child process for a function that calls the driver: such a call may hang, and nothing can interrupt it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Final, Generic, TypeVar

# Initializing eight GPUs without persistence mode takes some 20 seconds.
SECONDS: Final = 60

T = TypeVar("T")


class HangError(Exception):
    """The function did not return in time."""


class CrashError(Exception):
    """The library ended the process."""


class ChildProcess(Generic[T]):
    """Calls a function in a child process of this program.

    A process in which the driver hangs may survive SIGKILL. It is not waited for, and while it exists there
    is no second one. Each process loads the library anew, also after an upgrade of the driver.

    function: of a module, without arguments; its result can be pickled.
    """

    def __init__(self, function: Callable[[], T], seconds: float = SECONDS) -> None:
        self._name, self._seconds = (function.__module__, function.__qualname__), seconds
        self._child: subprocess.Popen[bytes] | None = None

    def call(self) -> T:
        """Return the result of the function. Raises HangError and CrashError."""
        if self._child and self._child.poll() is None:
            raise HangError
        self._child = subprocess.Popen(  # noqa: S603 - the command is this program
            [sys.executable, "-P", "-m", __name__, *self._name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            written, _ = self._child.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.communicate(timeout=1)
            raise HangError from None
        if self._child.returncode:
            raise CrashError
        result: T = pickle.loads(written)  # noqa: S301 - written by this program
        return result


if __name__ == "__main__":
    module, name = sys.argv[1:]
    sys.stdout.buffer.write(pickle.dumps(getattr(import_module(module), name)()))
