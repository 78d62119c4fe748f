"""What is in force of a cluster: the last good version of each rule, and the nodes as they are now."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration

from certs.kubernetes_api import KubernetesError
from rules.schema.loader import Loaded, load_rules
from tests.support.builders import config_map, injection_rule, resource_rule
from tests.support.fake_api import FakeApi, running
from tests.support.memory import Memory
from tests.support.node_builders import gfd, node
from tests.support.webhooks import body, pod
from webhook.admission.handler import AdmissionHandler, NotSyncedError
from webhook.cli import main
from webhook.cli.commands.serve import _cluster
from webhook.cluster.client import RULE_SELECTORS, ClusterApi, config_maps
from webhook.cluster.events import write_refusal
from webhook.cluster.reflector import Applied, Deleted, Listed, Object
from webhook.cluster.rule_snapshot import RuleSnapshot
from webhook.cluster.rule_sync import ActiveRules, Live, settle
from webhook.telemetry import metrics

NAMESPACE = "kube-public"
RULES = config_maps(NAMESPACE)
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
NODES = "/api/v1/nodes"
NOTHING = ActiveRules({}, {}, frozenset())
SELECTOR = RULE_SELECTORS[1]


@cache
def reading(text: str) -> Loaded:
    """Return how one ConfigMap reads."""
    return load_rules([("rule", text)])


def version(name: str, key: str = "vendor.com/device", limits: str = "optional") -> str:
    """Return a version of the resource rule of this name."""
    return resource_rule(key, name=f"cf-crl-{name}", limits=limits, defaultValue="1")


def settled(before: ActiveRules, *texts: str) -> ActiveRules:
    """Return what is in force when the ConfigMaps read so."""
    newest = {yaml.safe_load(text)["metadata"]["name"]: reading(text) for text in texts}
    return settle(newest, before.in_force)


def keys(standing: ActiveRules) -> dict[str, str]:
    """Return the resource that each rule in force claims, and its limits."""
    return {
        name: f"{rule.key} {rule.limits.value}"
        for name, rules in standing.in_force.items()
        for rule in rules.resources
    }


def told(standing: ActiveRules) -> dict[str, list[str]]:
    """Return what is wrong, by ConfigMap."""
    return {
        name: [error.message for error in mistakes] for name, mistakes in sorted(standing.mistakes.items())
    }


GOOD = version("a", limits="required")
BROKEN = version("a", limits="optinal")


def test_the_last_good_version_stays_when_the_next_reads_wrong() -> None:
    """It is told to be stale, and why."""
    found = settled(settled(NOTHING, GOOD), BROKEN)

    assert {"cf-crl-a": "vendor.com/device required"} == keys(found)
    assert {"cf-crl-a"} == found.stale
    assert ["expected one of disabled, required, optional, got 'optinal' – did you mean 'optional'?"] == told(
        found
    )["cf-crl-a"]


def test_a_bad_rule_touches_no_other() -> None:
    """Nor does it come into force itself."""
    found = settled(NOTHING, BROKEN, version("b", "vendor.com/other"))

    assert ({"cf-crl-b": "vendor.com/other optional"}, frozenset()) == (keys(found), found.stale)


def test_a_correction_comes_into_force() -> None:
    """And nothing is stale any more."""
    found = settled(settled(settled(NOTHING, GOOD), BROKEN), version("a", limits="disabled"))

    assert {"cf-crl-a": "vendor.com/device disabled"} == keys(found)
    assert ({}, frozenset()) == (told(found), found.stale)


def test_a_deleted_rule_is_gone_even_where_it_was_stale() -> None:
    """The last good version goes with its ConfigMap."""
    assert NOTHING == settled(settled(settled(NOTHING, GOOD), BROKEN))


def test_two_that_claim_one_resource_from_the_start_are_both_left_out() -> None:
    """Nobody can tell which was meant; each is told of the other."""
    found = settled(NOTHING, version("a"), version("b"))

    assert ({}, frozenset()) == (keys(found), found.stale)
    assert ["cf-crl-a", "cf-crl-b"] == list(told(found))
    assert "is claimed by cf-crl-b (rule) too" in told(found)["cf-crl-a"][0]


def test_a_second_claim_changes_nothing_that_was_in_force() -> None:
    """It is told on both; the first is not stale, for it stands as it reads."""
    found = settled(settled(NOTHING, version("a")), version("a"), version("b", limits="required"))

    assert ({"cf-crl-a": "vendor.com/device optional"}, frozenset()) == (keys(found), found.stale)
    assert ["cf-crl-a", "cf-crl-b"] == list(told(found))


def test_while_a_claim_is_contested_an_edit_waits() -> None:
    """Neither changes what was in force, until one of them gives way."""
    contested = settled(
        settled(NOTHING, version("a")), version("a", limits="required"), version("b", limits="disabled")
    )
    freed = settled(contested, version("a", limits="required"))

    assert ({"cf-crl-a": "vendor.com/device optional"}, frozenset({"cf-crl-a"})) == (
        keys(contested),
        contested.stale,
    )
    assert ({"cf-crl-a": "vendor.com/device required"}, frozenset()) == (keys(freed), freed.stale)


def test_what_stays_in_force_keeps_its_resource_from_newcomers() -> None:
    """A stale rule still claims what it claimed."""
    before = settled(NOTHING, version("a", "v/1"), version("b", "v/2"))
    found = settled(before, version("a", "v/2"), version("b", "v/2"), version("c", "v/1"))

    assert {"cf-crl-a": "v/1 optional", "cf-crl-b": "v/2 optional"} == keys(found)
    assert (["cf-crl-a", "cf-crl-b", "cf-crl-c"], frozenset({"cf-crl-a"})) == (list(told(found)), found.stale)


def test_two_rules_can_swap_their_resources_at_once() -> None:
    """As one `kubectl apply` of both does."""
    before = settled(NOTHING, version("a", "v/1"), version("b", "v/2"))
    found = settled(before, version("a", "v/2"), version("b", "v/1"))

    assert ({"cf-crl-a": "v/2 optional", "cf-crl-b": "v/1 optional"}, {}) == (keys(found), told(found))


def test_a_rule_that_is_switched_off_claims_nothing() -> None:
    """Another may have its resource."""
    off = resource_rule(name="cf-crl-a", enabled=False)
    found = settled(settled(NOTHING, version("a")), off, version("b"))

    assert (["cf-crl-a", "cf-crl-b"], {}) == (list(keys(found)), told(found))


ROUNDS = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(st.sampled_from(["v/1", "v/2", "v/3"]), st.sampled_from(["optional", "required", "wrong"])),
    ),
    max_size=6,
)


@given(ROUNDS)
def test_whatever_is_edited_only_good_versions_are_in_force_and_none_twice(
    rounds: list[dict[str, tuple[str, str]]],
) -> None:
    """And what reads right and is claimed by no other is in force as it reads."""
    standing, good = NOTHING, set()
    for edits in rounds:
        good |= {(f"cf-crl-{name}", " ".join(edit)) for name, edit in edits.items() if "wrong" not in edit}
        standing = settled(
            standing, *(version(name, key, limits=limits) for name, (key, limits) in edits.items())
        )
        claimed = [claim.split()[0] for claim in keys(standing).values()]

        assert len(set(claimed)) == len(claimed)
        assert set(keys(standing).items()) <= good
        assert {f"cf-crl-{name}" for name in edits} == keys(standing).keys() | standing.mistakes.keys()
        assert {
            f"cf-crl-{name}": " ".join(edit)
            for name, edit in edits.items()
            if f"cf-crl-{name}" not in standing.mistakes
        }.items() <= keys(standing).items()


def parsed(text: str, number: int = 1) -> Object:
    """Return a ConfigMap as the API server tells it, at a resourceVersion."""
    document: Object = yaml.safe_load(text)
    document["metadata"] |= {"resourceVersion": str(number), "uid": "u"}
    return document


class Still:
    """A gate that is kept live without any API server: what is put off is done when asked for."""

    def __init__(self, last_good: RuleSnapshot | None = None) -> None:
        self.gate = AdmissionHandler(Loaded())
        self.put_off: list[Callable[[], None]] = []
        self.again: list[Callable[[], None]] = []
        self.version = 0
        api = ClusterApi(Configuration(host="http://127.0.0.1:1"))
        self.live = Live(api, self.gate, NAMESPACE, last_good=last_good, later=self._put_off)

    def _put_off(self, action: Callable[[], None], after_s: float = 0) -> None:
        (self.again if after_s else self.put_off).append(action)

    def settle(self) -> None:
        """Do what was put off."""
        while self.put_off:
            self.put_off.pop()()

    def try_again(self) -> None:
        """Do what failed once more."""
        failed, self.again = self.again, []
        for action in failed:
            action()
        self.settle()

    def list_rules(self, *texts: str) -> None:
        """Tell all ConfigMaps, each in a new version, under one of the selectors."""
        self.version += 1
        for selector in RULE_SELECTORS:
            objects = [parsed(text, self.version) for text in texts] if selector == SELECTOR else []
            self.live.rule_changed(selector, Listed(objects))
        self.settle()


class Short:
    """A call that fails for want of memory, until that is over."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call, self.over = call, False

    def __call__(self, *given: Any) -> None:
        """Fail, or call it."""
        if not self.over:
            raise MemoryError
        self._call(*given)


