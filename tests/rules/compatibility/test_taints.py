"""Taints of nodes: a pod goes only where it tolerates them, but they are never a reason to deny."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.node_builders import A100, T4, Node, cuda_image, decided, gfd, gpu_pod, node

KEY = "nvidia.com/gpu"
GPU_TAINT = {"key": KEY, "value": "present", "effect": "NoSchedule"}
OLD = node("old", gfd("11.4", T4))
NEEDY = cuda_image("12.4")


def tainted(name: str, labels: dict[str, str], *taints: dict[str, str]) -> Node:
    """Return a node with these taints."""
    return node(name, labels) | {"spec": {"taints": list(taints)}}


NEW = tainted("new", gfd("12.4", A100), GPU_TAINT)


def test_a_pod_that_tolerates_no_compatible_node_is_warned_of_the_taint() -> None:
    """A toleration may still be added after the gate has decided, so this is no denial."""
    decision = decided([OLD, NEW], gpu_pod(NEEDY))

    assert (True, True) == (decision.allowed, bool(decision.patch))
    warning = (
        "gpugate: the pod tolerates no node that is compatible with container 'main' "
        "(1 × NVIDIA-A100-SXM4-80GB, CUDA 12.4): taint nvidia.com/gpu=present:NoSchedule; "
        "add a toleration, unless your cluster adds it [rule compatibility-pgpu]"
    )
    assert (warning,) == decision.warnings


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": KEY, "operator": "Exists"},
        {"key": KEY, "value": "present", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ],
)
def test_the_fix_works_a_pod_that_tolerates_the_taint_gets_no_warning(toleration: dict[str, str]) -> None:
    """Whatever form its toleration has."""
    decision = decided([OLD, NEW], gpu_pod(NEEDY, tolerations=[toleration]))

    assert (True, ()) == (decision.allowed, decision.warnings)


def test_a_pod_is_denied_if_no_node_is_compatible_tolerated_or_not() -> None:
    """No toleration would help."""
    decision = decided([OLD, tainted("old-2", gfd("11.4", A100), GPU_TAINT)], gpu_pod(NEEDY))

    assert not decision.allowed
    assert "(2 nodes checked)" in decision.message


@pytest.mark.parametrize(
    "taint",
    [
        {"key": KEY, "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    ],
)
def test_a_taint_that_passes_or_keeps_no_pod_away_is_not_told(taint: dict[str, str]) -> None:
    """It is a state of the node."""
    assert () == decided([tainted("new", gfd("12.4", A100), taint)], gpu_pod(NEEDY)).warnings


def test_a_pod_with_a_node_name_is_not_asked_for_tolerations() -> None:
    """The scheduler does not see it."""
    assert () == decided([NEW], gpu_pod(NEEDY, nodeName="new")).warnings


@pytest.mark.parametrize("broken", [None, "text", [1], [{"key": 1}], {"key": "a"}, [{"key": ["a"]}]])
def test_taints_and_tolerations_of_any_shape_are_read(broken: Any) -> None:
    """What is none of them is left out."""
    shapeless = node("new", gfd("12.4", A100)) | {"spec": {"taints": broken}}

    assert decided([shapeless], gpu_pod(NEEDY, tolerations=broken)).allowed
    assert decided([NEW], gpu_pod(NEEDY, tolerations=broken)).warnings
