"""Logs: JSON lines for machines, plain text on a terminal; never an object's body or a value of env."""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from collections import Counter
from typing import Final, TextIO

import click
import msgspec

from webhook import metrics

_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
# What every record has, or gets from another handler; the rest is what `extra` gave it.
_COMMON: Final = {*vars(logging.makeLogRecord({})), "message", "asctime"}
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class _PlainFormatter(logging.Formatter):
    """What a person reads: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname, "green"))
        line = f"{self.formatTime(record, '%H:%M:%S')} {level} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """What a machine reads: an object in a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message, what `extra` gave the record, and `exc_info` of an error."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _COMMON}
        if record.exc_info:
            line["exc_info"] = self.formatException(record.exc_info)
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:  # half of a surrogate pair, as a file name that is no UTF-8 has
            return json.dumps(line, default=str)


# Lines that wait for a reader: decisions take 24 MB, as records.
_MOST_WAITING: Final = 10_000
# Seconds in which lines gather to be formatted and written together. A thread that wakes for each line, and
# code that is in no cache any more when the next one comes, cost several times as much.
_GATHERING_S: Final = 0.01
# Seconds in which a program that ends still writes what waits.
_FAREWELL_S: Final = 1.0


class Aside(logging.Handler):
    """Formats and writes in a thread of its own: nobody waits for that, nor for who reads it, and does not.

    A pipe whose reader stands still would hold up each request that is logged, and so all of them. Lines
    beyond _MOST_WAITING are dropped, and counted.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        # None: that is all.
        self._waiting: queue.SimpleQueue[logging.LogRecord | str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written soon."""
        if self._waiting.qsize() >= _MOST_WAITING:
            metrics.LOG_LINES_DROPPED.inc()
        # An error, or its traceback, may hold on to the body of a request: it is not kept until then.
        elif record.levelno > logging.INFO:
            self._waiting.put(self._line(record))
        else:
            self._waiting.put(record)

    def close(self) -> None:
        """Write what waits, as far as it is read within a moment; called when the program ends."""
        self._waiting.put(None)
        self._thread.join(_FAREWELL_S)
        super().close()

    def _write(self) -> None:
        waiting: list[logging.LogRecord | str | None] = []
        while None not in waiting:
            waiting = [self._waiting.get()]
            if waiting[0] is not None:
                time.sleep(_GATHERING_S)
            waiting += [self._waiting.get() for _ in range(self._waiting.qsize())]
            lines = [each if isinstance(each, str) else self._line(each) for each in waiting if each]
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except (OSError, ValueError):  # a full disk; a stream that was closed
                metrics.LOG_LINES_DROPPED.inc(len(lines))

    def _line(self, record: logging.LogRecord) -> str:
        """Return a record's line; nothing, and a word on stderr, for one whose arguments do not fit."""
        try:
            return f"{self.format(record)}\n"
        except Exception:  # noqa: BLE001 - as all handlers do: a mistake in a log line costs that line
            self.handleError(record)
            return ""


# Seconds between two warnings in the same words; see Seldom.
_SELDOM_S: Final = 60.0


class Seldom(logging.Filter):
    """Lets a warning pass once a minute, so that no client fills a disk with what it makes a library say.

    Told apart by their words without arguments, which have to be few.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}
        self._held: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record passes; one that does says how many were held back before it."""
        words = record.msg
        if record.levelno != logging.WARNING:
            return True
        if record.created < self._told.get(words, 0.0) + _SELDOM_S:
            self._held[words] += 1
            return False
        self._told[words] = record.created
        if held := self._held.pop(words, 0):
            record.msg = f"{words} ({held} more since the last)"
        return True


def configure_logs(*, plain: bool | None = None, level: int = logging.INFO) -> None:
    """Send logs to stderr; plain: text for people, by default where stderr is a terminal."""
    if plain is None:
        plain = sys.stderr.isatty()
    handler = Aside(sys.stderr)
    handler.setFormatter(_PlainFormatter() if plain else JsonFormatter())
    # Nobody asks where a line was logged: https://docs.python.org/3/howto/logging.html#optimization
    logging._srcfile = None  # noqa: SLF001 - the documented way
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
