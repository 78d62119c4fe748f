"""What keeps the matchConditions writes what changes at once."""

from __future__ import annotations

import time

import pytest

import webhook.cluster.webhook_configuration
from tests.support.builders import loaded, resource_rule
from tests.support.memory import CONFIGURATIONS, Memory, with_configurations
from tests.support.serving import wait_for
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.webhook_configuration import Conditions


def asks_about(memory: Memory, resource: str) -> bool:
    """Tell whether the conditions of both configurations name a resource."""
    return all(resource in str(memory.objects[path]["webhooks"]) for path in CONFIGURATIONS)


def started() -> tuple[Memory, AdmissionHandler, Conditions]:
    """Return the configurations, a gate of one rule, and what has written that rule's resource into them."""
    memory = with_configurations()
    gate = AdmissionHandler(loaded(resource_rule("vendor.com/device")))
    conditions = Conditions(memory, gate)
    conditions.start()
    wait_for(lambda: asks_about(memory, "vendor.com/device"))
    return memory, gate, conditions


def test_a_change_of_the_rules_is_written_without_waiting_for_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not asked about is not judged."""
    monkeypatch.setattr(webhook.cluster.webhook_configuration, "LOOK_INTERVAL", 3600)
    memory, gate, conditions = started()
    gate.put_rules(loaded(resource_rule("vendor.com/other")))
    wait_for(lambda: asks_about(memory, "vendor.com/other"))
    conditions.stop()


def test_rules_that_come_one_after_the_other_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each write an API server compiles all of a condition anew."""
    monkeypatch.setattr(webhook.cluster.webhook_configuration, "REST", 0.2)
    begun = time.monotonic()
    memory, gate, conditions = started()
    for number in range(20):
        gate.put_rules(loaded(resource_rule(f"vendor.com/device-{number}")))
        time.sleep(0.005)  # as kubectl takes for each
    wait_for(lambda: asks_about(memory, "vendor.com/device-19"))
    conditions.stop()
    writes = [call for call in memory.calls if call.startswith("PATCH")]

    looks = 2 + (time.monotonic() - begun) / 0.2
    assert 4 <= len(writes) <= len(CONFIGURATIONS) * looks
