"""Reflector: it yields a list and all changes, whatever the API server and the network do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from prometheus_client import CollectorRegistry

from tests.support.fake_api import FakeApi, running
from webhook.cluster import client
from webhook.cluster.client import ClusterApi, ClusterError
from webhook.cluster.inventory_sync import Node
from webhook.cluster.reflector import LONGEST_PAUSE_S, Applied, Change, Deleted, Listed, Reflector
from webhook.cluster.resource import Resource
from webhook.telemetry import metrics

NODES = "/api/v1/nodes"
ALL = Resource("things", NODES)


def thing(name: str, **labels: str) -> dict[str, Any]:
    """Return an object of this name."""
    return {"metadata": {"name": name, "labels": labels}, "spec": {"much": "else"}}


def names(change: Change) -> tuple[str, list[str]]:
    """Return the type of a change and the names of its objects."""
    objects = change.objects if isinstance(change, Listed) else [change.object]
    return type(change).__name__, [document["metadata"]["name"] for document in objects]


class Followed:
    """A reflector that runs in the thread of the test; pauses: the requested ones, none of which lasts."""

    def __init__(self, api: ClusterApi, resource: Resource, watch_s: float) -> None:
        self.pauses: list[float] = []
        self.watch = Reflector(api, resource, pause=self.pauses.append, chance=lambda: 1.0, watch_s=watch_s)
        self._changes = self.watch.changes()

    def next(self) -> tuple[str, list[str]]:
        """Wait for the next change."""
        return names(next(self._changes))

    def close(self) -> None:
        """Hang up."""
        self._changes.close()


@contextmanager
def following(
    fake: FakeApi, api: ClusterApi, resource: Resource = ALL, *, watch_s: float = 60
) -> Iterator[Followed]:
    """Run a reflector while the block runs; it has listed `first` and watched `second`."""
    fake.put(resource.path, thing("first"))
    followed = Followed(api, resource, watch_s)
    assert ("Listed", ["first"]) == followed.next()
    fake.put(resource.path, thing("second"))
    assert ("Applied", ["second"]) == followed.next()
    try:
        yield followed
    finally:
        followed.close()


def lists(fake: FakeApi) -> int:
    """Return the number of lists."""
    return sum("watch" not in request.query for request in fake.requests)


def restarts(reason: str) -> float:
    """Return the number of restarts of a watch of things for a reason."""
    registry: CollectorRegistry = metrics.REGISTRY
    labels = {"resource": "things", "reason": reason}
    return registry.get_sample_value("gpugate_watch_restarts_total", labels) or 0.0


def test_existing_objects_are_listed_and_then_changes_follow() -> None:
    """In the order of the API server."""
    fake = FakeApi()
    with running(fake) as api, following(fake, api) as followed:
        fake.put(NODES, thing("first", changed="yes"))
        fake.delete(NODES, "second")

        assert [("Applied", ["first"]), ("Deleted", ["second"])] == [followed.next(), followed.next()]


def test_a_long_list_is_read_page_by_page() -> None:
    """And yielded as one change."""
    fake = FakeApi(page=2)
    for number in range(5):
        fake.put(NODES, thing(f"node-{number}"))
    with running(fake) as api:
        followed = Followed(api, ALL, 60)
        event = followed.next()
        followed.close()

    assert ("Listed", [f"node-{number}" for number in range(5)]) == event
    assert [None, "2", "4"] == [request.query.get("continue") for request in fake.requests]
    assert {"500"} == {request.query["limit"] for request in fake.requests}


def test_an_object_that_loses_the_selected_label_is_deleted() -> None:
    """It still exists for other watches."""
    fake = FakeApi()
    fake.put(NODES, thing("other"))
    fake.put(NODES, thing("mine", team="a"))
    with running(fake) as api:
        followed = Followed(api, Resource("things", NODES, "team=a"), 60)
        first = followed.next()
        fake.put(NODES, thing("mine", team="b"))
        then = followed.next()
        followed.close()

    assert (("Listed", ["mine"]), ("Deleted", ["mine"])) == (first, then)


def test_only_the_relevant_part_of_a_node_is_decoded() -> None:
    """Ten thousand of them are in memory for a moment."""
    fake = FakeApi()
    status = {"allocatable": {"cpu": "8"}, "images": [{"names": ["much"]}]}
    fake.put(NODES, thing("node", zone="a") | {"status": status})
    with running(fake) as api:
        changes = Reflector(api, Resource("things", NODES, shape=Node)).changes()
        listed = next(changes)
        fake.put(NODES, thing("node", zone="b") | {"status": status})
        applied = next(changes)
        changes.close()

    metadata = {"name": "node", "resourceVersion": "1", "labels": {"zone": "a"}}
    part = {"spec": {}, "status": {"allocatable": {"cpu": "8"}}}
    assert Listed([{"metadata": metadata, **part}]) == listed
    metadata = {"name": "node", "resourceVersion": "2", "labels": {"zone": "b"}}
    assert Applied({"metadata": metadata, **part}) == applied


def test_a_watch_that_ends_resumes_without_a_pause() -> None:
    """The API server ends each after some minutes."""
    fake = FakeApi()
    before = restarts("ended")
    with running(fake) as api, following(fake, api) as followed:
        fake.watches("end")
        fake.put(NODES, thing("third"))
        third = followed.next()

        assert (("Applied", ["third"]), 1, []) == (third, lists(fake), followed.pauses)
        assert before + 1 == restarts("ended")


@pytest.mark.parametrize(("action", "reason"), [("cut", "cut"), ("stall", "stalled")])
def test_a_watch_that_breaks_or_stalls_resumes(action: str, reason: str) -> None:
    """Nothing is missed and nothing is listed again."""
    fake = FakeApi()
    before = restarts(reason)
    with running(fake) as api, following(fake, api, watch_s=0.2) as followed:
        fake.watches(action)
        fake.put(NODES, thing("third"))
        third = followed.next()

        assert (("Applied", ["third"]), 1, [0.5]) == (third, lists(fake), followed.pauses)
        assert before + 1 == restarts(reason)


def test_a_watch_resumes_at_a_bookmark() -> None:
    """Without a change of a selected object, an older resourceVersion may expire."""
    fake = FakeApi()
    with running(fake) as api, following(fake, api) as followed:
        fake.put("/elsewhere", thing("other"))
        fake.watches("bookmark")
        fake.watches("end")
        fake.compact()
        fake.put(NODES, thing("third"))
        third = followed.next()

        assert (("Applied", ["third"]), 1, "3") == (
            third,
            lists(fake),
            fake.requests[-1].query["resourceVersion"],
        )


def test_an_expired_resource_version_causes_a_list() -> None:
    """410 Gone is the response to a watch, after the connection broke."""
    fake = FakeApi()
    with running(fake) as api, following(fake, api) as followed:
        fake.watches("cut")
        fake.delete(NODES, "first")
        fake.compact()

        assert (("Listed", ["second"]), 2) == (followed.next(), lists(fake))


@pytest.mark.parametrize(("action", "reason"), [("expire", "expired"), ("garble", "garbled")])
def test_an_expired_or_garbled_event_causes_a_list(action: str, reason: str) -> None:
    """410 Gone as an event; the page of a proxy."""
    fake = FakeApi()
    before = restarts(reason)
    with running(fake) as api, following(fake, api) as followed:
        fake.watches(action)

        assert (("Listed", ["first", "second"]), [0.5]) == (followed.next(), followed.pauses)
        assert before + 1 == restarts(reason)


def test_a_watch_without_any_event_causes_a_list() -> None:
    """After a restore of etcd our resourceVersion is too new, and its watch never sends an event."""
    fake = FakeApi()

    def end_the_next() -> None:
        fake.until(lambda: fake.opened == 2)
        fake.watches("end")

    with running(fake) as api, following(fake, api) as followed:
        fake.restore(1)
        fake.watches("end")
        threading.Thread(target=end_the_next).start()

        assert (("Listed", ["first", "second"]), 2) == (followed.next(), lists(fake))
        assert [1] == followed.pauses


def test_a_watch_without_events_is_no_failure_and_does_not_lengthen_pauses() -> None:
    """A cluster may be idle for hours; the next edit must not wait."""
    fake = FakeApi()

    def end_each() -> None:
        for number in range(5):
            fake.until(lambda: fake.opened == number + 1)  # noqa: B023 - over before it changes
            fake.watches("end")

    with running(fake) as api:
        threading.Thread(target=end_each).start()
        followed = Followed(api, ALL, 60)
        changes = [followed.next() for _ in range(6)]
        followed.close()

    assert ([("Listed", [])] * 6, [1] * 5) == (changes, followed.pauses)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_after_an_overload_the_watch_resumes_without_a_list(status: int) -> None:
    """A list of all nodes would increase the load."""
    fake = FakeApi()
    with running(fake) as api, following(fake, api) as followed:
        fake.refusals += [status] * 3
        fake.watches("end")
        fake.put(NODES, thing("third"))
        third = followed.next()

        assert (("Applied", ["third"]), 1, [1, 2, 4]) == (third, lists(fake), followed.pauses)


def test_a_forbidden_request_is_retried_with_growing_pauses() -> None:
    """RBAC may be fixed."""
    fake = FakeApi(refusals=[403] * 8)
    fake.put(NODES, thing("first"))
    with running(fake) as api:
        followed = Followed(api, ALL, 60)
        first = followed.next()
        followed.close()

    assert (("Listed", ["first"]), [1, 2, 4, 8, 16, 30, 30, 30]) == (first, followed.pauses)


def test_a_watch_recovers_from_a_long_outage() -> None:
    """Pauses stay below half a minute, however long the API server is unreachable."""
    fake = FakeApi()
    with running(fake) as api:
        fake.put(NODES, thing("first"))
    pauses: list[float] = []
    back: list[Any] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1100:
            back.append(running(fake))
            back[0].__enter__()

    changes = Reflector(api, ALL, pause=pause, chance=lambda: 0.0).changes()
    node_names = names(next(changes))
    changes.close()
    back[0].__exit__(None, None, None)
    api.close()

    assert ("Listed", ["first"]) == node_names
    assert ([0.5, 1, 2, 4, 8, 15], LONGEST_PAUSE_S / 2) == (pauses[:6], max(pauses))


def test_pauses_of_several_watches_differ() -> None:
    """So that they do not all retry at the same time."""
    fake = FakeApi(refusals=[503] * 3)
    pauses: list[float] = []
    with running(fake) as api:
        chances = iter([0.0, 0.5, 1.0, 0.5])
        changes = Reflector(api, ALL, pause=pauses.append, chance=lambda: next(chances)).changes()
        next(changes)

    assert [0.5, 1.5, 4.0] == pauses


def test_each_request_uses_the_current_token() -> None:
    """Tokens of a pod rotate."""
    fake = FakeApi()
    tokens = iter(f"Bearer {number}" for number in range(10))

    def renew(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = next(tokens)

    with running(fake) as api:
        renew(api.client.configuration)
        api.client.configuration.refresh_api_key_hook = renew
        with following(fake, api) as followed:
            fake.watches("end")
            fake.put(NODES, thing("third"))
            followed.next()

    assert ["Bearer 1", "Bearer 2", "Bearer 3"] == [request.token for request in fake.requests]


def test_an_unreadable_token_is_retried() -> None:
    """The kubelet replaces the file."""
    fake = FakeApi()
    tries = iter(range(10))

    def renew(_: Configuration) -> None:
        if next(tries) == 0:
            raise FileNotFoundError

    with running(fake) as api:
        api.client.configuration.api_key["BearerToken"] = "Bearer 0"
        api.client.configuration.refresh_api_key_hook = renew
        followed = Followed(api, ALL, 60)

        assert (("Listed", []), [1]) == (followed.next(), followed.pauses)
        followed.close()


def test_an_idle_watch_stops_immediately() -> None:
    """It waits neither for the end of the stream nor for a pause."""
    fake = FakeApi()
    heard: list[Change] = []
    with running(fake) as api:
        idle = Reflector(api, ALL)
        idle.start(heard.append)
        fake.until(lambda: fake.opened == 1)
        (thread,) = _threads()
        idle.stop()
        thread.join(1)

        assert (False, 1) == (thread.is_alive(), len(heard))
    paused = Reflector(api, ALL)
    paused.start(heard.append)
    (thread,) = _threads()
    paused.stop()
    thread.join(1)

    assert not thread.is_alive()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "watch things"]


def test_a_bug_in_the_consumer_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reports it; after a pause, all objects are listed again."""
    fake = FakeApi()
    fake.put(NODES, thing("first"))
    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda thrown: reported.append(str(thrown.exc_value)))
    pauses: list[float] = []
    changes: list[tuple[str, list[str]]] = []
    with running(fake) as api:

        def consume(change: Change) -> None:
            changes.append(names(change))
            if len(changes) == 1:
                raise RuntimeError("a bug")

        watch = Reflector(api, ALL, pause=pauses.append)
        watch.start(consume)
        fake.until(lambda: fake.opened == 1)
        watch.stop()
        for thread in _threads():
            thread.join(1)

    assert ([("Listed", ["first"])] * 2, [0, LONGEST_PAUSE_S]) == (changes, pauses)
    assert ["a bug"] == reported


