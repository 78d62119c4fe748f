"""Inventory sync: changes of nodes and of declared pools in a handler's inventory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from time import monotonic
from typing import Any, Final

import pytest
from kubernetes.client import Configuration

from rules import Loaded, load_rules
from rules.model.decision import Decision
from rules.nodes.gpu_operator import CLUSTER_POLICY
from rules.nodes.pools import AUTOSCALER_STATUS
from tests.support.builders import warning_texts
from tests.support.fact_builders import bundle, facts_config_map, with_gpu
from tests.support.inventory_sync import KINDS
from tests.support.node_builders import (
    A100,
    COMPUTE,
    GPU,
    T4,
    annotated,
    gfd,
    gpu_pod,
    judged,
    node,
    shipped,
    targets,
)
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ClusterApi
from webhook.cluster.inventory_sync import InventorySync
from webhook.cluster.reflector import Applied, Change, Deleted, Listed
from webhook.telemetry.metrics import REGISTRY


def synced(clock: Callable[[], float] = monotonic) -> tuple[AdmissionHandler, InventorySync]:
    """Return a handler and its inventory sync, without an API server."""
    handler = AdmissionHandler(Loaded())
    return handler, InventorySync(ClusterApi(Configuration()), handler, clock)


def test_a_heartbeat_without_a_relevant_change_does_not_replace_the_snapshot() -> None:
    """There is no copy and no swap."""
    handler, sync = synced()
    sync.on_nodes(Listed([node("one", gfd("12.2"))]))
    before = handler.snapshot
    sync.on_nodes(Applied(node("one", gfd("12.2"))))

    assert handler.snapshot is before


def test_nodes_are_added_changed_and_deleted() -> None:
    """A list replaces them all."""
    handler, sync = synced()
    counts = []
    for change in (
        Listed([node("one"), node("two")]),
        Applied(node("three")),
        Deleted(node("one")),
        Listed([node("four")]),
    ):
        sync.on_nodes(change)
        counts.append(sorted(handler.snapshot.inventory.names(handler.snapshot.inventory.everything)))

    assert [["one", "two"], ["one", "three", "two"], ["three", "two"], ["four"]] == counts
    assert 1 == REGISTRY.get_sample_value("gpugate_inventory_nodes")


POOL: Final = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "h100", "resourceVersion": "1"},
    "spec": {"template": {"metadata": {"labels": {"team": "red"}}, "spec": {"requirements": []}}},
}


def declared(handler: AdmissionHandler) -> tuple[set[str], set[str]]:
    """Return the names of the pools in the inventory, and the signs of others."""
    node_pools = handler.snapshot.inventory.node_pools
    return {pool.name for pool in node_pools.pools}, set(node_pools.signs)


def test_pools_are_added_changed_and_deleted_and_stay_when_nodes_change() -> None:
    """Until their kind is gone."""
    handler, sync = synced()
    other = POOL | {"metadata": {"name": "t4", "resourceVersion": "1"}}
    seen = []
    for step in (
        partial(sync.on_declared, "NodePool", Listed([POOL])),
        partial(sync.on_declared, "NodePool", Applied(other)),
        partial(sync.on_nodes, Listed([node("one")])),
        partial(sync.on_declared, "NodePool", Deleted(POOL)),
        partial(sync.on_unavailable, "NodePool", 404),
    ):
        step()
        seen.append(declared(handler)[0])

    assert [{"h100"}, {"h100", "t4"}, {"h100", "t4"}, {"t4"}, set()] == seen


def test_a_status_that_changes_nothing_about_a_pool_does_not_replace_the_snapshot() -> None:
    """Karpenter writes it all the time."""
    handler, sync = synced()
    sync.on_declared("NodePool", Listed([POOL]))
    before = handler.snapshot
    sync.on_declared("NodePool", Applied(POOL | {"status": {"nodes": 3}}))

    assert handler.snapshot is before


@pytest.mark.parametrize(
    ("status", "pools", "signs"),
    [(403, {"h100"}, set()), (404, set(), set()), (500, {"h100"}, set()), (0, {"h100"}, set())],
)
def test_pools_that_cannot_be_read_any_more_stay_in_force_unless_their_kind_is_gone(
    status: int, pools: set[str], signs: set[str]
) -> None:
    """Nothing that was known is lost by a failure."""
    handler, sync = synced()
    sync.on_declared("NodePool", Listed([POOL]))
    sync.on_unavailable("NodePool", status)

    assert (pools, signs) == declared(handler)


@pytest.mark.parametrize(("status", "signs"), [(403, set()), (404, set()), (500, {"NodePool"})])
def test_pools_that_could_never_be_read_may_exist_only_if_the_api_server_fails(
    status: int, signs: set[str]
) -> None:
    """Without the CRD or the right the kind is off."""
    handler, sync = synced()
    sync.on_unavailable("NodePool", status)
    seen = declared(handler)
    sync.on_declared("NodePool", Listed([]))

    assert ((set(), signs), (set(), set())) == (seen, declared(handler))


@pytest.mark.parametrize("status", [403, 404])
def test_a_kind_that_is_off_stays_off_while_the_api_server_does_not_answer(status: int) -> None:
    """A failure changes nothing of what was known."""
    handler, sync = synced()
    for status_code in (500, status, 0, 500, 503):
        sync.on_unavailable("NodePool", status_code)

    assert (set(), set()) == declared(handler)


def test_the_status_of_cluster_autoscaler_is_a_sign_of_nodes_that_are_not_declared() -> None:
    """Unless Cluster API declares its groups."""
    handler, sync = synced()
    name = AUTOSCALER_STATUS.name
    sync.on_declared(name, Listed([]))
    absent = declared(handler)
    sync.on_declared(name, Listed([{"metadata": {"name": name, "resourceVersion": "1"}}]))

    assert ((set(), set()), (set(), {name})) == (absent, declared(handler))


POLICY: Final = {
    "metadata": {"name": "cluster-policy", "resourceVersion": "1"},
    "spec": {"cdi": {"enabled": True}, "toolkit": {"version": "v1.18.0"}},
}
MANAGED: Final = gfd("12.2") | {"nvidia.com/gpu.deploy.container-toolkit": "true"}


def modes(handler: AdmissionHandler) -> set[str]:
    """Return the modes of the container runtimes in the inventory."""
    inventory = handler.snapshot.inventory
    return {
        node_class.capabilities.runtime.mode.value for node_class in inventory.classes(inventory.everything)
    }


def test_container_runtimes_follow_the_settings_of_gpu_operator() -> None:
    """They stay when nodes are listed again, and until the kind is gone."""
    handler, sync = synced()
    older = POLICY | {"spec": {"cdi": {"enabled": False}, "toolkit": {"version": "v1.17.8"}}}
    seen = []
    for step in (
        partial(sync.on_nodes, Listed([node("one", MANAGED)])),
        partial(sync.on_declared, CLUSTER_POLICY, Listed([POLICY])),
        partial(sync.on_nodes, Listed([node("two", MANAGED)])),
        partial(sync.on_declared, CLUSTER_POLICY, Applied(older)),
        partial(sync.on_unavailable, CLUSTER_POLICY, 403),
        partial(sync.on_unavailable, CLUSTER_POLICY, 404),
    ):
        step()
        seen.append(modes(handler))

    assert [{"unknown"}, {"cdi"}, {"cdi"}, {"legacy"}, {"legacy"}, {"unknown"}] == seen
    assert not handler.snapshot.inventory.node_pools.listed


def test_settings_that_could_never_be_read_are_no_sign_of_an_autoscaler() -> None:
    """They add no nodes."""
    handler, sync = synced()
    sync.on_unavailable(CLUSTER_POLICY, 500)

    assert (set(), set()) == declared(handler)


def test_a_status_of_gpu_operator_does_not_replace_the_snapshot() -> None:
    """Only its settings matter."""
    handler, sync = synced()
    sync.on_nodes(Listed([node("one", MANAGED)]))
    sync.on_declared(CLUSTER_POLICY, Listed([POLICY]))
    before = handler.snapshot
    sync.on_declared(CLUSTER_POLICY, Applied(POLICY | {"status": {"state": "notReady"}}))

    assert handler.snapshot is before


def test_readiness_waits_for_an_answer_on_every_kind_whatever_it_is() -> None:
    """A pod must not be denied for want of a pool that was not read yet."""
    handler, sync = synced()
    sync.on_nodes(Listed([]))
    before = set(sync.awaited)
    for kind, status in zip(KINDS, cycle([404, 403, 500, 0]), strict=False):
        sync.on_unavailable(kind, status)

    assert ("nodepools" in before, "nodes" in before, []) == (True, False, sync.awaited)
    assert not handler.snapshot.inventory.node_pools.pools


def test_labels_that_vanish_from_a_node_count_for_some_minutes() -> None:
    """As while its GPUs are partitioned anew; then the node has none."""
    now = [0.0]
    handler, sync = synced(lambda: now[0])
    labels = gfd("12.2")
    bare = node("one", {"zone": "a"})
    steps = []
    for moment, state in ((0, node("one", labels)), (1, bare), (500, bare), (601, bare), (602, bare)):
        now[0] = moment
        sync.on_nodes(Applied(state))
        steps.append(set(handler.snapshot.inventory.labels_of("one")))

    assert [set(labels), {*labels, "zone"}, {*labels, "zone"}, {"zone"}, {"zone"}] == steps


def test_labels_that_vanished_are_also_remembered_by_a_list_and_forgotten_when_they_return() -> None:
    """A list follows a broken watch."""
    now = [0.0]
    handler, sync = synced(lambda: now[0])
    seen = []
    for moment, labels in ((0, gfd("12.2")), (1, {}), (300, gfd("12.4")), (400, {}), (700, {}), (1001, {})):
        now[0] = moment
        sync.on_nodes(Listed([node("one", labels)]))
        kind = handler.snapshot.inventory.labels_of("one").get("nvidia.com/cuda.runtime-version.minor")
        seen.append(kind)

    assert ["2", "2", "4", "4", "4", None] == seen


def on_nodes(handler: AdmissionHandler, cuda: str) -> Decision:
    """Return the decision on a pod with an image of a CUDA version, by the built-in rules."""
    image = f"team/app:cuda{cuda}"
    return judged(shipped(), handler.snapshot.inventory, gpu_pod(image, limits={GPU: "1"}))


@pytest.mark.parametrize(
    ("cuda", "violations", "warnings", "injected"),
    [("12.2", 0, 0, True), ("13.0", 0, 1, False)],
    ids=["fits", "does not fit"],
)
def test_a_driver_whose_labels_vanished_still_attracts_pods_but_denies_none(
    cuda: str, violations: int, warnings: int, injected: bool
) -> None:
    """It may be upgraded in place, which removes the labels as MIG does."""
    handler, sync = synced()
    t4, a100 = node("t4", gfd("11.4", T4)), node("a100", gfd("12.2", A100))
    sync.on_nodes(Listed([t4, a100] if injected else [a100]))
    denied = on_nodes(handler, "13.0")
    sync.on_nodes(Applied(node("a100")))
    decision = on_nodes(handler, cuda)

    assert 1 == len(denied.violations)
    assert (violations, warnings) == (len(decision.violations), len(warning_texts(decision)))
    assert injected is bool(decision.patch)


def test_a_former_driver_that_does_not_fit_is_not_excluded_where_another_node_does_not_fit_either() -> None:
    """The pod is kept off that other node."""
    handler, sync = synced()
    sync.on_nodes(Listed([node("t4", gfd("11.4", T4)), node("a100", gfd("12.2", A100))]))
    sync.on_nodes(Applied(node("a100")))
    document = gpu_pod("team/app:cuda13.0", limits={GPU: "1"})
    verdict = judged(shipped(), handler.snapshot.inventory, document)
    now = [node("t4", gfd("11.4", T4)), node("a100")]

    assert ([], ["a100"]) == ([*verdict.violations], targets(now, document, verdict))


def test_former_labels_of_the_gpu_itself_deny() -> None:
    """No upgrade changes the compute capability."""
    handler, sync = synced()
    sync.on_nodes(Listed([node("one", gfd("12.2", T4))]))
    sync.on_nodes(Applied(node("one")))
    document = annotated({COMPUTE: "8.0"})

    assert 1 == len(judged(shipped(), handler.snapshot.inventory, document).violations)


def as_uid(uid: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the node `one` with a uid."""
    node_object = node("one", labels)
    node_object["metadata"]["uid"] = uid
    return node_object


