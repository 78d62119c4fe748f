"""Logs: JSON lines, or plain text on a terminal; never the body of an object or an env value."""

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
# Attributes of every record, or set by other handlers; any other attribute comes from `extra`.
_COMMON: Final = {*vars(logging.makeLogRecord({})), "message", "asctime"}
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class _PlainFormatter(logging.Formatter):
    """Plain text for people: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname, "green"))
        line = f"{self.formatTime(record, '%H:%M:%S')} {level} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """JSON lines: one object per line."""

    def __init__(self) -> None:
        super().__init__()
        self._second = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message, the fields of `extra`, and `exc_info` of an error."""
        fields = {name: value for name, value in vars(record).items() if name not in _COMMON}
        if record.exc_info:
            fields["exc_info"] = self.formatException(record.exc_info)
        return self.line(record.created, record.levelname, record.name, record.getMessage(), fields)

    def line(self, created: float, level: str, logger: str, message: str, fields: Mapping[str, Any]) -> str:
        """Return the line of a record with these values; fields: its `extra`."""
        second, text = self._second
        if second != int(created):
            second = int(created)
            text = time.strftime(self.default_time_format, self.converter(second))
            self._second = second, text
        timestamp = f"{text},{int((created - second) * 1000):03d}"
        line = {"time": timestamp, "level": level, "logger": logger, "message": message, **fields}
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:  # a lone surrogate, as in a file name that is not UTF-8
            return json.dumps(line, default=str)


# Lines in the queue: 4 MB of decisions.
_MAX_QUEUED: Final = 10_000
# Seconds in which lines are collected and then written together. A thread that wakes up takes the
# interpreter, and the CPU caches, from the thread that answers requests.
_BATCH_S: Final = 0.05
# Seconds to flush the queue when the program ends.
_SHUTDOWN_FLUSH_S: Final = 1.0


class BackgroundHandler(logging.Handler):
    """Writes log lines in a background thread, so that a slow reader never blocks a request.

    A pipe that is not read would otherwise block every request that is logged. Lines beyond _MAX_QUEUED are
    dropped and counted.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        # None ends the thread.
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Format and queue a record; report a formatting error on stderr.

        It is formatted here, because its arguments may keep the body of a request in memory.
        """
        try:
            self.put(self.format(record))
        except Exception:  # noqa: BLE001 - as all handlers do: an error in a log line loses that line only
            self.handleError(record)

    def put(self, line: str) -> None:
        """Queue a line."""
        if self._queue.qsize() >= _MAX_QUEUED:
            metrics.LOG_LINES_DROPPED.inc()
        else:
            self._queue.put(line)

    def close(self) -> None:
        """Flush the queue, for at most _SHUTDOWN_FLUSH_S; called when the program ends."""
        self._queue.put(None)
        self._thread.join(_SHUTDOWN_FLUSH_S)
        super().close()

    def _write(self) -> None:
        batch: list[str | None] = []
        while None not in batch:
            batch = [self._queue.get()]
            if batch[0] is not None:
                time.sleep(_BATCH_S)
            batch += [self._queue.get() for _ in range(self._queue.qsize())]
            lines = [f"{line}\n" for line in batch if line is not None]
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except (OSError, ValueError):  # a full disk; a stream that was closed
                metrics.LOG_LINES_DROPPED.inc(len(lines))


def log_event(logger: logging.Logger, message: str, fields: Mapping[str, Any], created: float = 0.0) -> None:
    """Log like `logger.info(message, extra=fields)`. created: seconds since the epoch; 0 is now.

    If a record would only become one JSON line, none is created: the line alone costs a quarter.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handlers: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        handlers += at.handlers
        at = at.parent if at.propagate else None
    only = handlers[0] if len(handlers) == 1 else None
    if isinstance(only, BackgroundHandler) and not (only.level or only.filters or logger.filters):
        formatter = only.formatter
        if isinstance(formatter, JsonFormatter):
            only.put(formatter.line(created or time.time(), "INFO", logger.name, message, fields))
            return
    logger.info(message, extra=fields)


# Seconds between two equal warnings; see RateLimitFilter.
_WARNING_INTERVAL_S: Final = 60.0


class RateLimitFilter(logging.Filter):
    """Passes each warning once a minute, so that no client fills a disk with the warnings of a library.

    Warnings are equal if they have the same format string; there must be few of these.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes; its message then says how many were suppressed before it."""
        template = record.msg
        if record.levelno != logging.WARNING:
            return True
        if record.created < self._passed.get(template, 0.0) + _WARNING_INTERVAL_S:
            self._suppressed[template] += 1
            return False
        self._passed[template] = record.created
        if suppressed := self._suppressed.pop(template, 0):
            record.msg = f"{template} ({suppressed} more since the last)"
        return True


def configure_logs(*, plain: bool | None = None, level: int = logging.INFO) -> None:
    """Send logs to stderr. plain: text for people; by default if stderr is a terminal."""
    handler: logging.Handler = logging.NullHandler()
    if sys.stderr is not None:  # None if a shell has closed it
        handler = BackgroundHandler(sys.stderr)
        plain = sys.stderr.isatty() if plain is None else plain
        handler.setFormatter(_PlainFormatter() if plain else JsonFormatter())
    # The source location of a log call is not used: https://docs.python.org/3/howto/logging.html#optimization
    logging._srcfile = None  # noqa: SLF001 - the documented way
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