def test_a_watch_continues_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not need a new thread to recover from a shortage of memory or processes."""
    fake = FakeApi()
    fake.put(NODES, thing("first"))
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    threads: list[threading.Thread] = []
    with running(fake) as api:

        def consume(_: Change) -> None:
            threads.append(threading.current_thread())
            if len(threads) == 1:
                raise MemoryError

        watch = Reflector(api, ALL, pause=lambda _: None)
        watch.start(consume)
        fake.until(lambda: fake.opened == 1)
        watch.stop()
        for thread in _threads():
            thread.join(1)

    assert 2 == len(threads)
    assert 1 == len(set(threads))


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    """Its token, its CA, and the address in its environment."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text("PEM")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    api = ClusterApi.in_cluster(tmp_path, environ)
    assert api is not None
    configuration = api.client.configuration

    assert "https://[fd00::1]:443" == configuration.host
    assert "bearer secret" == configuration.auth_settings()["BearerToken"]["value"]
    assert str(tmp_path / "ca.crt") == configuration.ssl_ca_cert


def test_outside_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    """This is no error; a service account without an address is."""
    assert ClusterApi.in_cluster(tmp_path, {}) is None
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")

    with pytest.raises(ClusterError, match="check the service account of this pod"):
        ClusterApi.in_cluster(tmp_path, {})


