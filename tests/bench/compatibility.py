"""What it costs to judge a GPU pod and to steer it, as the cluster grows: microseconds, and their ratios.

The pod asks for one GPU and names an image with CUDA; it arrives with requests, as every real one does.
Run as `python -m tests.bench.compatibility`; returns 1 where the cost grows with the number of nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

from rules.decide import decide
from rules.inventory import Inventory
from rules.model import Decision
from tests.bench.timing import measure, show
from tests.build import request
from tests.nodes import A100, GPU, H100, T4, V100, gfd, gpu_pod, node, shipped

SIZES = (10, 1_000, 10_000)
# How much the cost may grow from the smallest cluster to the largest.
GROWTH = 1.5
# Eight kinds of nodes; of every ten nodes one has no GPU.
KINDS = [
    gfd(cuda, gpu)
    for cuda, gpu in (
        ("11.4", T4),
        ("12.2", T4),
        ("12.2", V100),
        ("12.4", A100),
        ("12.8", A100),
        ("12.4", H100),
        ("12.8", H100),
    )
]
OTHER_LABELS = 40
OWN_TERMS: dict[str, Any] = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                            {"key": "pool", "operator": "NotIn", "values": ["batch"]},
                        ]
                    }
                    for zone in ("z0", "z1")
                ]
            }
        }
    },
}
CUDA_12_2 = "nvidia/cuda:12.2.0-runtime-ubuntu22.04"
PODS = {
    "steered": gpu_pod(CUDA_12_2),
    "with affinity of its own": gpu_pod(CUDA_12_2, **OWN_TERMS),
    "with a flag that asks": gpu_pod("vllm/vllm-openai:v0.8.4", "--model=m", "--dtype=bfloat16"),
    "refused": gpu_pod("nvidia/cuda:13.0.0-runtime-ubuntu24.04"),
}


def _node(number: int) -> dict[str, Any]:
    """Return one node of a cluster: its kind, and labels as clusters have them."""
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"z{number % 3}",
    }
    labels |= {f"feature.node.kubernetes.io/cpu-{at}": "true" for at in range(OTHER_LABELS)}
    if number % 10 == 9:
        return node(f"node-{number}", labels, cpu="96")
    return node(f"node-{number}", labels | KINDS[number % len(KINDS)], **{GPU: "8"})


def _decision(inventory: Inventory, document: dict[str, Any]) -> Decision:
    return decide(shipped(), inventory, request(document))


def _changing(inventory: Inventory) -> Iterator[Inventory]:
    """Yield by turns the nodes with and without one more, so that nothing is remembered of them."""
    return cycle([inventory, inventory.with_node(node("one-more", KINDS[0]))])


def _first(inventories: Iterator[Inventory]) -> Decision:
    return _decision(next(inventories), PODS["steered"])


def main() -> int:
    """Print a table for each pod; return 1 where the largest cluster costs more than GROWTH allows."""
    inventories = {f"{size} nodes": Inventory.of([_node(at) for at in range(size)]) for size in SIZES}
    smallest, largest = (f"{size} nodes" for size in (SIZES[0], SIZES[-1]))
    grown = False
    for name, document in PODS.items():
        decision = _decision(inventories[largest], document)
        assert (name == "refused") is not decision.allowed
        assert (name == "refused") is not bool(decision.audit.get("steered"))
        figures = measure(
            {size: partial(_decision, inventory, document) for size, inventory in inventories.items()}
        )
        show(f"{name}: {len(decision.patch)} operations", "µs", figures, smallest)
        grown |= figures[largest] > GROWTH * figures[smallest]
    figures = measure(
        {size: partial(_first, _changing(inventory)) for size, inventory in inventories.items()}
    )
    show("steered, the first after a change of the nodes", "µs", figures, smallest)
    verdict = f"MORE than {GROWTH} times" if grown else f"within {GROWTH} times"
    print(f"\nfrom {smallest} to {largest}: {verdict}")
    return int(grown)


if __name__ == "__main__":
    sys.exit(main())
