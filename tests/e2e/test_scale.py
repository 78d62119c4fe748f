"""gpugate with 5,000 nodes: memory, time to readiness, CPU while idle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.installed import Installation
from tests.e2e.scale_objects import gpu_node
from tests.e2e.serve_process import ServeProcess, eventually
from webhook.cluster.client import ClusterApi
from webhook.cluster.resource import NODES

NODE_COUNT = 5_000
# Limits at that size: bytes of memory, seconds from its start, fraction of one core.
MOST_RESIDENT = 200 * 2**20
LONGEST_START_S = 15.0
MOST_CPU = 0.01
# Seconds over which the CPU of an idle server is measured: its periodic tasks run every ten.
IDLE_S = 20.0


@dataclass(frozen=True)
class Big:
    """A ready server; start_s: seconds from its start to readiness."""

    server: ServeProcess
    start_s: float


@pytest.fixture(scope="module")
def big(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Big]:
    """Yield the server of a large cluster."""
    api = ClusterApi.of_kubeconfig(str(installation.cluster.kubeconfig))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: api.create(NODES, gpu_node(number)), range(NODE_COUNT)))
    api.close()
    start = time.monotonic()
    with installation.serve(tmp_path_factory.mktemp("scale") / "log") as server:
        eventually(server.ready)
        yield Big(server, time.monotonic() - start)


def _resident(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    (line,) = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if "VmRSS" in line]
    return int(line.split()[1]) * 1024


def _cpu_s(process: int) -> float:
    """Return the CPU seconds of a process, see proc_pid_stat(5)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_gpugate_is_ready_soon_with_5000_nodes(big: Big) -> None:
    """It knows all of them then."""
    assert NODE_COUNT + 1 == big.server.sample("gpugate_inventory_nodes")  # and the one of each installation
    assert big.start_s < LONGEST_START_S


def test_5000_nodes_take_little_memory(big: Big) -> None:
    """Only the relevant fields of a node are in memory."""
    assert _resident(big.server.pid) < MOST_RESIDENT


def test_an_idle_server_uses_no_cpu(big: Big) -> None:
    """Its watches wait for events."""
    before = _cpu_s(big.server.pid)
    time.sleep(IDLE_S)

    assert _cpu_s(big.server.pid) - before < MOST_CPU * IDLE_S
