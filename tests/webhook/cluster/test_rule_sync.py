"""Rule sync: the last good version of each rule is in force, and a handler is ready once all is known."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration

from certs.kubernetes_api import KubernetesError
from rules.schema.config_map import Loaded
from rules.schema.loader import load_rules
from tests.support.builders import injection_rule, resource_rule
from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running
from tests.support.inventory_sync import only_nodes
from tests.support.memory import Memory
from tests.support.node_builders import node
from tests.support.serving import wait_for
from tests.support.webhooks import body, pod
from webhook.admission.handler import AdmissionHandler, NotSyncedError
from webhook.cli.commands.serve import _cluster
from webhook.cli.inputs.cluster_source import NO_CLUSTER
from webhook.cluster.client import RULE_SELECTORS, ClusterApi
from webhook.cluster.inventory_sync import InventorySync
from webhook.cluster.reflector import Applied, Deleted, Listed
from webhook.cluster.resource import Object, config_maps
from webhook.cluster.rule_snapshot import RuleSnapshot
from webhook.cluster.rule_sync import ActiveRules, RuleSync, resolve
from webhook.runtime import ClusterSync
from webhook.telemetry import metrics

NAMESPACE = "kube-public"
RULES = config_maps(NAMESPACE)
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
NODES = "/api/v1/nodes"
NOTHING = ActiveRules({}, {}, frozenset())
SELECTOR = RULE_SELECTORS[1]


@cache
def loaded(text: str) -> Loaded:
    """Return the rules and errors of one ConfigMap."""
    return load_rules([("rule", text)])


def version(name: str, key: str = "vendor.com/device", limits: str = "optional") -> str:
    """Return a version of the resource rule of this name."""
    return resource_rule(key, name=f"cf-crl-{name}", limits=limits, defaultValue="1")


def resolved(before: ActiveRules, *texts: str) -> ActiveRules:
    """Return the rules in force for these ConfigMaps."""
    newest = {yaml.safe_load(text)["metadata"]["name"]: loaded(text) for text in texts}
    return resolve(newest, before.in_force)


def keys(active: ActiveRules) -> dict[str, str]:
    """Return the resource that each rule in force claims, and its limits."""
    return {
        name: f"{rule.key} {rule.limits.value}"
        for name, rules in active.in_force.items()
        for rule in rules.resources
    }


def messages(active: ActiveRules) -> dict[str, list[str]]:
    """Return the error messages by ConfigMap."""
    return {name: [error.message for error in errors] for name, errors in sorted(active.errors.items())}


GOOD = version("a", limits="required")
BROKEN = version("a", limits="optinal")


def test_the_last_good_version_stays_if_the_next_has_an_error() -> None:
    """The rule is stale, and the error is reported."""
    policy = resolved(resolved(NOTHING, GOOD), BROKEN)

    assert {"cf-crl-a": "vendor.com/device required"} == keys(policy)
    assert {"cf-crl-a"} == policy.stale
    assert [
        "expected one of disabled, required, optional, got 'optinal' – did you mean 'optional'?"
    ] == messages(policy)["cf-crl-a"]


def test_a_rule_with_an_error_does_not_affect_others() -> None:
    """It does not come into force."""
    policy = resolved(NOTHING, BROKEN, version("b", "vendor.com/other"))

    assert ({"cf-crl-b": "vendor.com/other optional"}, frozenset()) == (keys(policy), policy.stale)


def test_a_correction_comes_into_force() -> None:
    """And nothing is stale afterwards."""
    policy = resolved(resolved(resolved(NOTHING, GOOD), BROKEN), version("a", limits="disabled"))

    assert {"cf-crl-a": "vendor.com/device disabled"} == keys(policy)
    assert ({}, frozenset()) == (messages(policy), policy.stale)


def test_a_deleted_rule_is_removed_even_if_it_was_stale() -> None:
    """The last good version is removed with its ConfigMap."""
    assert NOTHING == resolved(resolved(resolved(NOTHING, GOOD), BROKEN))


def test_two_that_claim_one_resource_from_the_start_are_both_left_out() -> None:
    """It is unknown which one is intended; the error of each names the other."""
    policy = resolved(NOTHING, version("a"), version("b"))

    assert ({}, frozenset()) == (keys(policy), policy.stale)
    assert ["cf-crl-a", "cf-crl-b"] == list(messages(policy))
    assert "is also used by cf-crl-b (rule);" in messages(policy)["cf-crl-a"][0]


def test_a_second_claim_changes_nothing_that_was_in_force() -> None:
    """Both have the error; the first is not stale, because its newest version is in force."""
    policy = resolved(resolved(NOTHING, version("a")), version("a"), version("b", limits="required"))

    assert ({"cf-crl-a": "vendor.com/device optional"}, frozenset()) == (keys(policy), policy.stale)
    assert ["cf-crl-a", "cf-crl-b"] == list(messages(policy))


def test_an_edit_of_conflicting_rules_waits_for_the_end_of_the_conflict() -> None:
    """Neither changes the rules in force until one of them is removed."""
    conflicting = resolved(
        resolved(NOTHING, version("a")), version("a", limits="required"), version("b", limits="disabled")
    )
    freed = resolved(conflicting, version("a", limits="required"))

    assert ({"cf-crl-a": "vendor.com/device optional"}, frozenset({"cf-crl-a"})) == (
        keys(conflicting),
        conflicting.stale,
    )
    assert ({"cf-crl-a": "vendor.com/device required"}, frozenset()) == (keys(freed), freed.stale)


def test_a_new_rule_cannot_claim_the_resource_of_a_stale_rule() -> None:
    """A stale rule offline claims its resource."""
    before = resolved(NOTHING, version("a", "v/1"), version("b", "v/2"))
    policy = resolved(before, version("a", "v/2"), version("b", "v/2"), version("c", "v/1"))

    assert {"cf-crl-a": "v/1 optional", "cf-crl-b": "v/2 optional"} == keys(policy)
    assert (["cf-crl-a", "cf-crl-b", "cf-crl-c"], frozenset({"cf-crl-a"})) == (
        list(messages(policy)),
        policy.stale,
    )


def test_two_rules_can_swap_their_resources_at_once() -> None:
    """As one `kubectl apply` of both does."""
    before = resolved(NOTHING, version("a", "v/1"), version("b", "v/2"))
    policy = resolved(before, version("a", "v/2"), version("b", "v/1"))

    assert ({"cf-crl-a": "v/2 optional", "cf-crl-b": "v/1 optional"}, {}) == (keys(policy), messages(policy))


def test_a_disabled_rule_claims_nothing() -> None:
    """Another rule may claim its resource."""
    off = resource_rule(name="cf-crl-a", enabled=False)
    policy = resolved(resolved(NOTHING, version("a")), off, version("b"))

    assert (["cf-crl-a", "cf-crl-b"], {}) == (list(keys(policy)), messages(policy))


ROUNDS = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(st.sampled_from(["v/1", "v/2", "v/3"]), st.sampled_from(["optional", "required", "wrong"])),
    ),
    max_size=6,
)


@given(ROUNDS)
def test_after_any_edits_only_good_versions_are_in_force_and_no_resource_is_claimed_twice(
    rounds: list[dict[str, tuple[str, str]]],
) -> None:
    """And the newest version of every rule without an error is in force."""
    active, good = NOTHING, set()
    for edits in rounds:
        good |= {(f"cf-crl-{name}", " ".join(edit)) for name, edit in edits.items() if "wrong" not in edit}
        active = resolved(
            active, *(version(name, key, limits=limits) for name, (key, limits) in edits.items())
        )
        claimed = [claim.split()[0] for claim in keys(active).values()]

        assert len(set(claimed)) == len(claimed)
        assert set(keys(active).items()) <= good
        assert {f"cf-crl-{name}" for name in edits} == keys(active).keys() | active.errors.keys()
        assert {
            f"cf-crl-{name}": " ".join(edit)
            for name, edit in edits.items()
            if f"cf-crl-{name}" not in active.errors
        }.items() <= keys(active).items()


def parsed(text: str, number: int = 1) -> Object:
    """Return a ConfigMap as the API server sends it, at a resourceVersion."""
    document: Object = yaml.safe_load(text)
    document["metadata"] |= {"resourceVersion": str(number), "uid": "u"}
    return document


class Offline:
    """A handler and its syncs without an API server: delayed updates run when the test calls `update`."""

    def __init__(self, snapshot: RuleSnapshot | None = None) -> None:
        self.handler = AdmissionHandler(Loaded())
        self.delayed: list[Callable[[], None]] = []
        self.retries: list[Callable[[], None]] = []
        self.version = 0
        api = ClusterApi(Configuration(host="http://127.0.0.1:1"))
        self.rules = RuleSync(api, self.handler, NAMESPACE, snapshot, later=self._later)
        self.nodes = InventorySync(api, self.handler)
        self.sync = ClusterSync(self.handler, [self.rules, self.nodes])

    def _later(self, action: Callable[[], None], after_s: float = 0) -> None:
        (self.retries if after_s else self.delayed).append(action)

    def update(self) -> None:
        """Run the delayed updates."""
        while self.delayed:
            self.delayed.pop()()

    def retry(self) -> None:
        """Run the scheduled retries."""
        retries, self.retries = self.retries, []
        for action in retries:
            action()
        self.update()

    def list_rules(self, *texts: str) -> None:
        """List all ConfigMaps, each in a new version, under one of the selectors."""
        self.version += 1
        for selector in RULE_SELECTORS:
            objects = [parsed(text, self.version) for text in texts] if selector == SELECTOR else []
            self.rules.on_change(selector, Listed(objects))
        self.update()


class Short:
    """A call that raises MemoryError until `over` is set."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call, self.over = call, False

    def __call__(self, *given: Any) -> None:
        """Fail, or call it."""
        if not self.over:
            raise MemoryError
        self._call(*given)


