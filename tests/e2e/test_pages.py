"""The commands of our pages work in a cluster and print the output in the pages.

The API server, the controllers, the scheduler and gpugate are real. `replicas` replaces the kubelet: it
reports that pods run, and serves the log of gpugate.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.cluster import assets, missing
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import CUDA, OFFERED, TEAM, Installed, install, running
from tests.e2e.manifests import MANIFESTS, render
from tests.e2e.replicas import Replicas, RoutingControlPlane
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node
from tests.support.pages import (
    DENIED,
    ENGINE,
    IN_CLUSTER,
    expected_status,
    fences,
    same,
    terminal,
    text_of,
    write,
)
from tests.support.paths import ROOT

# Seconds for the commands of a fence: the slowest apply some 150 objects twice.
_FENCE_S: Final = 180.0
_LOG: Final = "serve.log"
# The API group of the Prometheus operator.
_MONITORING: Final = "monitoring.coreos.com"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the cluster of these tests, with the log of gpugate."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def installed(folder: Path) -> Iterator[Installed]:
    """Yield a server that is reachable by URL and, if possible, by its Service."""
    more = [name for name in ("kube-scheduler", "kube-controller-manager") if not (assets() / name).is_file()]
    if absent := [*missing(assets()), *more]:
        pytest.skip(f"no {', '.join(absent)} in {assets()}: run `make e2e-assets`")
    reached = ("--host=0.0.0.0", "--name=gpugate.gpugate.svc")
    with (
        reserve_port() as held,
        RoutingControlPlane(assets(), folder / "cluster", scheduler=True) as cluster,
        running(install(cluster, held.getsockname()[1]), folder / _LOG, *reached) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def replicas(installed: Installed, folder: Path) -> Iterator[None]:
    """Run the controllers, and the pods of gpugate."""
    with (
        installed.cluster.controllers("endpoints-controller", "endpointslice-controller"),
        Replicas(installed.cluster, installed.port, folder / _LOG),
    ):
        yield


def _waits_for_a_node(installed: Installed) -> None:
    """Create only the three nodes of the examples, the newest full, and the pod of the page."""
    cluster = installed.cluster
    cluster.kubectl("delete", "node", "--all")
    for document in yaml.safe_load((ROOT / "docs/compatibility/nodes.yaml").read_text("utf-8"))["items"]:
        offered = document["status"]["allocatable"] | {"pods": "110"}
        cluster.kubectl(
            "create",
            "-f",
            "-",
            input=node(document["metadata"]["name"], document["metadata"]["labels"], offered),
        )
    page = "docs/app-developers.md"
    (written,) = [fence.text for fence in fences(text_of(page), page) if fence.file == "my-pod.yaml"]
    waiting = yaml.safe_load(written)
    full: dict[str, Any] = yaml.safe_load(written)
    full["metadata"]["name"] = "full"
    full["spec"] |= {"nodeName": "a100-a"}
    full["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 8}
    create = ("create", "-f", "-")
    # Once gpugate knows the nodes, it injects node affinity.
    dry_run = (*create, "--dry-run=server", "-o", "yaml")
    eventually(lambda: "nodeAffinity" in cluster.kubectl(*dry_run, input=written).stdout)
    for document in (full, waiting):
        cluster.kubectl(*create, input=yaml.safe_dump(document))
    events = ("get", "events", "-o", "name", "--field-selector", "reason=FailedScheduling")
    eventually(lambda: cluster.kubectl(*events).stdout != "")


def _has_the_operator(installed: Installed) -> None:
    """Define the kinds of the Prometheus operator in our manifests, with any content."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    objects = render(MANIFESTS / "monitoring")
    for kind in {document["kind"] for document in objects if document["apiVersion"] == f"{_MONITORING}/v1"}:
        names = {"kind": kind, "plural": f"{kind}s".lower(), "singular": kind.lower()}
        name = f"{names['plural']}.{_MONITORING}"
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": _MONITORING, "scope": "Namespaced", "names": names, "versions": [version]},
        }
        installed.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(definition))
        installed.cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}")


def _has_the_rules(installed: Installed) -> None:
    installed.cluster.kubectl("apply", "-k", str(ROOT / "docs/tutorial/npu"))


# The state of the cluster before a page, except gpugate.
_BEFORE: Final[dict[str, Callable[[Installed], None]]] = {
    "docs/app-developers.md": _waits_for_a_node,
    "docs/platform-teams.md": _has_the_rules,
    "docs/install.md": _has_the_operator,
}
# The pages whose reader has read another, and written its files.
_AFTER: Final = dict.fromkeys(("README.md", "README.zh-CN.md", "docs/emergency.md"), "docs/install.md")
# The Kubernetes that a page requires, if it is newer than gpugate's oldest.
_NEEDS: Final = {"docs/export.md": "1.36"}


def _kubeconfig(installed: Installed, folder: Path) -> dict[str, str]:
    """Write a kubeconfig with the context of the pages, and return the environment."""
    text = installed.cluster.kubeconfig.read_text("utf-8")
    named = text.replace('"name": "e2e", "context"', '"name": "production", "context"')
    path = folder / "kubeconfig"
    path.write_text(named.replace('"current-context": "e2e"', '"current-context": "production"'), "utf-8")
    return {"KUBECONFIG": str(path), "PATH": str(assets())}


def _read(page: str, folder: Path, environment: dict[str, str], installed: Installed) -> None:
    """Run all commands of a page in a folder."""
    for fence in fences(text_of(page), page):
        if fence.file:
            write(fence, folder)
        elif fence.language == "sh" and not fence.unrun and fence.needs != ENGINE:
            typed = "".join(line for line in fence.text.splitlines(keepends=True) if line[:5] != "make ")
            status, printed = terminal(typed, folder, environment, _FENCE_S)
            shown = f"{fence.where}: {printed}"
            if fence.needs == "cluster":
                assert expected_status(fence) == status, shown
                assert not status or DENIED in printed, shown  # and did not end before
                assert fence.shown is None or same(fence.shown, printed), shown
                assert "failed calling webhook" not in printed, shown
                assert "No resources found in gpugate" not in printed, shown  # kubectl ends with 0 then
            if "apply -k" in fence.text:
                eventually(lambda: installed.trusted() and installed.in_force())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.needs_kubernetes(_NEEDS[page])] if page in _NEEDS else [])
        for page in IN_CLUSTER
    ],
)
def test_a_reader_with_a_cluster_sees_what_the_page_shows(
    installed: Installed, page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All commands in order; files of the page are written."""
    for name in ("docs", "manifests", "rules"):
        shutil.copytree(ROOT / name, tmp_path / name)
    environment = _kubeconfig(installed, tmp_path)
    counts_nodes = page == "docs/app-developers.md"
    if not counts_nodes:
        request.getfixturevalue("replicas")
    if page in _BEFORE:
        _BEFORE[page](installed)
    for fence in fences(text_of(_AFTER[page]), page) if page in _AFTER else ():
        if fence.file:
            write(fence, tmp_path)
    _read(page, tmp_path, environment, installed)
    for namespace in (TEAM, "default"):
        installed.cluster.kubectl("delete", "pods", "-n", namespace, "--all", "--force")
    if counts_nodes:
        installed.cluster.kubectl("create", "-f", "-", input=node("fits", CUDA, OFFERED))
