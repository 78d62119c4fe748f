"""Webhook configuration sync: a change of the rules is written immediately."""

from __future__ import annotations

import time

import pytest

import webhook.cluster.webhook_configuration
from tests.support.builders import loaded, resource_rule
from tests.support.memory import CONFIGURATIONS, Memory, with_configurations
from tests.support.serving import wait_for
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.webhook_configuration import WebhookConfigurationSync


def is_selected(memory: Memory, resource: str) -> bool:
    """Return whether the conditions of both configurations name a resource."""
    return all(resource in str(memory.objects[path]["webhooks"]) for path in CONFIGURATIONS)


def started() -> tuple[Memory, AdmissionHandler, WebhookConfigurationSync]:
    """Return the configurations, a handler with one rule, and the sync that has written its resource."""
    memory = with_configurations()
    handler = AdmissionHandler(loaded(resource_rule("vendor.com/device")))
    sync = WebhookConfigurationSync(memory, handler)
    sync.start()
    wait_for(lambda: is_selected(memory, "vendor.com/device"))
    return memory, handler, sync


def test_a_change_of_the_rules_is_written_without_waiting_for_the_next_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Objects that are not selected are not validated."""
    monkeypatch.setattr(webhook.cluster.webhook_configuration, "CHECK_INTERVAL", 3600)
    memory, handler, sync = started()
    handler.set_rules(loaded(resource_rule("vendor.com/other")))
    wait_for(lambda: is_selected(memory, "vendor.com/other"))
    sync.stop()


def test_rules_that_change_one_after_the_other_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server compiles the whole condition again after each write."""
    monkeypatch.setattr(webhook.cluster.webhook_configuration, "COOLDOWN", 0.2)
    begun = time.monotonic()
    memory, handler, sync = started()
    for number in range(20):
        handler.set_rules(loaded(resource_rule(f"vendor.com/device-{number}")))
        time.sleep(0.005)  # the time that kubectl takes for each
    wait_for(lambda: is_selected(memory, "vendor.com/device-19"))
    sync.stop()
    writes = [call for call in memory.calls if call.startswith("PATCH")]

    checks = 2 + (time.monotonic() - begun) / 0.2
    assert len(writes) <= len(CONFIGURATIONS) * checks
