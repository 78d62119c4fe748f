"""Logs: JSON lines for machines, plain text on a terminal; never an object's body or a value of env."""

from __future__ import annotations

import logging
import sys

import click
from pythonjsonlogger.json import JsonFormatter

_FIELDS = "{asctime}{levelname}{name}{message}"
_RENAMED = {"asctime": "time", "levelname": "level", "name": "logger"}
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class _PlainFormatter(logging.Formatter):
    """What a person reads: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        level = click.style(f"{record.levelname.lower():<7}", fg=_COLOURS.get(record.levelname, "green"))
        line = f"{self.formatTime(record, '%H:%M:%S')} {level} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logs(*, plain: bool | None = None, level: int = logging.INFO) -> None:
    """Send logs to stderr; plain: text for people, by default where stderr is a terminal."""
    if plain is None:
        plain = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    formatter = _PlainFormatter() if plain else JsonFormatter(_FIELDS, style="{", rename_fields=_RENAMED)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
