"""Logging never blocks a request, and no client can fill a disk with log lines."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from webhook.telemetry import metrics
from webhook.telemetry.logs import BackgroundHandler, JsonFormatter, RateLimitFilter, log_event

# Lines; more than a pipe and the queue hold, and what a busy server logs in ten seconds.
MANY = 20_000
LINE = f"{'x' * 99}\n"


def dropped() -> float:
    """Return how many lines were dropped so far."""
    return metrics.REGISTRY.get_sample_value("gpugate_log_lines_dropped_total") or 0.0


def record(message: str, *args: object, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    """Return a record; extra: its `extra`."""
    made = logging.LogRecord("gpugate", level, "", 0, message, args, None)
    vars(made).update(extra)
    return made


def test_all_lines_are_written_when_the_handler_is_closed() -> None:
    """In their order."""
    stream = io.StringIO()
    handler = BackgroundHandler(stream)
    for number, level in enumerate((logging.INFO, logging.WARNING, logging.INFO)):
        handler.handle(record("line %s", number, level=level))
    handler.close()

    assert "line 0\nline 1\nline 2\n" == stream.getvalue()


def test_a_program_that_ends_writes_its_last_line() -> None:
    """Although lines are written in batches."""
    program = (
        "import logging, webhook.telemetry.logs as w; w.configure_logs(plain=False); logging.info('the last')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)

    assert "the last" == json.loads(done.stderr)["message"]


def test_a_line_that_cannot_be_formatted_does_not_affect_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is reported as by any handler, and later lines are written."""
    stream = io.StringIO()
    handler = BackgroundHandler(stream)
    handler.handle(record("%d", "no number"))
    handler.handle(record("next"))
    handler.close()

    assert "next\n" == stream.getvalue()
    assert "Logging error" in capsys.readouterr().err


class _Error(Exception):
    """An exception that supports weak references; built-in ones do not."""


def test_a_logged_error_is_not_kept_in_memory() -> None:
    """It references its frames, and they reference the body of a request."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream, os.fdopen(reader) as read:
        handler = BackgroundHandler(stream)
        handler.handle(record("x" * 2**20))  # more than a pipe takes
        error = _Error("of a request")
        seen = weakref.ref(error)
        handler.handle(record("failed: %s", error, level=logging.WARNING))
        del error
        gc.collect()
        kept = seen() is not None
        taken = [read.readline() for _ in range(2)]
        handler.close()

    assert not kept
    assert "failed: of a request\n" == taken[1]


def test_a_record_is_a_json_object_in_one_line() -> None:
    """Time, level, logger and message, then the fields of `extra` in their order."""
    made = record("%s\nPod", "allow", rules=["a"], violations={"warn": ["b"]}, dryRun=False, odd=Path("a"))
    line = JsonFormatter().format(made)
    fields = json.loads(line)

    assert "\n" not in line
    assert ["time", "level", "logger", "message", "rules", "violations", "dryRun", "odd"] == list(fields)
    assert ("INFO", "gpugate", "allow\nPod", ["a"], "a") == tuple(
        fields[name] for name in ("level", "logger", "message", "rules", "odd")
    )


def test_a_line_has_the_timestamp_format_of_the_standard_library() -> None:
    """To the millisecond; the cached second is not used for the next one."""
    formatter = JsonFormatter()
    for created in (0.0, 1e9, 1e9 + 0.25, 1e9 + 1, 1e9 + 0.9996):
        made = record("x")
        made.created, made.msecs = created, int(created % 1 * 1000)

        assert logging.Formatter().formatTime(made) == json.loads(formatter.format(made))["time"]


@contextmanager
def logging_to(stream: io.StringIO) -> Iterator[tuple[logging.Logger, BackgroundHandler]]:
    """Yield a logger and its only handler; the lines are written when the block ends."""
    handler = BackgroundHandler(stream)
    handler.setFormatter(JsonFormatter())
    parent = logging.getLogger("events")
    parent.propagate = False
    parent.addHandler(handler)
    logger = parent.getChild("child")
    logger.setLevel(logging.INFO)
    yield logger, handler
    handler.close()
    parent.removeHandler(handler)
    parent.propagate = True


def test_an_event_is_the_same_line_as_a_log_record() -> None:
    """Except for the time; `logger.info` creates a record."""
    stream = io.StringIO()
    facts = {"rules": ["a"], "dryRun": False, "object": "\ud800", "odd": Path("a")}
    with logging_to(stream) as (logger, _):
        log_event(logger, "allow 100% of\nPod", facts)
        logger.info("allow 100%% of\n%s", "Pod", extra=facts)
    event, recorded = (list(json.loads(line).items()) for line in stream.getvalue().splitlines())

    assert ["time", "level", "logger", "message"] == [name for name, _ in event[:4]]
    assert recorded[1:] == event[1:]


class _Recorder(logging.Handler):
    """A handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.getMessage(), vars(record)["rules"]))


