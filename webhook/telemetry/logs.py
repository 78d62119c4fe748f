"""Logs: JSON lines for machines, plain text on a terminal; never an object's body or a value of env."""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TextIO

import click
import msgspec

from webhook.telemetry import metrics

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

    def __init__(self) -> None:
        super().__init__()
        self._second = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message, what `extra` gave the record, and `exc_info` of an error."""
        facts = {name: value for name, value in vars(record).items() if name not in _COMMON}
        if record.exc_info:
            facts["exc_info"] = self.formatException(record.exc_info)
        return self.line(record.created, record.levelname, record.name, record.getMessage(), facts)

    def line(self, created: float, level: str, logger: str, message: str, facts: Mapping[str, Any]) -> str:
        """Return the line of a record that would have these; facts: what `extra` would give it."""
        second, text = self._second
        if second != int(created):
            second = int(created)
            text = time.strftime(self.default_time_format, self.converter(second))
            self._second = second, text
        told = f"{text},{int((created - second) * 1000):03d}"
        line = {"time": told, "level": level, "logger": logger, "message": message, **facts}
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:  # half of a surrogate pair, as a file name that is no UTF-8 has
            return json.dumps(line, default=str)


# Lines that wait for a reader: of decisions, 4 MB.
_MOST_WAITING: Final = 10_000
# Seconds in which lines gather to be written together. A thread that wakes takes the interpreter from the one
# that answers, and what that had in its caches.
_GATHERING_S: Final = 0.05
# Seconds in which a program that ends still writes what waits.
_FAREWELL_S: Final = 1.0


class BackgroundHandler(logging.Handler):
    """Writes in a thread of its own: nobody waits for who reads it, and does not.

    A pipe whose reader stands still would hold up each request that is logged, and so all of them. Lines
    beyond _MOST_WAITING are dropped, and counted.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        # None: that is all.
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written soon; say so on stderr where its arguments do not fit.

        It is formatted here: its arguments may hold on to the body of a request.
        """
        try:
            self.put(self.format(record))
        except Exception:  # noqa: BLE001 - as all handlers do: a mistake in a log line costs that line
            self.handleError(record)

    def put(self, line: str) -> None:
        """Have a line written soon."""
        if self._waiting.qsize() >= _MOST_WAITING:
            metrics.LOG_LINES_DROPPED.inc()
        else:
            self._waiting.put(line)

    def close(self) -> None:
        """Write what waits, as far as it is read within a moment; called when the program ends."""
        self._waiting.put(None)
        self._thread.join(_FAREWELL_S)
        super().close()

    def _write(self) -> None:
        waiting: list[str | None] = []
        while None not in waiting:
            waiting = [self._waiting.get()]
            if waiting[0] is not None:
                time.sleep(_GATHERING_S)
            waiting += [self._waiting.get() for _ in range(self._waiting.qsize())]
            lines = [f"{line}\n" for line in waiting if line is not None]
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except (OSError, ValueError):  # a full disk; a stream that was closed
                metrics.LOG_LINES_DROPPED.inc(len(lines))


def tell(logger: logging.Logger, message: str, facts: Mapping[str, Any], created: float = 0.0) -> None:
    """Log as `logger.info(message, extra=facts)` does. created: when, in seconds since the epoch; 0 is now.

    Where all that would come of a record is a line of JSON, none is made: that costs a quarter.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handlers: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        handlers += at.handlers
        at = at.parent if at.propagate else None
    aside = handlers[0] if len(handlers) == 1 else None
    if isinstance(aside, BackgroundHandler) and not (aside.level or aside.filters or logger.filters):
        formatter = aside.formatter
        if isinstance(formatter, JsonFormatter):
            aside.put(formatter.line(created or time.time(), "INFO", logger.name, message, facts))
            return
    logger.info(message, extra=facts)


# Seconds between two warnings in the same words; see Seldom.
_SELDOM_S: Final = 60.0


class RateLimitFilter(logging.Filter):
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
    handler: logging.Handler = logging.NullHandler()
    if sys.stderr is not None:  # as it is where a shell has closed it
        handler = BackgroundHandler(sys.stderr)
        plain = sys.stderr.isatty() if plain is None else plain
        handler.setFormatter(_PlainFormatter() if plain else JsonFormatter())
    # Nobody asks where a line was logged: https://docs.python.org/3/howto/logging.html#optimization
    logging._srcfile = None  # noqa: SLF001 - the documented way
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
