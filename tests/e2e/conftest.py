"""Control planes of the end-to-end tests; the tests are skipped if the binaries are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import ControlPlane, assets, kubernetes, missing
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import Installation, Installed, install, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a newer Kubernetes than the one that runs."""
    for mark in item.iter_markers("needs_kubernetes"):
        (version,) = mark.args
        if not missing(assets()) and kubernetes() < tuple(map(int, version.split("."))):
            pytest.skip(f"needs Kubernetes {version}")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a running control plane, with a scheduler if its binary exists; envtest has none."""
    binaries = _binaries()
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(binaries, folder, scheduler=(binaries / "kube-scheduler").is_file()) as running:
        yield running


@pytest.fixture(scope="module")
def empty_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a new control plane for this module, without a scheduler."""
    with ControlPlane(_binaries(), tmp_path_factory.mktemp("empty-control-plane")) as running:
        yield running


@pytest.fixture(scope="module")
def installation(empty_control_plane: ControlPlane) -> Iterator[Installation]:
    """Yield gpugate, installed by the overlay dev in its own cluster, without a running server."""
    with reserve_port() as held:
        yield install(empty_control_plane, held.getsockname()[1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield an installation with a running server, in a cluster with a scheduler if there is one."""
    binaries, folder = _binaries(), tmp_path_factory.mktemp("installed")
    scheduler = (binaries / "kube-scheduler").is_file()
    with (
        reserve_port() as held,
        ControlPlane(binaries, folder / "cluster", scheduler=scheduler) as cluster,
        running(install(cluster, held.getsockname()[1]), folder / "serve.log") as server,
    ):
        yield server


@pytest.fixture(scope="module")
def controllers(installed: Installed) -> Iterator[None]:
    """Run the controllers of Kubernetes in the cluster of `installed`, or skip; envtest has none."""
    if not (_binaries() / "kube-controller-manager").is_file():
        pytest.skip("no kube-controller-manager: run `make e2e-assets`")
    with installed.cluster.controllers():
        yield


def _binaries() -> Path:
    """Return the folder of the binaries, or skip."""
    binaries = assets()
    if absent := missing(binaries):
        pytest.skip(f"no {', '.join(absent)} in {binaries}: run `make e2e-assets` or set KUBEBUILDER_ASSETS")
    return binaries


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a namespace named after this test; it is deleted without waiting, as no controller cleans it."""
    name = request.node.name.replace("_", "-")[:63].strip("-")
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
