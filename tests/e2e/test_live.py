"""`gpugate serve` on a real API server: rules and nodes stay up to date, whatever happens."""

from __future__ import annotations

import json
import signal
import threading
import time
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rules import Loaded
from rules.schema.config_map import DEFAULT_NAMESPACE
from tests.e2e.cluster import ControlPlane
from tests.e2e.installed import TEAM, Installed
from tests.e2e.serve_process import PATIENCE_S, ServeProcess, ask, eventually
from tests.e2e.test_bare_cluster import gpugate
from tests.e2e.test_control_plane import node, pod
from tests.support.builders import resource_rule
from tests.support.node_builders import gfd, node_profile
from tests.support.webhooks import body
from tests.support.webhooks import pod as reviewed
from webhook.admission.handler import AdmissionHandler
from webhook.cli.commands.serve import _background
from webhook.cluster import profile_events
from webhook.cluster.client import ClusterApi
from webhook.cluster.reflector import Change, Listed, Reflector
from webhook.cluster.resource import NODES, Resource, config_maps
from webhook.cluster.watched_objects import WatchedObjects
from webhook.telemetry.metrics import REGISTRY

# Seconds in which a change of a rule is in force.
LIVE_S = 2.0
# Seconds for which the API server is away: what a change of its machine takes.
AWAY_S = 60.0
DEVICE, OTHER = "vendor.com/device", "vendor.com/other"


@dataclass(frozen=True)
class Cluster:
    """An installation whose rules this module edits."""

    installed: Installed

    @property
    def control_plane(self) -> ControlPlane:
        """Where it is installed."""
        return self.installed.cluster

    @property
    def server(self) -> ServeProcess:
        """What runs."""
        return self.installed.server

    def apply(self, document: str, *, check: bool = True) -> str:
        """Apply a rule; return what kubectl has against it."""
        return self.control_plane.kubectl("apply", "-f", "-", input=document, check=check).stderr

    def limits(self, resource: str, requested: str) -> str | None:
        """Return the limit of a resource in a new pod that requests another resource of its group.

        Or the error if the pod is denied.
        """
        shown = self.control_plane.kubectl(
            *("create", "-n", TEAM, "--dry-run=server", "-o", "json", "-f", "-"),
            input=pod("new", {requested: "1"}),
            check=False,
        )
        if shown.returncode:
            return shown.stderr
        limits: dict[str, str] = json.loads(shown.stdout)["spec"]["containers"][0]["resources"]["limits"]
        return limits.get(resource)


@pytest.fixture(scope="module")
def served(installed: Installed) -> Cluster:
    """Return the installation of this module."""
    return Cluster(installed)


def rule(default: str = "1", key: str = DEVICE, group: str = "live", **data: str) -> str:
    """Return a rule with a default for a resource of a group."""
    return resource_rule(key, group=group, prefix="features.alauda.io/", defaultValue=default, **data)  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def _rules(served: Cluster) -> None:
    """Put two rules of a group into force: a pod that requests one resource gets the other."""
    served.apply(rule("1"))
    served.apply(rule("1", OTHER))
    eventually(lambda: served.limits(DEVICE, OTHER) == "1")


