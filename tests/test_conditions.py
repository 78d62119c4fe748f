"""What keeps the matchConditions goes on, whatever it meets."""

from __future__ import annotations

import threading
import time

import pytest

from tests.build import loaded, resource_rule
from tests.memory import CONFIGURATIONS, Memory, with_configurations
from webhook.cluster.conditions import Conditions
from webhook.gate import Gate

# Seconds. It takes some milliseconds.
PATIENCE = 20.0


def asks_about(memory: Memory, resource: str) -> list[bool]:
    """Tell of both configurations whether their condition names a resource."""
    return [resource in str(memory.objects[path]["webhooks"]) for path in CONFIGURATIONS]


def test_a_bug_does_not_end_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reports it; the next change of a rule is written all the same."""
    reported = list[str]()
    monkeypatch.setattr(threading, "excepthook", lambda thrown: reported.append(str(thrown.exc_value)))
    memory = with_configurations()

    def fail(method: str, path: str) -> None:
        del method, path
        memory.before = lambda *_: None
        raise RuntimeError("a bug")

    memory.before = fail
    gate = Gate(loaded(resource_rule("vendor.com/device")))
    conditions = Conditions(memory, gate)
    conditions.start()
    deadline = time.monotonic() + PATIENCE
    while not reported:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    gate.put_rules(loaded(resource_rule("vendor.com/other")))
    while not all(asks_about(memory, "vendor.com/other")):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    conditions.stop()

    assert ["a bug"] == reported