def limits(handler: AdmissionHandler) -> list[str]:
    """Return the limits policies in force."""
    return [rule.limits.value for rule in handler.loaded.rules.resources]


def sample(name: str, **labels: str) -> float | None:
    """Return a metric's value."""
    return metrics.REGISTRY.get_sample_value(name, labels)


def test_the_handler_is_ready_when_rules_and_nodes_are_known() -> None:
    """Before, it answers no review: the webhook's failurePolicy decides."""
    offline = Offline()
    with pytest.raises(NotSyncedError, match="does not know the rules and nodes"):
        offline.handler.answer("mutate", body(pod()))
    only_nodes(offline.nodes)
    for selector in RULE_SELECTORS[:2]:
        offline.rules.on_change(selector, Listed([]))
    before = (offline.handler.ready, offline.delayed)
    offline.list_rules()

    assert ((False, []), True) == (before, offline.handler.ready)
    assert b'"allowed":true' in offline.handler.answer("mutate", body(pod()))


def test_that_no_rule_is_in_force_is_logged_once_until_there_are_rules_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the start, when the last is disabled, and when it is deleted; a stale version is in force."""
    offline, logged = Offline(), []
    for texts in [
        (),
        (),
        (GOOD,),
        (BROKEN,),
        (resource_rule(name="cf-crl-a", enabled=False),),
        (),
        (GOOD,),
        (),
    ]:
        caplog.clear()
        offline.list_rules(*texts)
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        logged.append([warning for warning in warnings if "cannot write an Event" not in warning])
    line = "no rule is in force: all pods are admitted unchecked; apply the rules in namespace 'kube-public'"

    assert [[line], [], [], [], [line], [], [], [line]] == logged


def test_a_handler_that_drains_does_not_become_ready() -> None:
    """Whether the drain starts before it is ready, or after, when something changes."""
    early, late = Offline(), Offline()
    early.sync.stop()
    for offline in (early, late):
        offline.list_rules(GOOD)
        only_nodes(offline.nodes)
    late.handler.ready = False
    late.list_rules(BROKEN)

    assert (False, False) == (early.handler.ready, late.handler.ready)


def test_with_rules_from_files_readiness_waits_only_for_nodes() -> None:
    """There is no rule sync."""
    handler = AdmissionHandler(Loaded())
    nodes = InventorySync(ClusterApi(Configuration()), handler)
    sync = ClusterSync(handler, [nodes])
    before = (handler.ready, *sync.awaited)
    only_nodes(nodes)

    assert ((False, "nodes"), (True,)) == (
        (before[0], next(name for name in before if name == "nodes")),
        (handler.ready, *sync.awaited),
    )


def test_a_burst_of_edits_is_one_new_rule_set() -> None:
    """Two hundred ConfigMaps applied at once are compiled once."""
    offline = Offline()
    offline.list_rules()
    texts = [version(f"r{number}", f"v.com/r{number}") for number in range(200)]
    for number, text in enumerate(texts):
        offline.rules.on_change(SELECTOR, Applied(parsed(text, number)))
    due = len(offline.delayed)
    offline.update()

    assert (1, 200) == (due, len(offline.handler.loaded.rules.resources))


def test_a_change_is_in_force_even_if_no_thread_can_be_started() -> None:
    """Without memory or processes for one, the thread of the watch does the update."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    offline = Offline()
    offline.rules._later = fail
    offline.list_rules(GOOD)

    assert ["required"] == limits(offline.handler)


