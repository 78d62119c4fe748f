"""What keeps the matchConditions writes what changes at once."""

from __future__ import annotations

import pytest

import webhook.cluster.conditions
from tests.build import loaded, resource_rule
from tests.memory import CONFIGURATIONS, Memory, with_configurations
from tests.serving import wait_for
from webhook.cluster.conditions import Conditions
from webhook.gate import Gate


def asks_about(memory: Memory, resource: str) -> bool:
    """Tell whether the conditions of both configurations name a resource."""
    return all(resource in str(memory.objects[path]["webhooks"]) for path in CONFIGURATIONS)


def test_a_change_of_the_rules_is_written_without_waiting_for_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not asked about is not judged."""
    monkeypatch.setattr(webhook.cluster.conditions, "LOOK_INTERVAL", 3600)
    memory = with_configurations()
    gate = Gate(loaded(resource_rule("vendor.com/device")))
    conditions = Conditions(memory, gate)
    conditions.start()
    wait_for(lambda: asks_about(memory, "vendor.com/device"))
    gate.put_rules(loaded(resource_rule("vendor.com/other")))
    wait_for(lambda: asks_about(memory, "vendor.com/other"))
    conditions.stop()