def limits(gate: AdmissionHandler) -> list[str]:
    """Return the limits policies in force."""
    return [rule.limits.value for rule in gate.snapshot.loaded.rules.resources]


def sample(name: str, **labels: str) -> float | None:
    """Return a metric's value."""
    return metrics.REGISTRY.get_sample_value(name, labels)


def test_the_gate_is_ready_when_rules_and_nodes_are_known() -> None:
    """Before, it answers nothing: the webhook's failurePolicy decides."""
    still = Still()
    with pytest.raises(NotSyncedError, match="does not know the rules and nodes"):
        still.gate.answer("mutate", body(pod()))
    still.live.node_changed(Listed([]))
    for selector in RULE_SELECTORS[:2]:
        still.live.rule_changed(selector, Listed([]))
    before = (still.gate.ready, still.put_off)
    still.list_rules()

    assert ((False, []), True) == (before, still.gate.ready)
    assert b'"allowed":true' in still.gate.answer("mutate", body(pod()))


def test_a_gate_that_drains_before_it_was_ready_does_not_open() -> None:
    """Nor one that drains after, when something changes."""
    early, late = Still(), Still()
    early.live.stop()
    for still in (early, late):
        still.list_rules(GOOD)
        still.live.node_changed(Listed([]))
    late.gate.ready = False
    late.list_rules(BROKEN)

    assert (False, False) == (early.gate.ready, late.gate.ready)