def test_a_failed_update_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example after a MemoryError: the API server does not send the change again."""
    offline = Offline()
    monkeypatch.setattr(offline.handler, "set_rules", raising := Short(offline.handler.set_rules))
    with pytest.raises(MemoryError):
        offline.list_rules(GOOD)
    raising.over = True
    offline.retry()

    assert ["required"] == limits(offline.handler)


def test_a_rule_with_two_labels_is_in_force_until_both_are_removed() -> None:
    """Two watches list it."""
    offline = Offline()
    offline.list_rules()
    first, second, _ = RULE_SELECTORS
    offline.rules.on_change(first, Applied(parsed(GOOD)))
    offline.rules.on_change(second, Applied(parsed(GOOD)))
    offline.rules.on_change(first, Deleted(parsed(GOOD)))
    offline.update()
    after_one = len(offline.handler.loaded.rules.resources)
    offline.rules.on_change(second, Deleted(parsed(GOOD)))
    offline.update()

    assert (1, 0) == (after_one, len(offline.handler.loaded.rules.resources))


def test_the_newest_version_of_a_config_map_is_known_under_any_of_its_labels() -> None:
    """Also one with an error, for Events that refer to it."""
    offline = Offline()
    offline.list_rules(GOOD)
    offline.list_rules(BROKEN)

    assert parsed(BROKEN, 2) == offline.rules.config_map("cf-crl-a")
    assert None is offline.rules.config_map("cf-crl-b")


def test_rules_of_all_kinds_are_in_force_together() -> None:
    """In the order of their names."""
    offline = Offline()
    offline.list_rules(version("b", "v/b"), injection_rule({"hostIPC": True}), version("a", "v/a"))

    assert ["cf-crl-a", "cf-crl-b", "injection"] == [rule.name for rule in offline.handler.loaded.rules]


def test_a_stale_rule_is_in_the_snapshot_the_metric_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with its path."""
    offline = Offline()
    offline.list_rules(GOOD)
    with caplog.at_level(logging.ERROR, "gpugate.cluster"):
        for number in (2, 3):  # the second time with an annotation, for example
            offline.rules.on_change(SELECTOR, Applied(parsed(BROKEN, number)))
            offline.update()
    (record,) = caplog.records

    assert ({"cf-crl-a"}, ["required"]) == (set(offline.handler.stale), limits(offline.handler))
    assert ["cf-crl-a"] == [error.rule for error in offline.handler.loaded.errors]
    assert [0, 0, 1, 0] == [
        sample("gpugate_rules", state=state) for state in ("enabled", "disabled", "stale", "refused")
    ]
    assert (
        "rule cf-crl-a refused, the previous version stays in force: configmap kube-public/cf-crl-a: "
        "data.limits: expected one of" in record.message
    )


