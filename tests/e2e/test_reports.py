"""OpenReports on a real API server with their CustomResourceDefinitions, by the account of the CronJob."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.e2e.manifests import MANIFESTS, ROOT, render
from tests.support.report_schemas import SCHEMAS

if TYPE_CHECKING:
    from tests.e2e.cluster import ControlPlane

_DEFINITIONS: Final = ("openreports.io_reports.yaml", "openreports.io_clusterreports.yaml")
# More than all cores of a card: denied by a built-in rule, whatever the nodes.
_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "too-many"},
    "spec": {
        "containers": [
            {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpucores": "150"}}}
        ]
    },
}


@pytest.fixture(scope="module")
def account(empty_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the definitions and the component; return a kubeconfig of its service account."""
    cluster, folder = empty_control_plane, tmp_path_factory.mktemp("overlay")
    for name in _DEFINITIONS:
        cluster.kubectl("apply", "--server-side", "-f", str(SCHEMAS / name))
    cluster.kubectl("wait", "--for=condition=Established", "crd/reports.openreports.io", "--timeout=30s")
    cluster.kubectl("create", "namespace", "gpugate")
    up = "/".join([".."] * (len(folder.resolve().parts) - 1))
    overlay = {"kind": "Kustomization", "components": [f"{up}{MANIFESTS}/components/reports"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    objects = yaml.safe_dump_all(render(folder))
    cluster.kubectl("apply", "--validate=strict", "-f", "-", input=objects)
    return cluster.service_account("gpugate", "gpugate-reports")


def _write(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of the CronJob."""
    *_, cronjob = (
        document
        for document in yaml.safe_load_all((MANIFESTS / "components/reports/cronjob.yaml").read_text("utf-8"))
        if document["kind"] == "CronJob"
    )
    (container,) = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    argv = [sys.executable, "-P", "-m", "webhook", *container["args"], f"--kubeconfig={kubeconfig}"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


def _reports(cluster: ControlPlane) -> dict[str, Any]:
    listed = json.loads(cluster.kubectl("get", "reports.openreports.io", "-A", "-o", "json").stdout)
    return {item["metadata"]["namespace"]: item for item in listed["items"]}


def test_the_account_of_the_cronjob_writes_reports_and_deletes_stale_ones(
    empty_control_plane: ControlPlane, account: Path
) -> None:
    """The API server accepts them; what did not change is not written again; others' Reports stay."""
    cluster = empty_control_plane
    for name in ("team-a", "team-b"):
        cluster.kubectl("create", "namespace", name)
    cluster.kubectl("create", "-n", "team-a", "-f", "-", input=json.dumps(_POD))
    foreign = {"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "metadata": {"name": "other"}}
    cluster.kubectl("create", "-n", "team-b", "-f", "-", input=json.dumps(foreign))

    first = _write(account)
    reports = _reports(cluster)
    second = _write(account)
    again = _reports(cluster)
    cluster.kubectl("delete", "pod", "-n", "team-a", "too-many", "--grace-period=0", "--force")
    third = _write(account)

    assert [0, 0, 0] == [completed.returncode for completed in (first, second, third)], (
        first.stderr + third.stderr
    )
    assert "Reports: 1 written, 0 deleted\n" == first.stdout
    assert 1 == reports["team-a"]["summary"]["fail"]
    assert "too-many" == reports["team-a"]["results"][0]["resources"][0]["name"]
    assert reports["team-a"]["metadata"]["resourceVersion"] == again["team-a"]["metadata"]["resourceVersion"]
    assert "Reports: 0 written, 1 deleted\n" == third.stdout
    assert {"team-b"} == set(_reports(cluster))


def test_the_account_may_not_change_reports_of_others(
    empty_control_plane: ControlPlane, account: Path
) -> None:
    """Nor anything else."""
    for verb, what in (("delete", "reports.openreports.io/other"), ("update", "pods"), ("get", "secrets")):
        answer = empty_control_plane.kubectl(
            "auth", "can-i", verb, what, "-A", f"--kubeconfig={account}", check=False
        )
        assert "no" == answer.stdout.strip(), (verb, what)
