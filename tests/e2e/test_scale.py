"""gpugate with 5,000 nodes: memory, time to readiness, CPU while idle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import Installation
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
_MIXES = (
    ("Tesla-T4", "7", "5", "4"),
    ("NVIDIA-A100-SXM4-80GB", "8", "0", "8"),
    ("NVIDIA-L40S", "8", "9", "8"),
)


def _node(number: int) -> dict[str, Any]:
    """Return a node as a kubelet and GPU Feature Discovery write it: mostly with irrelevant fields."""
    product, major, minor, count = _MIXES[number % len(_MIXES)]
    name = f"scale-{number:05}"
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.F{each}": "true" for each in range(60)}
    labels |= {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": str(number % 9),
    }
    offered = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": count}
    images = [
        {"names": [f"registry.example.com/team/image-{each}@sha256:{each:064}"], "sizeBytes": 10**9}
        for each in range(50)
    ]
    status = {"allocatable": offered, "capacity": offered, "images": images}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


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
        list(pool.map(lambda number: api.create(NODES, _node(number)), range(NODE_COUNT)))
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