def test_the_last_good_version_survives_a_restart() -> None:
    """A process that starts after the rule is broken has the same version in force as the one before."""
    memory = Memory()
    memory.put("/api/v1/namespaces/gpugate/configmaps/gpugate-last-good", {"metadata": {}})
    before = Offline(RuleSnapshot(memory, "gpugate"))
    before.list_rules(GOOD)
    before.list_rules(BROKEN)
    after = Offline(RuleSnapshot(memory, "gpugate"))
    after.list_rules(BROKEN)

    assert ["required"] == limits(before.handler) == limits(after.handler)
    assert {"cf-crl-a"} == after.handler.stale


def test_facts_of_the_image_resolver_are_not_saved() -> None:
    """It writes them again, and they would need the room of the rules."""
    memory = Memory()
    memory.put("/api/v1/namespaces/gpugate/configmaps/gpugate-last-good", {"metadata": {}})
    snapshot = RuleSnapshot(memory, "gpugate")
    facts = yaml.safe_load(GOOD)
    facts["metadata"]["name"] = "gpugate-images-0"
    facts["metadata"]["labels"]["gpugate.dev/managed-by"] = "image-resolver"
    Offline(snapshot).list_rules(version("b", "vendor.com/other"), yaml.safe_dump(facts))

    assert ["cf-crl-b"] == list(snapshot.load() or ())


