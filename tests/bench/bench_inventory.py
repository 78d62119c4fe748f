"""What the inventory costs as the cluster grows: questions, memory, and one node's change.

Run as `python -m tests.bench.bench_inventory`; fails where a target is missed.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from functools import partial
from time import perf_counter
from typing import Any

from rules.affinity import Requirement, inject
from rules.interval import Interval
from rules.inventory import Inventory
from rules.labels import LabelNames
from rules.selector import candidates
from tests.bench.timing import measure, show

SIZES = (10, 1_000, 10_000)
LABELS = 60
# Targets: a question at the largest size, and against the smallest; memory kept; one node's change.
QUESTION_US = 40
GROWTH = 1.5
MEMORY_MB = 60
CHANGE_US = 1_000

PRODUCTS = (
    ("Tesla-T4", "7", "5", "15360"),
    ("NVIDIA-A10", "8", "6", "23028"),
    ("NVIDIA-A100-SXM4-80GB", "8", "0", "81920"),
    ("NVIDIA-H100-80GB-HBM3", "9", "0", "81559"),
)
DRIVERS = (("525", "105", "17", "12", "0"), ("535", "104", "05", "12", "2"), ("550", "54", "15", "12", "4"))
SPEC: dict[str, Any] = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z0", "z1"]},
                            {
                                "key": "nvidia.com/cuda.runtime-version.major",
                                "operator": "In",
                                "values": ["12"],
                            },
                            {
                                "key": "nvidia.com/cuda.runtime-version.minor",
                                "operator": "Gt",
                                "values": ["1"],
                            },
                        ]
                    },
                    {
                        "matchExpressions": [
                            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["z2"]},
                            {
                                "key": "nvidia.com/cuda.runtime-version.major",
                                "operator": "Gt",
                                "values": ["12"],
                            },
                        ]
                    },
                ]
            }
        }
    },
}


def node(number: int) -> dict[str, Any]:
    """Return a GPU node as a cluster with GPU and node feature discovery has it."""
    product, major, minor, memory = PRODUCTS[number % len(PRODUCTS)]
    driver = DRIVERS[number // len(PRODUCTS) % len(DRIVERS)]
    name = f"ip-10-{number >> 16}-{number >> 8 & 255}-{number & 255}.eu-central-1.compute.internal"
    labels = {
        "kubernetes.io/hostname": name,
        "node.example.com/instance-id": f"i-{number * 2654435761 % 2**64:017x}",
        "nvidia.com/gfd.timestamp": str(1_750_000_000 + number * 7),
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "topology.example.com/rack": f"rack-{number // 32}",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": memory,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/cuda.driver-version.full": ".".join(driver[:3]),
        "nvidia.com/cuda.runtime-version.major": driver[3],
        "nvidia.com/cuda.runtime-version.minor": driver[4],
    }
    for feature in range(LABELS - len(labels)):
        value = "true" if (number + feature) % 11 else f"v{feature % 4}"
        labels[f"feature.node.kubernetes.io/cpu-cpuid.feature-{feature}"] = value
    allocatable = {
        "cpu": "96",
        "memory": "1056Gi",
        "pods": "110",
        "hugepages-1Gi": "0",
        "nvidia.com/gpu": "8",
    }
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def cluster(size: int) -> Inventory:
    """Return the inventory of so many nodes, each read from its own JSON, as a watch reads them."""
    return Inventory.of([json.loads(json.dumps(node(number))) for number in range(size)])


def ask(inventory: Inventory) -> int:
    """Ask for the candidates of a pod with a nodeSelector and two affinity terms."""
    return candidates(inventory, SPEC, ("nvidia.com/gpu",))


def memory_of(size: int) -> float:
    """Return the MB that an inventory keeps."""
    gc.collect()
    tracemalloc.start()
    kept = cluster(size)
    gc.collect()
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    return megabytes if kept else 0.0


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    inventories = {size: cluster(size) for size in SIZES}
    names = {size: f"{size} nodes" for size in SIZES}
    questions = measure({names[size]: partial(ask, kept) for size, kept in inventories.items()})
    show("candidates: nodeSelector, two affinity terms, one resource", "us", questions, names[10])

    def classes(inventory: Inventory) -> object:
        return inventory.classes(ask(inventory))

    figures = measure({names[size]: partial(classes, kept) for size, kept in inventories.items()})
    show("candidates and their classes", "us", figures, names[10])

    def narrow(inventory: Inventory) -> object:
        return inject(SPEC, Requirement.of_version(Interval((12, 4)), LabelNames().cuda, inventory))

    figures = measure({names[size]: partial(narrow, kept) for size, kept in inventories.items()})
    show("requirement written and joined", "us", figures, names[10])

    large, (same, fresh, moved) = inventories[SIZES[-1]], (node(5), node(SIZES[-1]), node(5))
    moved["metadata"]["labels"]["nvidia.com/cuda.runtime-version.minor"] = "8"
    changes = measure(
        {
            "heartbeat": lambda: large.with_node(same),
            "one label changes": lambda: large.with_node(moved),
            "node joins": lambda: large.with_node(fresh),
            "node leaves": lambda: large.without_node(same["metadata"]["name"]),
        }
    )
    show(f"one node's change at {SIZES[-1]} nodes", "us", changes, "heartbeat")

    start = perf_counter()
    Inventory.of([node(number) for number in range(1_000)])
    print(f"\nread and index 1,000 nodes: {(perf_counter() - start) * 1e3:.0f} ms")
    megabytes = memory_of(SIZES[-1])
    print(f"memory at {SIZES[-1]} nodes of {LABELS} labels: {megabytes:.1f} MB")

    last = questions[names[SIZES[-1]]]
    targets = {
        f"a question takes less than {QUESTION_US} us": last < QUESTION_US,
        f"and at most {GROWTH} times that at 10 nodes": last <= GROWTH * questions[names[10]],
        f"memory stays below {MEMORY_MB} MB": megabytes < MEMORY_MB,
        f"a change takes less than {CHANGE_US} us": max(changes.values()) < CHANGE_US,
    }
    print()
    for target, met in targets.items():
        print(f"  {'met   ' if met else 'MISSED'}  {target}")
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
