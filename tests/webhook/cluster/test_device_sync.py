"""Device sync: slices, device classes and claims as they change, and how often a state is made of them."""

from __future__ import annotations

import logging
import threading
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import pytest
from kubernetes.client import Configuration

from rules import Loaded
from rules.nodes.devices.devices import MAX_KINDS
from rules.nodes.devices.slices import ResourceSlice
from rules.nodes.devices.state import CLAIM, DEVICE_CLASS, SLICE, TAINT_RULE, TEMPLATE, DraState
from rules.nodes.label_index import ShardedDict
from tests.support.dra_builders import taint_rule
from tests.support.dra_clusters import (
    DRIVER,
    bare_node,
    claim_template,
    device_class,
    gpu_device,
    gpus_of,
    resource_slice,
)
from tests.support.fake_api import FakeApi, running
from tests.support.inventory_sync import only_nodes
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ClusterApi
from webhook.cluster.device_sync import ClaimMap, DeviceSync, with_claims
from webhook.cluster.inventory_sync import InventorySync
from webhook.cluster.reflector import Applied, Deleted, Listed, Reflector

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"


class Followed:
    """A device sync and the states that it passed on."""

    def __init__(self) -> None:
        self.states: list[DraState] = []
        self.sync = DeviceSync(self.states.append)
        read = self.sync.resources()[SLICE].read
        assert read
        self.read = read

    def listed(self, *slices: dict[str, Any]) -> None:
        """List slices, as the reflector does."""
        self.sync.on_change(SLICE, Listed([self.read(slice_) for slice_ in slices]))

    def applied(self, slice_object: dict[str, Any]) -> None:
        """Change a slice, and have the state made."""
        self.sync.on_change(SLICE, Applied(self.read(slice_object)))
        self.sync.update()

    @property
    def nodes(self) -> dict[str, int]:
        """The number of devices of each node in the last state."""
        by_node = self.states[-1].devices.by_node
        return {name: sum(kinds.values()) for name, kinds in by_node.items()}


def synced() -> tuple[AdmissionHandler, InventorySync]:
    """Return a handler and its inventory sync, without an API server, in a cluster of one node."""
    handler = AdmissionHandler(Loaded())
    sync = InventorySync(ClusterApi(Configuration()), handler)
    only_nodes(sync, bare_node("one"))
    return handler, sync


def test_slices_are_added_changed_and_deleted() -> None:
    """A list replaces them all."""
    followed = Followed()
    followed.listed(gpus_of("one", number=2), gpus_of("two", number=1))
    seen = [followed.nodes]
    followed.applied(gpus_of("three", number=4))
    seen.append(followed.nodes)
    followed.applied(gpus_of("one", number=1))
    seen.append(followed.nodes)
    followed.sync.on_change(SLICE, Deleted(gpus_of("two")))
    followed.sync.update()
    seen.append(followed.nodes)
    followed.listed(gpus_of("four"))

    assert [
        {"one": 2, "two": 1},
        {"one": 2, "two": 1, "three": 4},
        {"one": 1, "two": 1, "three": 4},
        {"one": 1, "three": 4},
    ] == seen
    assert {"four": 8} == followed.nodes


def test_device_classes_are_added_changed_and_deleted() -> None:
    """Resources of nodes follow."""
    followed = Followed()
    followed.listed(gpus_of("one"))
    seen = []
    for change in (
        Listed([device_class()]),
        Applied(device_class("other", resource="example.com/gpu")),
        Applied(device_class(resource=None)),
        Deleted(device_class("other")),
    ):
        followed.sync.on_change(DEVICE_CLASS, change)
        followed.sync.update()
        seen.append({name for name in followed.states[-1].gpu_resources if "deviceclass" not in name})

    assert [{"nvidia.com/gpu"}, {"nvidia.com/gpu", "example.com/gpu"}, {"example.com/gpu"}, set()] == seen


