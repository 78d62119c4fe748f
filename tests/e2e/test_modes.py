"""From observing to enforcing on a real API server: installed by Helm, upgraded mode by mode, uninstalled."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import (
    CUDA,
    GPU,
    OFFERED,
    TEAM,
    VCUDA_CORE,
    VCUDA_MEMORY,
    Installation,
)
from tests.e2e.manifests import commands
from tests.e2e.serve_process import ServeProcess, eventually
from tests.e2e.test_chart import Release
from tests.e2e.test_control_plane import node, pod
from tests.support.chart import CHART

BAD = {VCUDA_CORE: "20", GPU: "1"}
INCOMPLETE = {VCUDA_MEMORY: "8"}
COMPLETE = {VCUDA_MEMORY: "8", VCUDA_CORE: "20"}


@dataclass(frozen=True)
class Modes:
    """A release whose server is started again with the options of its Deployment after each upgrade.

    bare: the pods that `gpugate audit` would deny before the installation.
    """

    bare: list[str]
    release: Release
    installation: Installation
    log: Path
    servers: list[ServeProcess]

    @property
    def server(self) -> ServeProcess:
        """The server that runs."""
        return self.servers[-1]

    def change(self, mode: str, verb: str = "upgrade", *options: str) -> None:
        """Install or upgrade it in a mode."""
        self.release.change(verb, f"--set=mode={mode}", *options)
        shown = self.release.cluster.kubectl("get", "-n", "gpugate", "deployment/gpugate", "-o", "json")
        (container,) = json.loads(shown.stdout)["spec"]["template"]["spec"]["containers"]
        added = [argument for argument in container["args"] if argument.startswith("--enforcement-action")]
        for server in self.servers:
            server.stop()
        self.servers.append(self.installation.serve(self.log, *added))
        self.server.start()
        eventually(lambda: self.server.ready() and self.installation.trusted())
        eventually(self._is_called)

    def create(self, name: str, limits: dict[str, str]) -> tuple[Any, str]:
        """Create a pod; return its limits as stored, None if it is denied, and what kubectl reports."""
        create = ("create", "-n", TEAM, "-o", "json", "-f", "-")
        done = self.release.cluster.kubectl(*create, input=pod(name, limits), check=False)
        if done.returncode:
            return None, done.stderr
        return json.loads(done.stdout)["spec"]["containers"][0]["resources"]["limits"], done.stderr

    def counted(self, effect: str, endpoint: str, action: str) -> float:
        """Return the number of new pods on which an effect was withheld."""
        labels = f'effect="{effect}",endpoint="{endpoint}",enforcement_action="{action}"'
        return self.server.sample(f'gpugate_withheld_effects_total{{{labels},kind="Pod",operation="CREATE"}}')

    def _is_called(self) -> bool:
        reviews = self.server.reviews()
        dry_run = ("create", "-n", TEAM, "--dry-run=server", "-f", "-")
        self.release.cluster.kubectl(*dry_run, input=pod("asks", INCOMPLETE), check=False)
        return self.server.reviews() > reviews


def _audited(cluster: ControlPlane) -> list[str]:
    """Return the names of the pods in a cluster that `gpugate audit` would deny."""
    command = [sys.executable, "-m", "webhook", "audit", "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=120, check=False)
    return sorted(
        workload["name"] for workload in json.loads(done.stdout)["workloads"] if not workload["allowed"]
    )


def _administrate(cluster: ControlPlane, whom: str) -> None:
    """Give a user the rights of the role admin; no controller aggregates them here."""
    for part in ("view", "edit", "admin"):
        name = f"{part}-{whom.rpartition('=')[2].replace(':', '-')}"
        role = f"--clusterrole=system:aggregate-to-{part}"
        cluster.kubectl("create", "rolebinding", name, "-n", TEAM, role, whom)


@pytest.fixture(scope="module")
def modes(empty_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Modes]:
    """Yield a cluster with a pod that rules deny, and gpugate installed in the mode observe."""
    cluster, folder = empty_control_plane, tmp_path_factory.mktemp("modes")
    cluster.kubectl("create", "namespace", TEAM)
    cluster.kubectl("create", "-f", "-", input=node("fits", CUDA, OFFERED))
    cluster.kubectl("create", "-n", TEAM, "-f", "-", input=pod("before", BAD))
    bare = _audited(cluster)
    with reserve_port() as held:
        port = held.getsockname()[1]
        release = Release(cluster, port, folder)
        release.change("install", "--create-namespace", "--set=mode=observe")
        _, command = commands("install.md", "On a developer's machine")
        kubeconfig = cluster.service_account("gpugate", "gpugate")
        _, _, *options = shlex.split(command.replace("$KUBECONFIG", str(kubeconfig)))
        installed = Modes(bare, release, Installation(cluster, port, [], options), folder / "serve.log", [])
        installed.change("observe")
        try:
            yield installed
        finally:
            installed.server.stop()


def test_audit_finds_bad_pods_before_anything_is_installed(modes: Modes) -> None:
    """By the built-in rules, because the cluster has none."""
    assert ["before"] == modes.bare


def test_observe_denies_and_changes_nothing_and_counts_all(modes: Modes) -> None:
    """No warning either; `gpugate audit` counts the pods that are there."""
    denied = modes.counted("deny", "validate", "dryrun")
    patched = modes.counted("patch", "mutate", "dryrun")

    assert (BAD, "") == modes.create("bad", BAD)
    assert (INCOMPLETE, "") == modes.create("incomplete", INCOMPLETE)
    assert denied + 1 == modes.counted("deny", "validate", "dryrun")
    assert patched + 1 == modes.counted("patch", "mutate", "dryrun")
    assert 1 == modes.server.sample('gpugate_enforcement_action{action="dryrun"}')
    assert ["bad", "before"] == _audited(modes.release.cluster)


def test_the_audit_event_of_a_pod_has_what_observe_withholds(modes: Modes) -> None:
    """The control plane writes audit events of service accounts."""
    cluster = modes.release.cluster
    cluster.kubectl("create", "serviceaccount", "audited", "-n", TEAM)
    _administrate(cluster, f"--serviceaccount={TEAM}:audited")
    user = str(cluster.service_account(TEAM, "audited"))
    cluster.kubectl("create", "--kubeconfig", user, "-n", TEAM, "-f", "-", input=pod("audited", BAD))
    events = [json.loads(line) for line in cluster.audit.read_text("utf-8").splitlines()]
    own = [event for event in events if event["user"]["username"].endswith(f":{TEAM}:audited")]
    (event,) = [own_event for own_event in own if own_event["verb"] == "create"]
    event_annotations = event["annotations"]

    assert "dryrun, would deny" == event_annotations["validate.gpugate.dev/enforcement-action"]
    assert f"limits[{VCUDA_CORE}]" in event_annotations["validate.gpugate.dev/dryrun"]


def test_observe_denies_nothing_while_no_replica_answers(modes: Modes) -> None:
    """By the failurePolicy of its webhooks."""
    modes.server.kill()
    try:
        assert (BAD, "") == modes.create("unseen", BAD)
    finally:
        modes.server.start()


def test_warn_completes_pods_and_warns_of_what_enforce_denies(modes: Modes) -> None:
    """Pods that violate a rule are created."""
    modes.change("warn")
    created, warning = modes.create("warned", BAD)
    completed, silence = modes.create("completed", INCOMPLETE)

    assert created is not None
    assert "Warning: gpugate: " in warning
    assert (COMPLETE, "") == (completed, silence)
    assert modes.counted("deny", "validate", "warn") >= 1


def test_enforce_denies_what_the_others_counted(modes: Modes) -> None:
    """After one upgrade; controllers and pods that are there stay."""
    modes.change("enforce")
    created, message = modes.create("denied", BAD)

    assert created is None
    assert "denied by gpugate" in message
    assert COMPLETE == modes.create("enforced", INCOMPLETE)[0]


def test_a_namespace_with_the_label_is_not_reviewed_and_its_tenants_may_not_set_it(modes: Modes) -> None:
    """Pods are created as they are; the role admin in a namespace has no right to label it."""
    cluster = modes.release.cluster
    _administrate(cluster, "--user=tenant")
    may = ("auth", "can-i", "-n", TEAM, "--as=tenant")
    cluster.kubectl("label", "namespace", TEAM, "gpugate.dev/ignore=true")
    try:
        eventually(lambda: modes.create("ignored", BAD) == (BAD, ""))
        assert ["yes\n", "no\n"] == [
            cluster.kubectl(*may, *action, check=False).stdout
            for action in (("create", "pods"), ("patch", f"namespaces/{TEAM}"))
        ]
    finally:
        cluster.kubectl("label", "namespace", TEAM, "gpugate.dev/ignore-")
    eventually(lambda: "denied by gpugate" in modes.create("reviewed", BAD)[1])


@pytest.mark.parametrize(
    ("mode", "following", "sentence"),
    [
        ("enforce", [], "pods that violate them are denied"),
        ("warn", ["enforce"], "Nothing is denied: users are warned"),
        ("observe", ["warn"], "Nothing is denied or changed"),
    ],
)
def test_the_notes_name_the_mode_and_the_command_for_the_next(
    modes: Modes, mode: str, following: list[str], sentence: str
) -> None:
    """As `helm upgrade` prints them."""
    shown = modes.release.run("upgrade", "gpugate", str(CHART), f"--set=mode={mode}", "--dry-run=server")
    _, _, notes = shown.partition("\nNOTES:\n")

    assert f"is installed, in mode {mode}.\n" in notes
    assert sentence in notes
    assert following == [part.split()[0] for part in notes.split("--set mode=")[1:]]


def test_after_uninstallation_pods_are_created_unchanged(modes: Modes) -> None:
    """Without a server; nothing of the chart blocks them."""
    modes.server.kill()
    modes.release.run("uninstall", "gpugate")

    assert (BAD, "") == modes.create("after", BAD)
