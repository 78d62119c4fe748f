"""The control planes of the end-to-end tests; they are skipped where their binaries are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import ControlPlane, assets, missing
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import Installation, Installed, install, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a running control plane, with a scheduler where the binaries hold one, as envtest's do not."""
    binaries = _binaries()
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(binaries, folder, scheduler=(binaries / "kube-scheduler").is_file()) as running:
        yield running


@pytest.fixture(scope="module")
def empty_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a control plane that no other module has seen, without a scheduler."""
    with ControlPlane(_binaries(), tmp_path_factory.mktemp("empty-control-plane")) as running:
        yield running


@pytest.fixture(scope="module")
def installation(empty_control_plane: ControlPlane) -> Iterator[Installation]:
    """Yield gpugate, installed by the overlay dev in a cluster of its own, and no gate that runs."""
    with reserve_port() as held:
        yield install(empty_control_plane, held.getsockname()[1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield one with a gate that runs, in a cluster that schedules where it can."""
    binaries, folder = _binaries(), tmp_path_factory.mktemp("installed")
    scheduler = (binaries / "kube-scheduler").is_file()
    with (
        reserve_port() as held,
        ControlPlane(binaries, folder / "cluster", scheduler=scheduler) as cluster,
        running(install(cluster, held.getsockname()[1]), folder / "serve.log") as gate,
    ):
        yield gate


def _binaries() -> Path:
    """Return the folder of the binaries, or skip."""
    binaries = assets()
    if absent := missing(binaries):
        pytest.skip(f"no {', '.join(absent)} in {binaries}: run `make e2e-assets` or set KUBEBUILDER_ASSETS")
    return binaries


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a namespace of this test's own, named after it; it goes at once, there is nobody to clean it."""
    name = request.node.name.replace("_", "-")[:63].strip("-")
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