def test_taint_rules_are_added_changed_and_deleted() -> None:
    """The devices that they select follow."""
    followed = Followed()
    followed.listed(gpus_of("one"), gpus_of("two"))
    seen = []
    for change in (
        Listed([taint_rule({"pool": "one"}), taint_rule({}, key="old")]),
        Applied(taint_rule({"pool": "two"})),
        Applied(taint_rule({}, key="old", effect="None")),
        Deleted(taint_rule({"pool": "two"})),
    ):
        followed.sync.on_change(TAINT_RULE, change)
        followed.sync.update()
        by_node = followed.states[-1].devices.by_node
        seen.append(
            {node: sorted(taint.key for taint in next(iter(by_node[node])).taints) for node in by_node}
        )

    both, old = ["broken", "old"], ["old"]
    assert [
        {"one": both, "two": old},
        {"one": old, "two": both},
        {"one": [], "two": ["broken"]},
        {"one": [], "two": []},
    ] == seen


def test_claims_and_templates_are_added_changed_and_deleted_each_kind_by_itself() -> None:
    """A list replaces those of its kind."""
    claims: ClaimMap = ShardedDict()
    seen = []
    for kind, change in (
        (TEMPLATE, Listed([claim_template("a"), claim_template("b")])),
        (CLAIM, Listed([claim_template("a", namespace="other")])),
        (CLAIM, Applied(claim_template("c"))),
        (TEMPLATE, Deleted(claim_template("a"))),
        (TEMPLATE, Listed([])),
    ):
        claims = with_claims(claims, kind, change)
        seen.append(sorted(key for key, _ in claims.items()))
    a, c = (CLAIM, "other", "a"), (CLAIM, "team", "c")
    templates = [(TEMPLATE, "team", name) for name in "ab"]

    assert [templates, [a, *templates], [a, c, *templates], [a, c, templates[1]], [a, c]] == seen


def test_one_state_has_all_changes_since_the_one_before() -> None:
    """A burst of changes makes at most one each second."""
    followed = Followed()
    for number in range(1000):
        followed.sync.on_change(SLICE, Applied(followed.read(gpus_of(f"node-{number}"))))
    followed.sync.update()

    assert [1000] == [len(state.devices.by_node) for state in followed.states]
    assert 1 <= followed.sync._task._cooldown()


def test_of_two_lists_at_the_same_time_none_is_lost() -> None:
    """A state that was begun before a list ended never replaces the one after it."""
    states: list[DraState] = []
    classes: list[threading.Thread] = []

    def set_state(state: DraState) -> None:
        if not classes:  # while the first state is passed on
            listed = Listed([device_class()])
            thread = threading.Thread(target=partial(sync.on_change, DEVICE_CLASS, listed), daemon=True)
            classes.append(thread)
            thread.start()
            thread.join(0.2)
        states.append(state)

    sync = DeviceSync(set_state)
    read = sync.resources()[SLICE].read
    assert read
    sync.on_change(SLICE, Listed([read(gpus_of("one"))]))
    classes[0].join()

    assert ["one"] == list(states[-1].devices.by_node)
    assert [DRIVER] == list(states[-1].classes.by_name)


def test_what_changes_nothing_makes_no_state() -> None:
    """As a list after a broken watch; in clusters without DRA each new attempt to list is one."""
    handler, sync = synced()
    before = handler.snapshot.inventory
    sync.on_unavailable(SLICE, HTTPStatus.NOT_FOUND)
    sync.on_unavailable(DEVICE_CLASS, HTTPStatus.NOT_FOUND)
    assert handler.snapshot.inventory is before
    followed = Followed()
    followed.listed(gpus_of("one"))
    followed.listed(gpus_of("one"))

    assert 1 == len(followed.states)


