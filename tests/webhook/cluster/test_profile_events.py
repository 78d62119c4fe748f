"""Events on node profiles that their present nodes contradict."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.builders import loaded
from tests.support.fake_api import FakeApi, Object, running
from tests.support.node_builders import compatibility_rule, gfd, inventory, node, node_profile
from tests.support.serving import wait_for
from webhook.admission.handler import AdmissionHandler
from webhook.cluster import profile_events
from webhook.cluster.client import ClusterApi
from webhook.cluster.profile_events import ProfileEvents

EVENTS = "/api/v1/namespaces/kube-public/events"


class Gate:
    """A handler whose profile says CUDA 13.0 and whose node says 12.2, with its Events."""

    def __init__(self, api: ClusterApi, *texts: str) -> None:
        rules = loaded(*(texts or (node_profile(cuda="13.0"),)))
        self.handler = AdmissionHandler(rules, inventory=inventory(_node("a", "12.2")))
        self.version = "1"
        self.events = ProfileEvents(api, self.handler, self.config_map)

    def config_map(self, name: str) -> Object | None:
        """Return a ConfigMap, as far as an Event refers to it; there is none named `deleted`."""
        metadata = {"name": name, "namespace": "kube-public", "resourceVersion": self.version, "uid": "u"}
        return None if name == "deleted" else {"metadata": metadata}


def _node(name: str, cuda: str) -> dict[str, Any]:
    return node(name, gfd(cuda, pool="a"))


def _messages(fake: FakeApi) -> list[str]:
    return [event["message"] for event in fake.objects(EVENTS)]


def test_the_event_names_the_fact_and_is_on_the_config_map() -> None:
    """What the profile states, what nodes report, and what to do."""
    fake = FakeApi()
    with running(fake) as api:
        Gate(api).events.check()
    (event,) = fake.objects(EVENTS)

    assert ("Warning", "ProfileDiffers", "profile") == (
        event["type"],
        event["reason"],
        event["involvedObject"]["name"],
    )
    assert (
        "node profile and reality differ: cuda is 13.0 in the profile, but 12.2 on present nodes; correct "
        "the profile, or the labels in its match; `gpugate nodes` names the nodes"
    ) == event["message"]


def test_replicas_nodes_and_restarts_add_no_other_event() -> None:
    """The same difference is the same Event, whichever nodes have it."""
    fake = FakeApi()
    with running(fake) as api:
        one, other = Gate(api), Gate(api)
        for replica in (one, other):
            replica.events.check()
        one.handler.set_inventory(inventory(_node("a", "12.2"), _node("b", "12.2")))
        one.events.check()

    assert 1 == len(_messages(fake))
    assert 2 == sum(request.method == "POST" for request in fake.requests)


def test_another_difference_and_another_version_of_the_profile_are_other_events() -> None:
    """So that its author sees that the new version does not help."""
    fake = FakeApi()
    with running(fake) as api:
        gate = Gate(api)
        gate.events.check()
        gate.handler.set_inventory(inventory(_node("a", "12.2"), _node("b", "12.4")))
        gate.events.check()
        gate.version = "2"
        gate.handler.set_rules(loaded(node_profile(cuda="13.0", product="Tesla-T4")))
        gate.events.check()

    assert 2 == sum("12.2 on" in message for message in _messages(fake))
    assert 2 == sum("12.4 on" in message for message in _messages(fake))


def test_a_profile_that_is_true_disabled_or_deleted_gets_no_event() -> None:
    """Nor does one whose newest version has an error."""
    fake = FakeApi()
    with running(fake) as api:
        Gate(api, node_profile(cuda="12.2")).events.check()
        Gate(api, node_profile(cuda="13.0", enabled="false")).events.check()
        Gate(api, node_profile(name="deleted", cuda="13.0")).events.check()
        stale = Gate(api)
        stale.handler.set_rules(loaded(node_profile(cuda="13.0")), frozenset({"profile"}))
        stale.events.check()

    assert [] == fake.requests


def test_labels_are_read_as_the_rules_define_them() -> None:
    """A rule may read the CUDA version from another label."""
    fake = FakeApi()
    own = compatibility_rule(labels={"cuda": ["example.com/cuda"]})
    with running(fake) as api:
        Gate(api, node_profile(cuda="13.0"), own).events.check()

    assert [] == _messages(fake)


def test_nothing_is_written_before_rules_and_nodes_are_known_or_while_they_stay_the_same() -> None:
    """A check of the same rules and nodes costs nothing."""
    fake = FakeApi()
    with running(fake) as api:
        gate = Gate(api)
        gate.handler.mark_not_ready()
        gate.events.check()
        before = len(fake.requests)
        gate.handler.mark_ready()
        for _ in range(2):
            gate.events.check()

    assert (0, 1) == (before, len(fake.requests))


def test_the_number_of_events_is_limited() -> None:
    """A wrong label of a script may concern every profile."""
    fake = FakeApi()
    profiles = [
        node_profile(name=f"p{number}", cuda="13.0", labelsAtCreation={"pool": str(number)})
        for number in range(25)
    ]
    with running(fake) as api:
        Gate(api, *profiles).events.check()

    assert 20 == len(_messages(fake))


def test_an_event_that_fails_is_written_by_a_later_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server may be away; that is logged once."""
    monkeypatch.setattr(profile_events, "CHECK_INTERVAL", 0.01)
    fake = FakeApi(refusals=[500, 500])
    with running(fake) as api:
        gate = Gate(api)
        gate.events.start()
        wait_for(lambda: len(_messages(fake)) == 1)
        gate.events.stop()

    assert ["cannot write Events on node profiles"] == [
        record.message.partition(":")[0] for record in caplog.records if record.name == "gpugate.cluster"
    ]


def test_it_is_off_without_the_right(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One request, one line in the log."""
    monkeypatch.setattr(profile_events, "CHECK_INTERVAL", 0.01)
    fake = FakeApi(statuses={EVENTS: 403})
    with running(fake) as api:
        gate = Gate(api)
        gate.events.start()
        wait_for(lambda: bool(caplog.records))
        gate.handler.set_inventory(inventory(_node("a", "12.4")))
        wait_for(lambda: "profile events" not in {thread.name for thread in threading.enumerate()})

    assert 1 == len(fake.requests)