@pytest.mark.parametrize("change", [Applied, lambda pool: Listed([pool])], ids=["watch", "list"])
def test_a_new_node_of_the_same_name_has_no_labels_of_the_old_one(change: Callable[[Any], Change]) -> None:
    """Its deletion may have fallen into a gap between two watches."""
    handler, sync = synced()
    sync.on_nodes(Listed([as_uid("old", gfd("12.2"))]))
    sync.on_nodes(Applied(as_uid("old", {})))
    same = handler.snapshot.inventory.labels_of("one")
    sync.on_nodes(change(as_uid("new", {})))

    assert (gfd("12.2"), {}) == (same, handler.snapshot.inventory.labels_of("one"))


def test_a_node_that_is_deleted_is_remembered_by_nothing() -> None:
    """Another may take its name."""
    handler, sync = synced()
    sync.on_nodes(Applied(node("one", gfd("12.2"))))
    sync.on_nodes(Deleted(node("one")))
    sync.on_nodes(Applied(node("one", {"zone": "a"})))

    assert {"zone": "a"} == handler.snapshot.inventory.labels_of("one")


def test_a_new_value_of_a_fact_replaces_the_old_one_at_once() -> None:
    """Also under another label of that fact."""
    handler, sync = synced()
    sync.on_nodes(Applied(node("one", gfd("12.2"))))
    sync.on_nodes(Applied(node("one", {"cuda-major-version": "13", "cuda-minor-version": "0"})))
    labels = handler.snapshot.inventory.labels_of("one")

    assert "nvidia.com/cuda.runtime-version.major" not in labels
    assert "Tesla-T4" == labels["nvidia.com/gpu.product"]