def test_the_rules_of_files_wait_for_the_nodes_alone() -> None:
    """The cluster's ConfigMaps are then not looked at."""
    gate = AdmissionHandler(Loaded())
    live = Live(ClusterApi(Configuration()), gate, NAMESPACE, ["nodes"])
    before = gate.ready
    live.node_changed(Listed([]))

    assert (False, True) == (before, gate.ready)


def test_a_burst_of_edits_is_one_new_rule_set() -> None:
    """Two hundred ConfigMaps applied at once are compiled once."""
    still = Still()
    still.list_rules()
    texts = [version(f"r{number}", f"v.com/r{number}") for number in range(200)]
    for number, text in enumerate(texts):
        still.live.rule_changed(SELECTOR, Applied(parsed(text, number)))
    due = len(still.put_off)
    still.settle()

    assert (1, 200) == (due, len(still.gate.snapshot.loaded.rules.resources))


def test_a_change_is_in_force_where_no_thread_can_be_started() -> None:
    """Short of memory or of processes it is put into force by whoever heard of it."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    still = Still()
    still.live._later = fail
    still.list_rules(GOOD)

    assert ["required"] == limits(still.gate)


def test_a_change_on_which_the_gate_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when memory was short: nobody else would ever tell of it again."""
    still = Still()
    monkeypatch.setattr(still.gate, "put_rules", raising := Short(still.gate.put_rules))
    with pytest.raises(MemoryError):
        still.list_rules(GOOD)
    raising.over = True
    still.try_again()

    assert ["required"] == limits(still.gate)