def test_what_is_unreadable_is_logged_once_and_a_hundred_times_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other slices count."""
    followed = Followed()
    broken = resource_slice("broken", gpu_device("gpu-0", cudaDriverVersion={"string": "13.0"}))
    no_pool = resource_slice("no-pool", gpu_device("gpu-0"))
    no_pool["spec"]["pool"] = {"name": "x"}
    uneven = device_class("uneven", "[1].find(1)")
    with caplog.at_level(logging.WARNING, "gpugate.cluster"):
        for _ in range(2):
            followed.listed(broken, no_pool, gpus_of("one"))
            followed.sync.on_change(DEVICE_CLASS, Listed([uneven]))
        few = [record.getMessage() for record in caplog.records]
        for number in range(200):
            followed.applied(no_pool | {"metadata": {"name": f"no-pool-{number}"}})

    assert [
        f"broken-{DRIVER}: cannot read cudaDriverVersion: '13.0'",
        f"no-pool-{DRIVER}: cannot read spec.pool: \"{{'name': 'x'}}\"",
        "uneven: cannot read spec.selectors: 'the function find is not supported'",
    ] == few
    assert 100 == len(caplog.records)
    assert {"one": 8, "broken": 1} == followed.nodes


def test_kinds_of_devices_that_are_gone_leave_room_for_others() -> None:
    """A watch may last for weeks, in which each driver makes further kinds."""
    followed = Followed()
    followed.listed()
    for number in range(MAX_KINDS + 1):
        device = gpu_device("gpu-0", brand={"string": f"brand {number}"})
        followed.applied(resource_slice("one", device))
    ((kind, _),) = followed.states[-1].devices.by_node["one"].items()

    assert kind.hidden is not None


@pytest.mark.parametrize("kind", [CLAIM, TEMPLATE])
def test_a_kind_that_is_gone_leaves_nothing(kind: str) -> None:
    """As where the API is switched off; what may not be read any more stays."""
    handler, sync = synced()
    seen = []
    sync.on_dra(kind, Listed([claim_template("a")]))
    for status in (HTTPStatus.FORBIDDEN, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.NOT_FOUND):
        sync.on_unavailable(kind, status)
        claims = handler.snapshot.claims
        assert claims is not None
        seen.append(claims.get((kind, "team", "a")) is not None)

    assert [True, True, False] == seen


def test_devices_stay_while_they_cannot_be_read_and_go_with_their_kind() -> None:
    """Nothing that was known is lost by a failure."""
    handler, sync = synced()
    read = sync._devices.resources()[SLICE].read
    assert read
    seen = []
    sync.on_dra(SLICE, Listed([read(gpus_of("one"))]))
    sync.on_dra(DEVICE_CLASS, Listed([device_class()]))
    for status in (HTTPStatus.FORBIDDEN, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.NOT_FOUND):
        sync.on_unavailable(SLICE, status)
        seen.append(handler.snapshot.inventory.nodes_offering("nvidia.com/gpu"))

    assert [1, 1, 0] == seen


def test_of_a_slice_only_what_was_read_is_kept() -> None:
    """Equal devices are one object: 80,000 of them take little memory, in lists and in watches."""
    fake = FakeApi(page=1)
    for name in ("one", "two"):
        fake.put(PATH, gpus_of(name, number=16))
    followed = Followed()
    with running(fake) as api:
        changes = Reflector(api, followed.sync.resources()[SLICE]).changes()
        listed = next(changes)
        fake.put(PATH, gpus_of("three", number=16))
        applied = next(changes)
        changes.close()
    assert isinstance(listed, Listed)
    assert isinstance(applied, Applied)
    kept = [*listed.objects, applied.object]

    assert {"metadata", "read"} == {key for stored in kept for key in stored}
    assert {"name", "resourceVersion"} == {key for stored in kept for key in stored["metadata"]}
    slices: list[ResourceSlice] = [stored["read"] for stored in kept]
    assert 48 == sum(len(slice_.devices) for slice_ in slices)
    assert 1 == len({id(kind) for slice_ in slices for _, kind in slice_.devices})