def test_nodes_and_pools_are_judged_by_new_facts_as_soon_as_these_are_in_force() -> None:
    """Those that are known already, and those that are listed anew."""
    handler, sync = synced()
    labels = {"nvidia.com/gpu.product": "NVIDIA-X1"}
    pool = {**POOL, "spec": {"template": {"metadata": {"labels": labels}, "spec": {"requirements": []}}}}
    sync.on_declared("NodePool", Listed([pool]))
    sync.on_nodes(Listed([node("one", labels)]))
    release = load_rules([("facts", facts_config_map(bundle(with_gpu)))])

    def known() -> list[tuple[int, int] | None]:
        inventory = handler.snapshot.inventory
        nodes = [kind.capabilities.gpu_capability for kind in inventory.classes(inventory.everything)]
        return [*nodes, *(pool.capabilities.gpu_capability for pool in inventory.node_pools.pools)]

    seen = [known()]
    for change in (
        partial(handler.set_rules, release),
        partial(sync.on_nodes, Listed([node("two", labels)])),
        partial(sync.on_declared, "NodePool", Applied(pool)),
        partial(handler.set_rules, Loaded()),
    ):
        change()
        seen.append(known())

    assert [[None, None], *[[(11, 0), (11, 0)]] * 3, [None, None]] == seen


def test_a_request_sees_new_facts_of_images_and_of_nodes_at_once() -> None:
    """They are swapped together: no snapshot has images of one release and nodes of another."""
    handler, sync = synced()
    sync.on_nodes(Listed([node("one")]))
    seen = []
    handler.on_facts = lambda facts: seen.append(handler.snapshot.inventory.facts is facts)
    handler.set_rules(load_rules([("facts", facts_config_map(bundle(with_gpu)))]))

    assert [True] == seen
    assert handler.snapshot.policy.facts is handler.snapshot.inventory.facts