def test_a_rule_that_carries_both_labels_counts_until_the_last_is_gone() -> None:
    """Two watches tell of it."""
    still = Still()
    still.list_rules()
    first, second, _ = RULE_SELECTORS
    still.live.rule_changed(first, Applied(parsed(GOOD)))
    still.live.rule_changed(second, Applied(parsed(GOOD)))
    still.live.rule_changed(first, Deleted(parsed(GOOD)))
    still.settle()
    after_one = len(still.gate.snapshot.loaded.rules.resources)
    still.live.rule_changed(second, Deleted(parsed(GOOD)))
    still.settle()

    assert (1, 0) == (after_one, len(still.gate.snapshot.loaded.rules.resources))


def test_rules_of_all_kinds_are_in_force_together() -> None:
    """In the order of their names."""
    still = Still()
    still.list_rules(version("b", "v/b"), injection_rule({"hostIPC": True}), version("a", "v/a"))

    assert ["cf-crl-a", "cf-crl-b", "injection"] == [rule.name for rule in still.gate.snapshot.loaded.rules]


def test_a_stale_rule_is_told_by_snapshot_metric_and_log(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with its place as kubectl prints the ConfigMap."""
    still = Still()
    still.list_rules(GOOD)
    with caplog.at_level(logging.ERROR, "gpugate.cluster"):
        for number in (2, 3):  # the second time annotated, say
            still.live.rule_changed(SELECTOR, Applied(parsed(BROKEN, number)))
            still.settle()
    snapshot = still.gate.snapshot
    (record,) = caplog.records

    assert ({"cf-crl-a"}, ["required"]) == (set(snapshot.stale), limits(still.gate))
    assert ["cf-crl-a"] == [error.rule for error in snapshot.loaded.errors]
    assert [0, 0, 1, 0] == [
        sample("gpugate_rules", state=state) for state in ("enabled", "disabled", "stale", "refused")
    ]
    assert (
        "rule cf-crl-a refused, the version before stays in force: configmap kube-public/cf-crl-a:6:11: "
        "data.limits: expected one of" in record.message
    )


def test_the_last_good_version_outlives_a_restart() -> None:
    """A gate that starts when the rule is broken already has it in force as the one before had."""
    memory = Memory()
    memory.put("/api/v1/namespaces/gpugate/configmaps/gpugate-last-good", {"metadata": {}})
    before = Still(RuleSnapshot(memory, "gpugate"))
    before.list_rules(GOOD)
    before.list_rules(BROKEN)
    after = Still(RuleSnapshot(memory, "gpugate"))
    after.list_rules(BROKEN)

    assert ["required"] == limits(before.gate) == limits(after.gate)
    assert {"cf-crl-a"} == after.gate.snapshot.stale


LAST_GOOD = "/api/v1/namespaces/gpugate/configmaps/gpugate-last-good"


def failing(memory: Memory, times: int) -> None:
    """Have an API server fail so often."""
    failures = iter(range(times))

    def fail(method: str, path: str) -> None:
        if next(failures, None) is not None:
            raise KubernetesError(f"{method} {path}: 500")

    memory.before = fail


def broken_before_a_restart() -> tuple[Memory, Still]:
    """Return an API server that keeps the last good version of what is broken, and a gate that starts."""
    memory = Memory()
    memory.put(LAST_GOOD, {"metadata": {}})
    before = Still(RuleSnapshot(memory, "gpugate"))
    before.list_rules(GOOD)
    before.list_rules(BROKEN)
    after = Still(RuleSnapshot(memory, "gpugate"))
    after.live.node_changed(Listed([]))
    return memory, after


def test_a_gate_that_cannot_read_the_last_good_version_waits_for_it_where_a_rule_is_broken() -> None:
    """It would else be ready without that rule, and forget the version for good."""
    memory, after = broken_before_a_restart()
    failing(memory, 2)
    after.list_rules(BROKEN)
    waited = after.gate.ready
    after.try_again()
    waited = waited or after.gate.ready
    after.try_again()

    assert (False, True, ["required"]) == (waited, after.gate.ready, limits(after.gate))
    assert {"cf-crl-a"} == RuleSnapshot(memory, "gpugate").load().keys()  # type: ignore[union-attr]


def test_a_gate_waits_for_the_last_good_versions_only_so_long_and_never_forgets_them() -> None:
    """Rather without one rule than not at all; when they can be read again, they come into force."""
    memory, after = broken_before_a_restart()
    failing(memory, 1000)
    after.list_rules(BROKEN, version("b", "vendor.com/other"))
    tries = 0
    while not after.gate.ready:
        tries += 1
        assert tries < 30
        after.try_again()
    without = limits(after.gate)
    failing(memory, 0)
    after.try_again()

    assert (["optional"], ["required", "optional"]) == (without, limits(after.gate))
    assert {"cf-crl-a", "cf-crl-b"} == RuleSnapshot(memory, "gpugate").load().keys()  # type: ignore[union-attr]


def test_the_last_good_version_is_not_lost_to_a_gate_that_fails_on_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where memory was short when it started."""
    _, after = broken_before_a_restart()
    monkeypatch.setattr(after.gate, "put_rules", short := Short(after.gate.put_rules))
    with pytest.raises(MemoryError):
        after.list_rules(BROKEN)
    short.over = True
    after.try_again()

    assert ["required"] == limits(after.gate)


def test_a_gate_does_not_wait_for_the_last_good_versions_where_no_rule_is_broken() -> None:
    """They are of no use to it."""
    memory, after = broken_before_a_restart()
    failing(memory, 1)
    after.list_rules(GOOD)

    assert after.gate.ready


def test_versions_that_could_not_be_kept_are_kept_a_moment_later() -> None:
    """Not only with the next edit, which may come in a year."""
    memory = Memory()
    still = Still(RuleSnapshot(memory, "gpugate"))
    still.list_rules(GOOD)
    memory.put(LAST_GOOD, {"metadata": {}})
    still.try_again()

    assert {"cf-crl-a"} == RuleSnapshot(memory, "gpugate").load().keys()  # type: ignore[union-attr]
    assert [] == still.again


def test_what_was_deleted_while_no_gate_ran_is_gone() -> None:
    """The versions that were kept count for ConfigMaps that are there."""
    memory = Memory()
    memory.put("/api/v1/namespaces/gpugate/configmaps/gpugate-last-good", {"metadata": {}})
    Still(RuleSnapshot(memory, "gpugate")).list_rules(GOOD, version("b", "vendor.com/other"))
    after = Still(RuleSnapshot(memory, "gpugate"))
    after.list_rules(version("b", "vendor.com/other", limits="disabled"))

    assert ["disabled"] == limits(after.gate)


def test_a_heartbeat_that_changes_nothing_leaves_the_snapshot_as_it_is() -> None:
    """No copy, no swap."""
    still = Still()
    still.live.node_changed(Listed([node("one", gfd("12.2"))]))
    before = still.gate.snapshot
    still.live.node_changed(Applied(node("one", gfd("12.2"))))

    assert still.gate.snapshot is before


def test_nodes_come_change_and_go() -> None:
    """A list replaces them all."""
    still = Still()
    counts = []
    for change in (
        Listed([node("one"), node("two")]),
        Applied(node("three")),
        Deleted(node("one")),
        Listed([node("four")]),
    ):
        still.live.node_changed(change)
        counts.append(sorted(still.gate.snapshot.inventory.names(still.gate.snapshot.inventory.everything)))

    assert [["one", "two"], ["one", "three", "two"], ["three", "two"], ["four"]] == counts
    assert 1 == sample("gpugate_inventory_nodes")


def eventually(happened: Callable[[], bool]) -> None:
    """Look until something is so, for some seconds."""
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def following(api: ClusterApi) -> Iterator[AdmissionHandler]:
    """Keep a gate at what an API server holds, while the block runs."""
    gate = AdmissionHandler(Loaded())
    live = Live(api, gate, NAMESPACE)
    live.start()
    try:
        yield gate
    finally:
        live.stop()


def test_a_gate_follows_an_api_server_and_tells_it_of_mistakes() -> None:
    """By an Event on the ConfigMap, once for all replicas; and it stays ready when the API server goes."""
    fake = FakeApi()
    fake.put(RULES, parsed(GOOD))
    fake.put(NODES, node("one"))
    with running(fake) as api, following(api) as gate, following(api) as replica:
        eventually(lambda: gate.ready and replica.ready)
        fake.put(RULES, parsed(version("a", limits="disabled")))
        eventually(lambda: limits(gate) == limits(replica) == ["disabled"])
        fake.put(RULES, parsed(BROKEN))
        eventually(lambda: bool(gate.snapshot.stale and replica.snapshot.stale))
        eventually(lambda: sum(request.path == EVENTS for request in fake.requests) == 2)
    (event,) = fake.objects(EVENTS)

    assert (True, ["disabled"]) == (gate.ready, limits(gate))
    assert ("Warning", "RuleRefused", "cf-crl-a") == (
        event["type"],
        event["reason"],
        event["involvedObject"]["name"],
    )
    assert "data.limits: expected one of disabled, required, optional, got 'optinal'" in event["message"]


def test_an_event_that_cannot_be_written_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """RBAC may not have it, and the API server may be away."""
    fake = FakeApi(refusals=[403])
    with running(fake) as api, caplog.at_level(logging.WARNING, "gpugate.cluster"):
        write_refusal(api, parsed(BROKEN), "wrong")
    write_refusal(api, parsed(BROKEN), "wrong")
    api.close()

    assert [
        f"no Event was written on cf-crl-a: POST {EVENTS}: 403 refused by the test",
    ] == [record.message for record in caplog.records[:1]]
    assert 2 == len(caplog.records)


def test_an_event_takes_long_names_and_long_messages() -> None:
    """As far as the API server does."""
    fake = FakeApi()
    long = parsed(config_map("x" * 240 + "." + "y" * 12, {}, {}))
    with running(fake) as api:
        write_refusal(api, long, "值" * 1000, lambda: datetime(2026, 11, 21, 5, 0, tzinfo=UTC))
    (event,) = fake.objects(EVENTS)

    assert len(event["metadata"]["name"]) <= 253
    assert (1023, True) == (len(event["message"].encode()), event["message"].endswith("值…"))
    assert "2026-11-21T05:00:00Z" == event["firstTimestamp"]


def test_the_same_mistake_in_a_later_version_is_another_event() -> None:
    """Who makes it again is told again."""
    fake = FakeApi()
    with running(fake) as api:
        for number in (1, 1, 2):
            write_refusal(api, parsed(BROKEN, number), "wrong")

    assert 2 == len(fake.objects(EVENTS))


def test_rules_and_nodes_change_while_requests_are_answered_by_one_of_them() -> None:
    """Each answer is by one snapshot; the next is by the next."""
    still = Still()
    still.list_rules(version("a", limits="required"))
    still.live.node_changed(Listed([]))
    patched = json.loads(still.gate.answer("mutate", body(pod({"vendor.com/device": "1"}))))
    still.live.rule_changed(SELECTOR, Applied(parsed(version("a", limits="disabled"), 2)))
    still.settle()
    refused = json.loads(still.gate.answer("mutate", body(pod({"vendor.com/device": "1"}))))

    assert (True, False) == (patched["response"]["allowed"], refused["response"]["allowed"])


def test_a_server_with_nothing_left_to_follow_says_so(tmp_path: Path) -> None:
    """Files for all, and a cluster too, is a mistake; so is a kubeconfig that is none."""
    (tmp_path / "rule.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(node("one")), "utf-8")
    api = FakeApi()
    with running(api):
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(api.kubeconfig()), "utf-8")
        files = ["--rules", str(tmp_path / "rule.yaml"), "--nodes", str(tmp_path / "nodes.yaml")]
        both = CliRunner().invoke(main, ["serve", "--kubeconfig", str(kubeconfig), *files])
    none = CliRunner().invoke(main, ["serve", "--kubeconfig", "/nowhere"])

    assert (2, 2) == (both.exit_code, none.exit_code)
    assert "with --rules and --nodes nothing is left to take from the cluster" in both.output
    assert "look at --kubeconfig and --context" in none.output


def test_a_server_in_a_pod_follows_its_own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules given as files keep it from that."""
    own = ClusterApi(Configuration())
    monkeypatch.setattr(ClusterApi, "in_cluster", lambda: own)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    outside = _cluster(None, None, of_pod=True)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

    assert (None, own, None) == (
        outside,
        _cluster(None, None, of_pod=True),
        _cluster(None, None, of_pod=False),
    )
