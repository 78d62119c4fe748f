"""The complaints of GPU users on a real API server: kubectl prints what `gpugate preview` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.complaints.test_complaints import COMPLAINTS, FOLDER, previewed
from tests.e2e.cluster import ControlPlane, assets
from tests.e2e.cluster import missing as absent
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import TEAM, Installed, install, running
from tests.e2e.serve_process import eventually


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield gpugate with the built-in rules, in a cluster."""
    binaries, folder = assets(), tmp_path_factory.mktemp("complaints")
    if absent(binaries):
        pytest.skip("no Kubernetes: run `make e2e-assets`")
    with reserve_port() as held, ControlPlane(binaries, folder / "cluster") as control_plane:
        installation = install(control_plane, held.getsockname()[1])
        with running(installation, folder / "serve.log") as running_installation:
            yield running_installation


@pytest.fixture
def cluster(installed: Installed, complaint: str) -> Iterator[Installed]:
    """Yield the cluster with the nodes and the rules of a complaint."""
    kubectl, folder = installed.cluster.kubectl, FOLDER / complaint
    kubectl("delete", "nodes", "--all")
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == 0)
    files = [path for path in (folder / "nodes.yaml", folder / "rules.yaml") if path.exists()]
    objects = [f"--filename={path}" for path in files]
    kubectl("create", *objects)
    count = len(list(yaml.safe_load_all((folder / "nodes.yaml").read_text("utf-8"))))
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == count)
    yield installed
    kubectl("delete", *objects)


def said(cluster: Installed, manifest: Path) -> tuple[bool, str]:
    """Return whether a pod would be created, and what kubectl prints about it."""
    created = ("create", "-n", TEAM, "--dry-run=server", "-f", str(manifest))
    done = cluster.cluster.kubectl(*created, check=False)
    return done.returncode == 0, done.stderr


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_kubectl_prints_what_preview_says_and_accepts_the_fixed_pod(
    cluster: Installed, complaint: str
) -> None:
    """The fixed pod without a warning."""
    folder, (_, preview) = FOLDER / complaint, previewed(complaint, "pod.yaml")
    denials = [violation["message"] for violation in preview["violations"] if violation["action"] == "deny"]
    messages = [text.partition("\n")[0] for text in (*denials, *preview["warnings"])]

    eventually(lambda: said(cluster, folder / "pod.yaml")[0] is preview["allowed"])
    _, printed = said(cluster, folder / "pod.yaml")

    assert messages
    assert [] == [text for text in messages if text not in printed]
    assert (True, "") == said(cluster, folder / "fixed.yaml")
