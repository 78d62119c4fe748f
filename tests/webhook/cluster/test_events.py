"""Events on rule ConfigMaps."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from tests.support.fake_api import FakeApi, Object, running
from webhook.cluster.events import write_rule_event

NAMESPACE = "kube-public"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"


def rule(name: str, number: int = 1) -> Object:
    """Return a rule ConfigMap at a resourceVersion, as far as an Event refers to it."""
    return {"metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": str(number), "uid": "u"}}


def test_an_event_that_cannot_be_written_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """RBAC may forbid it, and the API server may be unavailable."""
    fake = FakeApi(refusals=[403])
    with running(fake) as api, caplog.at_level(logging.WARNING, "gpugate.cluster"):
        write_rule_event(api, rule("cf-crl-a"), "wrong")
    write_rule_event(api, rule("cf-crl-a"), "wrong")
    api.close()

    assert [f"cannot write an Event on cf-crl-a: POST {EVENTS}: 403 refused by the test"] == [
        record.message for record in caplog.records[:1]
    ]
    assert 2 == len(caplog.records)


def test_long_names_and_messages_are_cut_to_the_limits_of_an_event() -> None:
    """In bytes, at a character."""
    fake = FakeApi()
    long = rule("x" * 240 + "." + "y" * 12)
    with running(fake) as api:
        write_rule_event(api, long, "值" * 1000, lambda: datetime(2026, 11, 21, 5, 0, tzinfo=UTC))
    (event,) = fake.objects(EVENTS)

    assert len(event["metadata"]["name"]) <= 253
    assert (1023, True) == (len(event["message"].encode()), event["message"].endswith("值…"))
    assert "2026-11-21T05:00:00Z" == event["firstTimestamp"]


def test_the_same_error_in_a_later_version_is_another_event() -> None:
    """Its author sees it again."""
    fake = FakeApi()
    with running(fake) as api:
        for number in (1, 1, 2):
            write_rule_event(api, rule("cf-crl-a", number), "wrong")

    assert 2 == len(fake.objects(EVENTS))
