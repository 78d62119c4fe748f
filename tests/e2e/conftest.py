"""The control plane that the end-to-end tests share; they are skipped where its binaries are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import ControlPlane, assets, missing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a running control plane, with a scheduler where the binaries hold one, as envtest's do not."""
    binaries = assets()
    if absent := missing(binaries):
        pytest.skip(f"no {', '.join(absent)} in {binaries}: run `make e2e-assets` or set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(binaries, folder, scheduler=(binaries / "kube-scheduler").is_file()) as running:
        yield running
