"""Logs never hold up what is logged, and no client fills a disk with them."""

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
from webhook.telemetry.logs import BackgroundHandler, JsonFormatter, RateLimitFilter, tell

# Lines; more than a pipe and all that waits take, and what a busy gate says in ten seconds.
MANY = 20_000
LINE = f"{'x' * 99}\n"


def dropped() -> float:
    """Return how many lines were dropped so far."""
    return metrics.REGISTRY.get_sample_value("gpugate_log_lines_dropped_total") or 0.0


def record(message: str, *args: object, level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    """Return a record; extra: what `extra` gives it."""
    made = logging.LogRecord("gpugate", level, "", 0, message, args, None)
    vars(made).update(extra)
    return made


def test_what_is_written_is_there_when_the_program_ends() -> None:
    """In its order, formatted at once or later."""
    stream = io.StringIO()
    aside = BackgroundHandler(stream)
    for number, level in enumerate((logging.INFO, logging.WARNING, logging.INFO)):
        aside.handle(record("line %s", number, level=level))
    aside.close()

    assert "line 0\nline 1\nline 2\n" == stream.getvalue()


def test_a_program_that_ends_writes_its_last_line() -> None:
    """Though lines gather for a while."""
    program = (
        "import logging, webhook.telemetry.logs as w; w.configure_logs(plain=False); logging.info('the last')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)

    assert "the last" == json.loads(done.stderr)["message"]


def test_a_line_that_cannot_be_formatted_costs_itself_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """The program hears of it as from any handler, and later lines are written."""
    stream = io.StringIO()
    aside = BackgroundHandler(stream)
    aside.handle(record("%d", "no number"))
    aside.handle(record("next"))
    aside.close()

    assert "next\n" == stream.getvalue()
    assert "Logging error" in capsys.readouterr().err


class _Error(Exception):
    """Weakly referable, which those built in are not."""


def test_an_error_that_is_logged_is_not_kept_until_it_is_read() -> None:
    """It holds on to the frames that it passed, and they to a request's body."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream, os.fdopen(reader) as read:
        aside = BackgroundHandler(stream)
        aside.handle(record("x" * 2**20))  # more than a pipe takes
        error = _Error("of a request")
        seen = weakref.ref(error)
        aside.handle(record("failed: %s", error, level=logging.WARNING))
        del error
        gc.collect()
        kept = seen() is not None
        taken = [read.readline() for _ in range(2)]
        aside.close()

    assert not kept
    assert "failed: of a request\n" == taken[1]


def test_a_record_is_an_object_in_one_line_with_what_it_was_given() -> None:
    """Time, level, logger and message, then the fields of `extra` in their order."""
    made = record("%s\nPod", "allow", rules=["a"], violations={"warn": ["b"]}, dryRun=False, odd=Path("a"))
    line = JsonFormatter().format(made)
    fields = json.loads(line)

    assert "\n" not in line
    assert ["time", "level", "logger", "message", "rules", "violations", "dryRun", "odd"] == list(fields)
    assert ("INFO", "gpugate", "allow\nPod", ["a"], "a") == tuple(
        fields[name] for name in ("level", "logger", "message", "rules", "odd")
    )


def test_a_line_tells_the_time_as_the_standard_library_does() -> None:
    """To the millisecond; what a second is called is not kept for the next."""
    formatter = JsonFormatter()
    for created in (0.0, 1e9, 1e9 + 0.25, 1e9 + 1, 1e9 + 0.9996):
        made = record("x")
        made.created, made.msecs = created, int(created % 1 * 1000)

        assert logging.Formatter().formatTime(made) == json.loads(formatter.format(made))["time"]


@contextmanager
def logging_to(stream: io.StringIO) -> Iterator[tuple[logging.Logger, BackgroundHandler]]:
    """Yield a logger and its only handler; what was logged is written when the block ends."""
    aside = BackgroundHandler(stream)
    aside.setFormatter(JsonFormatter())
    parent = logging.getLogger("told")
    parent.propagate = False
    parent.addHandler(aside)
    logger = parent.getChild("child")
    logger.setLevel(logging.INFO)
    yield logger, aside
    aside.close()
    parent.removeHandler(aside)
    parent.propagate = True


def test_information_is_the_same_line_with_a_record_and_without() -> None:
    """But for the time; `logger.info` makes a record."""
    stream = io.StringIO()
    facts = {"rules": ["a"], "dryRun": False, "object": "\ud800", "odd": Path("a")}
    with logging_to(stream) as (logger, _):
        tell(logger, "allow 100% of\nPod", facts)
        logger.info("allow 100%% of\n%s", "Pod", extra=facts)
    told, recorded = (list(json.loads(line).items()) for line in stream.getvalue().splitlines())

    assert ["time", "level", "logger", "message"] == [name for name, _ in told[:4]]
    assert recorded[1:] == told[1:]


class _Listening(logging.Handler):
    """Keeps the records that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append((record.getMessage(), vars(record)["rules"]))


def test_whoever_listens_beside_gets_a_record() -> None:
    """And the line is written all the same."""
    stream, listening = io.StringIO(), _Listening()
    above = logging.getLogger("told")
    with logging_to(stream) as (logger, _):
        tell(logger, "unheard", {"rules": []})
        above.addHandler(listening)
        tell(logger, "100%", {"rules": ["a"]})
        above.removeHandler(listening)
        tell(logger, "unheard again", {"rules": []})

    assert [("100%", ["a"])] == listening.heard
    assert 3 == len(stream.getvalue().splitlines())


@pytest.mark.parametrize(
    "change",
    [
        lambda logger, _: logger.setLevel(logging.WARNING),
        lambda logger, _: logger.addFilter(lambda _: False),
        lambda _, aside: aside.setLevel(logging.WARNING),
        lambda _, aside: aside.addFilter(lambda _: False),
    ],
    ids=["level of the logger", "filter of the logger", "level of the handler", "filter of the handler"],
)
def test_what_nobody_wants_is_not_told(change: Callable[[logging.Logger, BackgroundHandler], object]) -> None:
    """As with a record."""
    stream = io.StringIO()
    with logging_to(stream) as (logger, aside):
        change(logger, aside)
        tell(logger, "unwanted", {})
    for each in [*logger.filters]:
        logger.removeFilter(each)

    assert not stream.getvalue()


def test_what_is_told_is_plain_text_where_that_is_wanted() -> None:
    """By whatever the handler formats with."""
    stream = io.StringIO()
    with logging_to(stream) as (logger, aside):
        aside.setFormatter(logging.Formatter("%(levelname)s %(message)s, %(rules)s"))
        tell(logger, "allow", {"rules": ["a"]})

    assert "INFO allow, ['a']\n" == stream.getvalue()


def test_a_record_of_an_exception_has_its_traceback() -> None:
    """As one field."""
    made = record("failed", level=logging.ERROR)
    made.exc_info = (ValueError, ValueError("of a bug"), None)

    assert json.loads(JsonFormatter().format(made))["exc_info"].endswith("ValueError: of a bug")


def test_a_name_that_is_no_text_is_logged_all_the_same() -> None:
    """A file's name need not be UTF-8; Python reads it as half surrogates."""
    assert "rules/\udcff" == json.loads(JsonFormatter().format(record("rules/\udcff")))["message"]


def test_a_warning_that_is_said_again_and_again_passes_once_a_minute() -> None:
    """The next says how many were held back; other words and errors pass."""
    seldom = RateLimitFilter()
    told = []
    for second, message, level in (
        (0, "no HTTP", logging.WARNING),
        (1, "no HTTP", logging.WARNING),
        (2, "no upgrade", logging.WARNING),
        (3, "a bug", logging.ERROR),
        (4, "a bug", logging.ERROR),
        (59, "no HTTP", logging.WARNING),
        (60, "no HTTP", logging.WARNING),
        (120, "no HTTP", logging.WARNING),
    ):
        made = record(message, level=level)
        made.created = 1e9 + second
        if seldom.filter(made):
            told.append((second, made.getMessage()))

    assert [
        (0, "no HTTP"),
        (2, "no upgrade"),
        (3, "a bug"),
        (4, "a bug"),
        (60, "no HTTP (2 more since the last)"),
        (120, "no HTTP"),
    ] == told


def test_nobody_waits_for_a_reader_that_stands_still() -> None:
    """Lines are dropped instead, and counted; what was taken is whole."""
    before = dropped()
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        aside = BackgroundHandler(stream)
        for _ in range(MANY):
            aside.handle(record(LINE.rstrip()))
        lost = dropped() - before
        with os.fdopen(reader) as read:
            taken = [read.readline() for _ in range(MANY - int(lost))]
        aside.close()

    assert 0 < lost < MANY
    assert {LINE} == set(taken)