def test_another_handler_gets_a_record() -> None:
    """And the line is written too."""
    stream, recorder = io.StringIO(), _Recorder()
    parent = logging.getLogger("events")
    with logging_to(stream) as (logger, _):
        log_event(logger, "before", {"rules": []})
        parent.addHandler(recorder)
        log_event(logger, "100%", {"rules": ["a"]})
        parent.removeHandler(recorder)
        log_event(logger, "after", {"rules": []})

    assert [("100%", ["a"])] == recorder.records
    assert 3 == len(stream.getvalue().splitlines())


@pytest.mark.parametrize(
    "change",
    [
        lambda logger, _: logger.setLevel(logging.WARNING),
        lambda logger, _: logger.addFilter(lambda _: False),
        lambda _, handler: handler.setLevel(logging.WARNING),
        lambda _, handler: handler.addFilter(lambda _: False),
    ],
    ids=["level of the logger", "filter of the logger", "level of the handler", "filter of the handler"],
)
def test_levels_and_filters_apply_to_events(
    change: Callable[[logging.Logger, BackgroundHandler], object],
) -> None:
    """As to records."""
    stream = io.StringIO()
    with logging_to(stream) as (logger, handler):
        change(logger, handler)
        log_event(logger, "filtered", {})
    for log_filter in [*logger.filters]:
        logger.removeFilter(log_filter)

    assert not stream.getvalue()


def test_an_event_is_plain_text_with_a_plain_formatter() -> None:
    """With the formatter of the handler."""
    stream = io.StringIO()
    with logging_to(stream) as (logger, handler):
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s, %(rules)s"))
        log_event(logger, "allow", {"rules": ["a"]})

    assert "INFO allow, ['a']\n" == stream.getvalue()


def test_a_record_of_an_exception_has_its_traceback() -> None:
    """In one field."""
    made = record("failed", level=logging.ERROR)
    made.exc_info = (ValueError, ValueError("of a bug"), None)

    assert json.loads(JsonFormatter().format(made))["exc_info"].endswith("ValueError: of a bug")


def test_a_name_that_is_not_valid_text_is_logged() -> None:
    """A file name may not be UTF-8; Python reads it as lone surrogates."""
    assert "rules/\udcff" == json.loads(JsonFormatter().format(record("rules/\udcff")))["message"]


def test_a_repeated_warning_passes_once_a_minute() -> None:
    """The next one says how many were suppressed; other warnings and errors pass."""
    rate_limit = RateLimitFilter()
    passed = []
    for second, message, level in (
        (0, "not HTTP", logging.WARNING),
        (1, "not HTTP", logging.WARNING),
        (2, "no upgrade", logging.WARNING),
        (3, "a bug", logging.ERROR),
        (4, "a bug", logging.ERROR),
        (59, "not HTTP", logging.WARNING),
        (60, "not HTTP", logging.WARNING),
        (120, "not HTTP", logging.WARNING),
    ):
        made = record(message, level=level)
        made.created = 1e9 + second
        if rate_limit.filter(made):
            passed.append((second, made.getMessage()))

    assert [
        (0, "not HTTP"),
        (2, "no upgrade"),
        (3, "a bug"),
        (4, "a bug"),
        (60, "not HTTP (2 more since the last)"),
        (120, "not HTTP"),
    ] == passed


def test_logging_does_not_wait_for_a_reader_that_hangs() -> None:
    """Lines are dropped instead, and counted; the others are complete."""
    before = dropped()
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        handler = BackgroundHandler(stream)
        for _ in range(MANY):
            handler.handle(record(LINE.rstrip()))
        lost = dropped() - before
        with os.fdopen(reader) as read:
            taken = [read.readline() for _ in range(MANY - int(lost))]
        handler.close()

    assert 0 < lost < MANY
    assert {LINE} == set(taken)
