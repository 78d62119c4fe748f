"""Pods that request extended resources where GPUs are devices of Dynamic Resource Allocation."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.inventory_document import inventory_of
from tests.support.dra_clusters import (
    A100_NAME,
    DRIVER,
    T4_NAME,
    bare_node,
    device_class,
    gpus_of,
    resource_slice,
)
from tests.support.node_builders import H100, T4, cuda_image, gfd, gpu_pod, judged, node, shipped, targets

TYPE = "node.kubernetes.io/instance-type"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"
# It needs CUDA 12.4 and bfloat16.
NEEDY = gpu_pod("vllm/vllm-openai:v0.8.4", "--dtype=bfloat16")
PLUGIN_T4 = node("t4", gfd("12.2", T4) | {TYPE: "t4.xlarge"})
DRA_H100 = bare_node("h100", **{TYPE: "h100.xlarge"})
# Of CUDA 13.0. NVIDIA's DRA driver loads the compatibility libraries that other images may have.
NO_LIBRARIES = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"


def decided(document: Any, *cluster: dict[str, Any]) -> Any:
    """Return the decision in a cluster of these objects."""
    return judged(shipped(), inventory_of([*cluster, device_class()]), document)


def test_a_pod_is_directed_from_a_device_plugin_to_devices_that_fit() -> None:
    """By a label that the node of the devices has and no other."""
    decision = decided(NEEDY, PLUGIN_T4, DRA_H100, gpus_of("h100"))

    assert (True, ()) == (decision.allowed, decision.warning_lines)
    terms = decision.patch[0]["value"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expected = {"key": TYPE, "operator": "In", "values": ["h100.xlarge"]}
    assert [{"matchExpressions": [expected]}] == terms["nodeSelectorTerms"]


def test_devices_whose_driver_is_too_old_are_a_reason_to_deny() -> None:
    """The table shows them as any node."""
    denied = decided(gpu_pod(NO_LIBRARIES), bare_node("t4"), gpus_of("t4", T4_NAME, "12.2"))
    assert (False, True) == (denied.allowed, "Tesla-T4" in denied.denial.en)


def test_labels_that_report_the_node_of_devices_are_used_as_ever() -> None:
    """GPU Feature Discovery may run beside DRA."""
    labelled = bare_node("h100", **gfd("13.0", H100))
    decision = decided(NEEDY, PLUGIN_T4, labelled, gpus_of("h100"))

    assert ["h100"] == targets([PLUGIN_T4, labelled], NEEDY, decision)


def test_where_no_label_distinguishes_devices_that_fit_nothing_is_injected() -> None:
    """A host name would, but an autoscaler ignores such a pod."""
    decision = decided(NEEDY, node("t4", gfd("12.2", T4)), bare_node("h100"), gpus_of("h100"))

    assert (True, ()) == (decision.allowed, decision.patch)


def test_labels_that_contradict_devices_are_not_used_to_direct_a_pod() -> None:
    """Another label does, if there is one."""
    wrong = bare_node("a100", **gfd("13.0", H100), **{TYPE: "a100.xlarge"})
    decision = decided(
        gpu_pod(cuda_image("12.4")), wrong, DRA_H100, gpus_of("h100"), gpus_of("a100", A100_NAME, "12.2")
    )

    assert ["h100"] == targets([wrong, DRA_H100], gpu_pod(cuda_image("12.4")), decision)


def test_the_implicit_resource_of_a_device_class_is_checked_like_any_gpu() -> None:
    """If its devices are GPUs."""
    cluster = bare_node("t4"), gpus_of("t4", T4_NAME, "12.2")

    assert not decided(gpu_pod(NO_LIBRARIES, limits={IMPLICIT: "1"}), *cluster).allowed


@pytest.mark.parametrize(
    "resource", ["deviceclass.resource.kubernetes.io/nic", "deviceclass.resource.kubernetes.io/x"]
)
def test_a_device_class_of_other_devices_is_no_gpu(resource: str) -> None:
    """Nothing is checked, and nothing is said."""
    cluster = (
        node("t4", gfd("11.4", T4)),
        resource_slice("t4", {"name": "nic-0"}, driver="nic.example.com"),
        device_class("nic", 'device.driver == "nic.example.com"', None),
    )
    decision = decided(gpu_pod(cuda_image("13.0"), limits={resource: "1"}), *cluster)

    assert (True, (), ()) == (decision.allowed, decision.patch, decision.warning_lines)


def test_devices_that_are_not_known_completely_are_no_reason_to_deny() -> None:
    """A slice may be still to come."""
    part = gpus_of("h100")
    part["spec"]["pool"]["resourceSliceCount"] = 2
    decision = decided(NEEDY, PLUGIN_T4, DRA_H100, part)

    assert (True, True) == (decision.allowed, bool(decision.warning_lines))