def test_an_edit_applies_to_the_next_pod(served: Cluster) -> None:
    """Within two seconds of `kubectl apply`."""
    served.apply(rule("7"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "7", LIVE_S)


def test_a_rule_for_a_new_resource_applies_to_the_next_pod(served: Cluster) -> None:
    """Within three times that: the API server has to take the new match conditions, too."""
    served.apply(rule("5", "fresh.com/a", "fresh"))
    served.apply(rule("5", "fresh.com/b", "fresh"))
    eventually(lambda: served.limits("fresh.com/a", "fresh.com/b") == "5", 3 * LIVE_S)


def test_a_burst_of_edits_applies_to_the_next_pod(served: Cluster) -> None:
    """Two hundred edits are one change."""
    api = ClusterApi.of_kubeconfig(str(served.control_plane.kubeconfig))
    for number in range(200):
        group = "burst" if number < 198 else "last"
        document = yaml.safe_load(rule("9", f"burst.com/r{number}", group))
        api.create(config_maps(DEFAULT_NAMESPACE), document)
    api.close()
    eventually(lambda: served.limits("burst.com/r199", "burst.com/r198") == "9")
    burst = f"{config_maps(DEFAULT_NAMESPACE)}?labelSelector=features.alauda.io/group+in+(burst,last)"
    served.control_plane.kubectl("delete", "--raw", burst)
    eventually(lambda: served.limits("burst.com/r199", "burst.com/r198") is None)


def test_an_edit_with_an_error_is_denied_with_its_place(served: Cluster) -> None:
    """The previous version stays in force."""
    served.apply(rule("2"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "2")
    refusal = served.apply(rule("3", limits="optinal"), check=False)

    assert 'admission webhook "validate.rules.gpugate.dev" denied the request' in refusal
    assert "data.limits: expected one of disabled, required, optional, got 'optinal'" in refusal
    assert "2" == served.limits(DEVICE, OTHER)


def test_an_edit_with_a_misspelt_member_in_an_expression_is_denied_with_its_place(served: Cluster) -> None:
    """It would deny every pod of the resource; the previous version stays in force."""
    served.apply(rule("2"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "2")
    mistaken = yaml.safe_load(rule("3"))
    mistaken["data"]["validations"] = "- expression: pod.namespce == 'team'"
    refusal = served.apply(yaml.safe_dump(mistaken), check=False)

    assert 'admission webhook "validate.rules.gpugate.dev" denied the request' in refusal
    assert "CEL: column 1: unexpected `pod.namespce` – did you mean `pod.namespace`?" in refusal
    assert "2" == served.limits(DEVICE, OTHER)


def test_a_second_claim_of_a_resource_is_denied(served: Cluster) -> None:
    """With the name of the first rule."""
    second = yaml.safe_load(rule("3"))
    second["metadata"]["name"] = "cf-crl-second-device"

    assert "data.key: 'vendor.com/device' is also used by cf-crl-live-device" in served.apply(
        yaml.safe_dump(second), check=False
    )


def test_after_a_broken_rule_bypasses_the_webhook_the_last_good_version_stays_in_force(
    served: Cluster,
) -> None:
    """Also after a restart. Metric and Event report it; other rules are updated; a correction ends it."""
    served.apply(rule("4"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "4")
    empty = ("patch", "configmap", "gpugate-last-good", "-n", "gpugate", "-p", '{"binaryData": null}')
    served.control_plane.kubectl(*empty)  # as one that was deleted and applied again
    _break(served)
    eventually(lambda: served.limits(DEVICE, OTHER) == "4")
    served.apply(rule("6", OTHER))
    eventually(lambda: served.limits(OTHER, DEVICE) == "6", LIVE_S)
    eventually(lambda: "data.limits: expected one of" in _events(served))

    assert "4" == served.limits(DEVICE, OTHER)
    assert "the previous version stays in force" in _events(served)
    served.server.kill()
    served.server.start()
    eventually(lambda: served.limits(DEVICE, OTHER) == "4")
    assert 1 == served.server.sample('gpugate_rules{state="stale"}')
    served.apply(rule("8"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "8", LIVE_S)
    assert 0 == served.server.sample('gpugate_rules{state="stale"}')


def test_a_command_decides_by_the_last_good_version_of_a_broken_rule(served: Cluster, tmp_path: Path) -> None:
    """As the webhook does, which has saved it. A line says so, and the exit status is that of an error."""
    served.apply(rule("4"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "4")
    _break(served)
    file = tmp_path / "pod.yaml"
    file.write_text(pod("new", {OTHER: "1"}), "utf-8")
    kubeconfig = served.control_plane.kubeconfig
    words = ("preview", "--kubeconfig", str(kubeconfig), "-n", TEAM, "-o", "yaml", "-f", str(file))

    def previewed() -> tuple[int, str, str]:
        done = gpugate(kubeconfig, *words)
        limits = yaml.safe_load(done.stdout)["spec"]["containers"][0]["resources"]["limits"]
        return done.returncode, limits.get(DEVICE, ""), done.stderr

    eventually(lambda: previewed()[1] == "4")  # it is saved soon after it is in force
    status, limit, messages = previewed()

    assert (2, limit) == (status, served.limits(DEVICE, OTHER))
    assert "data.limits: expected one of disabled, required, optional, got 'optinal'" in messages
    assert (
        "the webhook keeps the last valid version of cf-crl-live-device, which is used here, too"
    ) in messages
    served.apply(rule("8"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "8", LIVE_S)


def _break(served: Cluster) -> None:
    """Write an invalid version of the rule past the webhook; wait until the webhook has seen it."""
    served.control_plane.kubectl("delete", "validatingwebhookconfiguration", "gpugate")
    served.apply(rule("5", limits="optinal"))
    served.installed.apply()
    eventually(lambda: served.server.sample('gpugate_rules{state="stale"}') == 1)
    eventually(served.installed.trusted)


def _events(served: Cluster) -> str:
    """Return the Events of the rule."""
    shown = served.control_plane.kubectl(
        *("events", "-n", DEFAULT_NAMESPACE, "--for", "configmap/cf-crl-live-device", "--types=Warning")
    )
    return shown.stdout


def test_a_profile_that_a_node_contradicts_gets_an_event(
    served: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rights of the manifests; checks are as frequent as in a test."""
    monkeypatch.setattr(profile_events, "CHECK_INTERVAL", 0.2)
    kubectl = served.control_plane.kubectl
    api = ClusterApi.of_kubeconfig(str(served.control_plane.service_account("gpugate", "gpugate")))
    handler = AdmissionHandler(Loaded())
    background = list(
        _background(api, WatchedObjects(api, []), handler, DEFAULT_NAMESPACE, ["rules", "nodes"], "gpugate")
    )
    for task in background:
        task.start()
    try:
        served.apply(node_profile(name="live-profile", cuda="13.0"))
        kubectl("create", "-f", "-", input=node("live-old", gfd("12.2", pool="a"), {"cpu": "1"}))
        shown = ("events", "-n", DEFAULT_NAMESPACE, "--for", "configmap/live-profile", "--types=Warning")
        eventually(lambda: "cuda is 13.0 in the profile, but 12.2 on present nodes" in kubectl(*shown).stdout)
    finally:
        for task in background:
            task.stop()
        kubectl("delete", "node", "live-old")
        kubectl("delete", "configmap", "-n", DEFAULT_NAMESPACE, "live-profile")
    api.close()


@pytest.mark.timeout(AWAY_S + 2 * PATIENCE_S)
def test_gpugate_survives_an_outage_of_the_api_server(served: Cluster) -> None:
    """It stays ready with the rules and nodes that it knows, and catches up after the restart."""
    served.apply(rule("10"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "10")
    served.control_plane.kill_apiserver()
    back = time.monotonic() + AWAY_S
    seen = set()
    while time.monotonic() < back:
        status, answer = ask(served.installed.port, "/mutate", body(reviewed({OTHER: "1"})))
        patch = json.loads(b64decode(json.loads(answer)["response"]["patch"]))
        seen.add((served.server.ready(), status, *(edit["value"] for edit in patch)))
        time.sleep(0.2)
    restarts = served.server.sample('gpugate_watch_restarts_total{reason="away",resource="nodes"}')
    served.control_plane.restart_apiserver()
    served.apply(rule("11"))
    eventually(lambda: served.limits(DEVICE, OTHER) == "11")

    assert {(True, 200, "10")} == seen
    assert restarts > 0
    assert served.server.ready()


def test_after_a_compaction_of_etcd_gpugate_lists_again(served: Cluster) -> None:
    """410 Gone causes only a list; changes during the pause are known afterwards."""
    served.server.send(signal.SIGSTOP)
    try:
        served.control_plane.restart_apiserver()  # which ends the watches
        served.control_plane.kubectl("create", "-f", "-", input=node("live-missed", {}, {"cpu": "1"}))
        served.control_plane.forget()
    finally:
        served.server.send(signal.SIGCONT)
    try:
        eventually(lambda: served.server.sample("gpugate_inventory_nodes") == 2)

        assert served.server.sample('gpugate_watch_restarts_total{reason="expired",resource="nodes"}') > 0
        assert served.server.ready()
    finally:
        served.control_plane.kubectl("delete", "node", "live-missed")
    eventually(lambda: served.server.sample("gpugate_inventory_nodes") == 1)


def test_bookmarks_update_the_resource_version_of_a_watch(control_plane: ControlPlane) -> None:
    """The API server sends one before it ends the request, so that no list is required."""
    api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
    heard: list[Change] = []
    pauses: list[float] = []
    resource = Resource("quiet", config_maps("default"), "none=has-this")
    watch = Reflector(api, resource, pause=pauses.append, chance=lambda: 0.5, watch_s=5)
    watch.start(heard.append)
    eventually(lambda: watch._stream is not None)
    control_plane.kubectl("create", "configmap", "-n", "default", "noise")
    restarts = {"resource": "quiet", "reason": "ended"}
    eventually(lambda: REGISTRY.get_sample_value("gpugate_watch_restarts_total", restarts) == 1)
    eventually(lambda: watch._stream is not None)
    watch.stop()
    api.close()

    assert ([Listed([])], [0]) == (heard, pauses)


def test_a_watch_over_tls_stops_immediately(control_plane: ControlPlane) -> None:
    """The thread that waits for the next event ends."""
    api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
    heard: list[Change] = []
    watch = Reflector(api, Resource("stopped", NODES))
    watch.start(heard.append)
    eventually(lambda: bool(heard) and watch._stream is not None)
    (thread,) = [running for running in threading.enumerate() if running.name == "watch stopped"]
    watch.stop()
    thread.join(1)
    api.close()

    assert not thread.is_alive()