LAST_GOOD = "/api/v1/namespaces/gpugate/configmaps/gpugate-last-good"


def failing(memory: Memory, times: int) -> None:
    """Let the next so many requests to an API server fail."""
    failures = iter(range(times))

    def fail(method: str, path: str) -> None:
        if next(failures, None) is not None:
            raise KubernetesError(f"{method} {path}: 500")

    memory.before = fail


def broken_before_a_restart() -> tuple[Memory, Offline]:
    """Return an API server with the snapshot of a rule that is broken now, and a process that starts."""
    memory = Memory()
    memory.put(LAST_GOOD, {"metadata": {}})
    before = Offline(RuleSnapshot(memory, "gpugate"))
    before.list_rules(GOOD)
    before.list_rules(BROKEN)
    after = Offline(RuleSnapshot(memory, "gpugate"))
    only_nodes(after.nodes)
    return memory, after


def test_readiness_waits_for_an_unreadable_snapshot_if_a_rule_is_broken() -> None:
    """Otherwise it would be ready without that rule, and overwrite its last good version."""
    memory, after = broken_before_a_restart()
    failing(memory, 2)
    after.list_rules(BROKEN)
    waited = after.handler.ready
    after.retry()
    waited = waited or after.handler.ready
    after.retry()

    assert (False, True, ["required"]) == (waited, after.handler.ready, limits(after.handler))
    assert {"cf-crl-a"} == RuleSnapshot(memory, "gpugate").load().keys()  # type: ignore[union-attr]


def test_the_wait_for_the_snapshot_is_limited_and_it_is_never_overwritten() -> None:
    """Ready without one rule is better than not ready; once the snapshot is readable, it comes into force."""
    memory, after = broken_before_a_restart()
    failing(memory, 1000)
    after.list_rules(BROKEN, version("b", "vendor.com/other"))
    attempts = 0
    while not after.handler.ready:
        attempts += 1
        assert attempts < 30
        after.retry()
    without = limits(after.handler)
    failing(memory, 0)
    after.retry()

    assert (["optional"], ["required", "optional"]) == (without, limits(after.handler))
    assert {"cf-crl-a", "cf-crl-b"} == RuleSnapshot(memory, "gpugate").load().keys()  # type: ignore[union-attr]


