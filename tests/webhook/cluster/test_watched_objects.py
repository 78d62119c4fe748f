"""Watched objects: read from memory, never older than what was written here, and by requests otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from certs.ca_bundle import KINDS, configuration_path
from certs.kubernetes_api import Conflict, NotFound
from certs.rotation_plan import Plan
from certs.rotator import CertRotator
from certs.store import SecretStore
from tests.support.fake_api import FakeApi, running
from tests.support.memory import CONFIGURATIONS, SECRET, SECRETS, Memory, ca_bundles, with_configurations
from tests.support.serving import wait_for
from webhook.cluster.client import ClusterApi
from webhook.cluster.reflector import Applied, Deleted, Listed
from webhook.cluster.watched_objects import WatchedObjects

PATH = CONFIGURATIONS[0]


def watching(memory: Memory, *paths: str) -> WatchedObjects:
    """Return watched objects whose watches a test plays."""
    return WatchedObjects(cast("ClusterApi", memory), paths)


def reported(objects: WatchedObjects, memory: Memory, path: str = PATH) -> None:
    """Report the newest version of an object."""
    objects.on_change(path, Applied(memory.objects[path]))


def reads(memory: Memory) -> int:
    """Return how many objects were read by requests."""
    return sum(call.startswith("GET ") for call in memory.calls)


def test_an_object_is_read_from_memory_once_its_watch_has_begun() -> None:
    """Before, and if it is not watched, by a request each time."""
    memory = with_configurations()
    objects = watching(memory, PATH)
    before = [objects.get(PATH), objects.get(CONFIGURATIONS[1])]
    requests = reads(memory)
    objects.on_change(PATH, Listed([memory.objects[PATH]]))
    answers = [objects.get(PATH) for _ in range(3)]
    more = reads(memory)
    objects.get(CONFIGURATIONS[1])

    assert (before[0], 2, 2, 3) == (answers[0], requests, more, reads(memory))


@pytest.mark.parametrize("change", [Listed([]), Deleted({"metadata": {"name": "gpugate"}})])
def test_an_object_that_does_not_exist_is_not_found_without_a_request(change: Listed | Deleted) -> None:
    """At the start of its watch, or later."""
    memory = with_configurations()
    objects = watching(memory, PATH)
    objects.on_change(PATH, Listed([memory.objects[PATH]]))
    objects.on_change(PATH, change)
    with pytest.raises(NotFound):
        objects.get(PATH)

    assert 0 == reads(memory)


def test_after_a_write_an_object_is_read_by_requests_until_its_watch_has_reported_it() -> None:
    """Otherwise the writer would decide by a version that it has replaced itself."""
    memory = with_configurations()
    objects = watching(memory, PATH)
    objects.on_change(PATH, Listed([memory.objects[PATH]]))
    objects.patch(PATH, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])
    written = [objects.get(PATH)["metadata"].get("labels") for _ in range(2)]
    requests = reads(memory)
    reported(objects, memory)
    compared, known = objects.get(PATH), objects.get(PATH)

    assert ([{"a": "b"}] * 2, 2) == (written, requests)
    assert ({"a": "b"}, compared, 3) == (known["metadata"]["labels"], known, reads(memory))


def test_after_a_conflict_an_object_is_read_by_requests() -> None:
    """Another replica has written it, and the watch has not reported that yet."""
    memory = with_configurations()
    objects = watching(memory, PATH)
    objects.on_change(PATH, Listed([memory.objects[PATH]]))
    old = objects.get(PATH)
    memory.put(PATH, {**old, "metadata": {"name": "gpugate", "labels": {"a": "b"}}})
    with pytest.raises(Conflict):
        objects.replace(PATH, dict(old))

    assert {"a": "b"} == objects.get(PATH)["metadata"]["labels"]


@pytest.mark.parametrize(("status", "requests"), [(403, 1), (404, 1), (0, 0)])
def test_an_object_whose_watch_is_refused_is_read_by_requests(status: int, requests: int) -> None:
    """As with the rights of an older version; while the API server is away, the last version is known."""
    memory = with_configurations()
    objects = watching(memory, PATH)
    objects.on_change(PATH, Listed([memory.objects[PATH]]))
    objects._on_unavailable(PATH, status)
    objects.get(PATH)

    assert requests == reads(memory)


@pytest.mark.parametrize("has_begun", [True, False])
def test_certificates_are_made_and_trusted_though_no_watch_reports_anything(has_begun: bool) -> None:
    """Four steps, each by what the one before has written."""
    memory = with_configurations()
    objects = watching(memory, SECRET, *map(configuration_path, KINDS))
    if has_begun:
        objects.on_change(SECRET, Listed([]))
        for path in CONFIGURATIONS:
            objects.on_change(path, Listed([memory.objects[path]]))
    store = SecretStore(objects, "gpugate", "gpugate-certs")
    bundle = CertRotator(store, Plan(("gpugate.gpugate.svc",)), objects).reconcile()

    assert {bundle.trusted} == ca_bundles(memory)


def test_only_the_named_object_is_listed_and_watched() -> None:
    """With one request for a list and one for a watch, however often it is read."""
    fake = FakeApi()
    fake.put(SECRETS, {"metadata": {"name": "gpugate-certs"}, "data": {"a": "MQ=="}})
    with running(fake) as api:
        objects = WatchedObjects(api, [SECRET])
        objects.start()
        fake.until(lambda: fake.opened == 1)
        data = _reader(objects)
        before = data()
        fake.put(SECRETS, {"metadata": {"name": "gpugate-certs"}, "data": {"a": "Mg=="}})
        wait_for(lambda: data() == {"a": "Mg=="})
        objects.stop()
    queries = [request.query for request in fake.requests]

    assert {"a": "MQ=="} == before
    assert ["metadata.name=gpugate-certs"] * 2 == [query["fieldSelector"] for query in queries]
    assert [False, True] == ["watch" in query for query in queries]


def _reader(objects: WatchedObjects) -> Callable[[], Any]:
    return lambda: objects.get(SECRET)["data"]
