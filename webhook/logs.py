"""Logs: JSON lines for machines, plain text on a terminal; never an object's body or a value of env."""

from __future__ import annotations

import atexit
import logging
import queue
import sys
import threading
from typing import Final, TextIO

import click
from pythonjsonlogger.json import JsonFormatter

from webhook import metrics

_FIELDS = "{asctime}{levelname}{name}{message}"
_RENAMED = {"asctime": "time", "levelname": "level", "name": "logger"}
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class _PlainFormatter(logging.Formatter):
    """What a person reads: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname, "green"))
        line = f"{self.formatTime(record, '%H:%M:%S')} {level} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


# Lines of about 500 bytes that wait for a reader: five megabytes.
_MOST_WAITING: Final = 10_000
# Seconds in which a program that ends still writes what waits.
_FAREWELL_S: Final = 1.0


class Aside:
    """A stream that writes in a thread of its own: nobody waits for who reads it, and does not.

    A pipe whose reader stands still would hold up each request that is logged, and so all of them. Lines
    beyond _MOST_WAITING are dropped, and counted.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: queue.Queue[str] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, text: str) -> None:
        """Have a line written soon."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            metrics.LOG_LINES_DROPPED.inc()

    def flush(self) -> None:
        """Wait for nothing: see `close`."""

    def close(self) -> None:
        """Write what waits, as far as it is read within a moment."""
        atexit.unregister(self.close)
        try:
            self._waiting.put("", timeout=_FAREWELL_S)
        except queue.Full:
            return
        self._thread.join(_FAREWELL_S)

    def _write(self) -> None:
        while text := self._waiting.get():
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):  # a full disk; a stream that was closed
                metrics.LOG_LINES_DROPPED.inc()


def configure_logs(*, plain: bool | None = None, level: int = logging.INFO) -> None:
    """Send logs to stderr; plain: text for people, by default where stderr is a terminal."""
    if plain is None:
        plain = sys.stderr.isatty()
    handler = logging.StreamHandler(Aside(sys.stderr))
    formatter = _PlainFormatter() if plain else JsonFormatter(_FIELDS, style="{", rename_fields=_RENAMED)
    handler.setFormatter(formatter)
    # Nobody asks where a line was logged: https://docs.python.org/3/howto/logging.html#optimization
    logging._srcfile = None  # noqa: SLF001 - the documented way
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
