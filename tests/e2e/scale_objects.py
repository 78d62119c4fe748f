"""Objects of a large cluster."""

from __future__ import annotations

from typing import Any, Final

_MIXES: Final = (
    ("Tesla-T4", "7", "5", "4"),
    ("NVIDIA-A100-SXM4-80GB", "8", "0", "8"),
    ("NVIDIA-L40S", "8", "9", "8"),
)


def gpu_node(number: int) -> dict[str, Any]:
    """Return a node as a kubelet and GPU Feature Discovery write it: mostly with irrelevant fields."""
    product, major, minor, count = _MIXES[number % len(_MIXES)]
    name = f"scale-{number:05}"
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.F{number}": "true" for number in range(60)}
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
        {"names": [f"registry.example.com/team/image-{number}@sha256:{number:064}"], "sizeBytes": 10**9}
        for number in range(50)
    ]
    status = {"allocatable": offered, "capacity": offered, "images": images}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }
