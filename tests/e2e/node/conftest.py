"""One cluster of real nodes for all tests here; they are skipped on a machine that can run none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.node.real_cluster import RealCluster, cluster, reason_to_skip

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Yield a cluster with gpu-1 (8 × A100, driver 570) and gpu-2 (2 × T4, driver 535)."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with cluster(tmp_path_factory.mktemp("node")) as running:
        yield running