def test_the_snapshot_is_not_lost_if_the_first_update_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example with a MemoryError at start."""
    _, after = broken_before_a_restart()
    monkeypatch.setattr(after.handler, "set_rules", short := Short(after.handler.set_rules))
    with pytest.raises(MemoryError):
        after.list_rules(BROKEN)
    short.over = True
    after.retry()

    assert ["required"] == limits(after.handler)


def test_readiness_does_not_wait_for_the_snapshot_if_no_rule_is_broken() -> None:
    """It is not needed."""
    memory, after = broken_before_a_restart()
    failing(memory, 1)
    after.list_rules(GOOD)

    assert after.handler.ready


def test_a_failed_save_of_the_snapshot_is_retried() -> None:
    """It does not wait for the next edit, which may come in a year."""
    memory = Memory()
    offline = Offline(RuleSnapshot(memory, "gpugate"))
    offline.list_rules(GOOD)
    memory.put(LAST_GOOD, {"metadata": {}})
    offline.retry()

    assert {"cf-crl-a"} == RuleSnapshot(memory, "gpugate").load().keys()  # type: ignore[union-attr]
    assert [] == offline.retries


def test_a_rule_that_was_deleted_during_downtime_is_not_restored() -> None:
    """The snapshot applies only to existing ConfigMaps."""
    memory = Memory()
    memory.put("/api/v1/namespaces/gpugate/configmaps/gpugate-last-good", {"metadata": {}})
    Offline(RuleSnapshot(memory, "gpugate")).list_rules(GOOD, version("b", "vendor.com/other"))
    after = Offline(RuleSnapshot(memory, "gpugate"))
    after.list_rules(version("b", "vendor.com/other", limits="disabled"))

    assert ["disabled"] == limits(after.handler)


@contextmanager
def following(api: ClusterApi) -> Iterator[AdmissionHandler]:
    """Keep a handler up to date with an API server while the block runs."""
    handler = AdmissionHandler(Loaded())
    sync = ClusterSync(handler, [RuleSync(api, handler, NAMESPACE), InventorySync(api, handler)])
    sync.start()
    try:
        yield handler
    finally:
        sync.stop()


def test_a_handler_follows_an_api_server_and_errors_become_events() -> None:
    """One Event for all replicas; the handler stays ready if the API server is unavailable."""
    fake = FakeApi()
    fake.put(RULES, parsed(GOOD))
    fake.put(NODES, node("one"))
    with running(fake) as api, following(api) as handler, following(api) as replica:
        wait_for(lambda: handler.ready and replica.ready)
        fake.put(RULES, parsed(version("a", limits="disabled")))
        wait_for(lambda: limits(handler) == limits(replica) == ["disabled"])
        fake.put(RULES, parsed(BROKEN))
        wait_for(lambda: bool(handler.stale and replica.stale))
        wait_for(lambda: sum(request.path == EVENTS for request in fake.requests) == 2)
    (event,) = fake.objects(EVENTS)

    assert (True, ["disabled"]) == (handler.ready, limits(handler))
    assert ("Warning", "RuleRefused", "cf-crl-a") == (
        event["type"],
        event["reason"],
        event["involvedObject"]["name"],
    )
    assert "data.limits: expected one of disabled, required, optional, got 'optinal'" in event["message"]


def test_rules_and_nodes_change_while_requests_are_answered_by_one_of_them() -> None:
    """Each response uses one snapshot; the next uses the newest."""
    offline = Offline()
    offline.list_rules(version("a", limits="required"))
    only_nodes(offline.nodes)
    patched = json.loads(offline.handler.answer("mutate", body(pod({"vendor.com/device": "1"}))))
    offline.rules.on_change(SELECTOR, Applied(parsed(version("a", limits="disabled"), 2)))
    offline.update()
    denied = json.loads(offline.handler.answer("mutate", body(pod({"vendor.com/device": "1"}))))

    assert (True, False) == (patched["response"]["allowed"], denied["response"]["allowed"])


def test_serve_rejects_a_cluster_that_it_does_not_need(tmp_path: Path) -> None:
    """Files for everything together with a cluster is an error; so is a missing kubeconfig."""
    (tmp_path / "rule.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(node("one")), "utf-8")
    api = FakeApi()
    with running(api):
        files = ["--rules", str(tmp_path / "rule.yaml"), "--nodes", str(tmp_path / "nodes.yaml")]
        both = gpugate("serve", "--kubeconfig", api.kubeconfig(tmp_path), *files)
    none = gpugate("serve", "--kubeconfig", "/nowhere")

    assert (2, 2) == (both.exit_code, none.exit_code)
    assert "--kubeconfig and --context have no effect together with --rules and --nodes" in both.output
    assert "check --kubeconfig and --context" in none.output


def test_a_server_in_a_pod_follows_its_own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless --rules is given."""
    own = ClusterApi(Configuration())
    monkeypatch.setattr(ClusterApi, "in_cluster", lambda: own)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    outside = _cluster(NO_CLUSTER, of_pod=True)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

    assert (None, own, None) == (
        outside,
        _cluster(NO_CLUSTER, of_pod=True),
        _cluster(NO_CLUSTER, of_pod=False),
    )