def test_a_deleted_object_is_yielded_in_its_last_state() -> None:
    """With its last labels."""
    fake = FakeApi()
    with running(fake) as api:
        fake.put(NODES, thing("node", zone="a"))
        changes = Reflector(api, ALL).changes()
        next(changes)
        fake.delete(NODES, "node")
        deleted = next(changes)
        changes.close()

    assert isinstance(deleted, Deleted)
    assert {"zone": "a"} == deleted.object["metadata"]["labels"]


@pytest.mark.parametrize(
    "found",
    [{}, {"metadata": None}, {"metadata": {"name": "a"}}, {"metadata": {"name": 1, "resourceVersion": "1"}}],
)
def test_a_list_with_an_invalid_object_is_retried(
    found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not yielded: JSON of a proxy would replace all objects."""
    fake = FakeApi()
    fake.put(NODES, thing("first"))
    original, answers = fake.listed, [{"metadata": {"resourceVersion": "1"}, "items": [found]}]
    monkeypatch.setattr(
        fake, "listed", lambda request: (200, answers.pop()) if answers else original(request)
    )
    before = restarts("garbled")
    with running(fake) as api:
        followed = Followed(api, ALL, 60)
        changes = followed.next()
        followed.close()

    assert (("Listed", ["first"]), 1.0) == (changes, restarts("garbled") - before)


def test_a_list_without_a_resource_version_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server sends one, even for an empty list."""
    fake = FakeApi()
    fake.put(NODES, thing("first"))
    original = fake.listed
    answers: list[dict[str, Any]] = [{"metadata": {}, "items": []}]
    monkeypatch.setattr(
        fake, "listed", lambda request: (200, answers.pop()) if answers else original(request)
    )
    with running(fake) as api:
        followed = Followed(api, ALL, 60)
        changes = followed.next()
        followed.close()

    assert ("Listed", ["first"]) == changes


@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
def test_an_event_with_an_invalid_object_causes_a_list(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like an event that cannot be decoded."""
    fake = FakeApi()
    with running(fake) as api, following(fake, api) as followed:
        line = json.dumps({"type": kind, "object": {"metadata": {"labels": {}}}}).encode() + b"\n"
        monkeypatch.setattr(fake, "lines", lambda _: iter([line]))
        fake.watches("end")

        assert ("Listed", ["first", "second"]) == followed.next()


def test_the_next_request_uses_a_replaced_token(tmp_path: Path) -> None:
    """Independent of the clock, which may jump: an expired token would stay in use."""
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("old")
    api = ClusterApi.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"})
    assert api is not None
    (tmp_path / "token").write_text("new")

    assert "bearer new" == api.client.configuration.auth_settings()["BearerToken"]["value"]
    (tmp_path / "token").write_text("")
    with pytest.raises(ConfigException, match="empty"):
        api.client.configuration.auth_settings()


@pytest.mark.parametrize("status", [403, 404])
def test_a_resource_that_may_be_absent_is_told_so_and_is_no_failure(status: int) -> None:
    """It is asked for again, and counted nowhere."""
    fake, told = FakeApi(refusals=[status] * 3), list[int]()
    fake.put(NODES, thing("first"))
    before = restarts("refused"), restarts("absent")
    with running(fake) as api:
        reflector = Reflector(api, ALL, unavailable=told.append, pause=lambda _: None)
        changes = reflector.changes()
        first = next(changes)
        reflector.stop()
        changes.close()

    assert ("Listed", ["first"]) == names(first)
    assert ([status] * 3, before) == (told, (restarts("refused"), restarts("absent")))


def _served(*groups: str) -> dict[str, Any]:
    """Return the answer of discovery."""
    return {"groups": [{"name": group} for group in groups]}


def _tries(api: ClusterApi, path: str) -> list[int]:
    """Try three times to watch a resource that may be absent; return the status of each try."""
    statuses = list[int]()

    def unavailable(status: int) -> None:
        statuses.append(status)
        if len(statuses) == 3:
            reflector.stop()

    reflector = Reflector(api, Resource("things", path), unavailable=unavailable, pause=lambda _: None)
    assert [] == list(reflector.changes())
    return statuses


def test_an_absent_resource_is_not_listed_while_its_group_is_not_served() -> None:
    """The groups are read instead, once for all absent resources."""
    paths = ["/apis/one.example.com/v1/things", "/apis/other.example.com/v1/things"]
    fake = FakeApi(statuses=dict.fromkeys(paths, 404))
    fake.discovery["/apis"] = _served("apps")
    with running(fake) as api:
        told = [_tries(api, path) for path in paths]

    assert [[404] * 3] * 2 == told
    assert [paths[0], "/apis", paths[1]] == [request.path for request in fake.requests]


@pytest.mark.parametrize("served", [_served("example.com"), None])
def test_an_absent_resource_is_listed_once_its_group_is_served(
    served: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And also if the groups may not be read."""
    monkeypatch.setattr(client, "_GROUPS_S", -1.0)
    path = "/apis/example.com/v1/things"
    fake = FakeApi(refusals=[404])
    if served:
        fake.discovery["/apis"] = served
    fake.put(path, thing("first"))
    with running(fake) as api:
        resource = Resource("things", path)
        changes = Reflector(api, resource, unavailable=lambda _: None, pause=lambda _: None).changes()
        first = next(changes)
        changes.close()

    assert ("Listed", ["first"]) == names(first)


def test_a_resource_that_goes_away_is_logged_once_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """Also if its watch ends without an event before."""
    caplog.set_level("INFO", "gpugate.cluster")
    fake = FakeApi()

    def go_away(opened: int) -> None:
        fake.until(lambda: fake.opened == opened)
        fake.refusals += [404] * 3
        fake.watches("end")

    def go_away_twice() -> None:
        go_away(1)
        go_away(2)

    with running(fake) as api:
        reflector = Reflector(api, ALL, unavailable=lambda _: None, pause=lambda _: None)
        changes = reflector.changes()
        threading.Thread(target=go_away_twice).start()
        lists = [next(changes) for _ in range(3)]
        reflector.stop()
        changes.close()

    assert [Listed([])] * 3 == lists
    assert 2 == sum("watch of things absent, 404" in record.message for record in caplog.records)


def test_an_api_server_that_cannot_be_reached_is_logged_in_one_plain_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As kubectl words it, without the classes of the client's library."""
    api = ClusterApi(Configuration(host="http://127.0.0.1:1"))
    reflector = Reflector(api, ALL, pause=lambda _: reflector.stop())
    changes = list(reflector.changes())
    api.close()
    (message,) = (record.message for record in caplog.records)

    assert [] == changes
    refused = "watch of things away, dial tcp 127.0.0.1:1: connect: connection refused; retrying in "
    assert message.startswith(refused)


def test_where_the_newest_version_is_not_served_an_older_one_is_listed_and_watched() -> None:
    """As on an older cluster."""
    newest, older = "/apis/example.com/v2/things", "/apis/example.com/v1/things"
    fake = FakeApi(statuses={newest: 404})
    fake.put(older, thing("first"))
    with running(fake) as api:
        reflector = Reflector(api, Resource("things", newest, others=(older,)), pause=lambda _: None)
        changes = reflector.changes()
        first = next(changes)
        fake.put(older, thing("second"))
        second = next(changes)
        reflector.stop()
        changes.close()

    assert [("Listed", ["first"]), ("Applied", ["second"])] == [names(first), names(second)]


def test_objects_are_selected_by_their_fields() -> None:
    """In the list and in the watch."""
    fake = FakeApi()
    fake.put(NODES, thing("first"))
    with running(fake) as api:
        changes = Reflector(api, Resource("things", NODES, fields="metadata.name=first")).changes()
        next(changes)
        fake.put(NODES, thing("first"))
        next(changes)
        changes.close()

    assert ["metadata.name=first"] * 2 == [request.query["fieldSelector"] for request in fake.requests]
