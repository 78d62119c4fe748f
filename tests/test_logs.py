"""Logs never hold up what is logged."""

from __future__ import annotations

import io
import os

from webhook import metrics
from webhook.logs import Aside

# Lines; more than a pipe and all that waits take, and what a busy gate says in ten seconds.
MANY = 20_000
LINE = f"{'x' * 99}\n"


def dropped() -> float:
    """Return how many lines were dropped so far."""
    return metrics.REGISTRY.get_sample_value("gpugate_log_lines_dropped_total") or 0.0


def test_what_is_written_is_there_when_the_program_ends() -> None:
    """In its order."""
    stream = io.StringIO()
    aside = Aside(stream)
    for line in ("one\n", "two\n"):
        aside.write(line)
    aside.close()

    assert "one\ntwo\n" == stream.getvalue()


def test_nobody_waits_for_a_reader_that_stands_still() -> None:
    """Lines are dropped instead, and counted; what was taken is whole."""
    before = dropped()
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        aside = Aside(stream)
        for _ in range(MANY):
            aside.write(LINE)
        lost = dropped() - before
        with os.fdopen(reader) as read:
            taken = [read.readline() for _ in range(MANY - int(lost))]
        aside.close()

    assert 0 < lost < MANY
    assert {LINE} == set(taken)
