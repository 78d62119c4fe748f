"""What a way of sharing requires of a node: lowest driver and GPU, device mode, no MIG slices."""

from __future__ import annotations

import pytest

from rules.compatibility.checks.sharing_mode import SharingModeCheck
from rules.cuda.versions import CudaVersion
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.requirement_builders import capability, driver, gpu, needing

MIN_CUDA = SharingPolicy(min_cuda=CudaVersion(11, 5))
MIN_COMPUTE = SharingPolicy(min_compute=capability("7.0"))


def check(policy: SharingPolicy, node: NodeCapabilities) -> list[CheckResult]:
    """Return the results of the check; the container requires nothing."""
    return [*SharingModeCheck().on_node(policy, needing(), node)]


@pytest.mark.parametrize(
    ("policy", "node", "reason"),
    [
        (MIN_CUDA, driver("11.4"), "driver CUDA 11.4, below 11.5"),
        (MIN_COMPUTE, gpu("6.1"), "compute capability 6.1, below 7.0"),
        (SharingPolicy(device_mode="mps"), NodeCapabilities(device_mode="vgpu"), "vgpu, not for mps"),
        (SharingPolicy(mig=False), NodeCapabilities(mig_devices=True), "its GPUs are partitioned with MIG"),
    ],
)
def test_a_node_that_lacks_what_the_way_of_sharing_requires_is_incompatible(
    policy: SharingPolicy, node: NodeCapabilities, reason: str
) -> None:
    """Whatever the container requires."""
    (result,) = check(policy, node)

    assert Level.INCOMPATIBLE is result.level
    assert result.reason.en.endswith(reason)
    assert all((result.remedy.en, result.origin.en))


@pytest.mark.parametrize(
    ("policy", "node"),
    [
        (SharingPolicy(), NodeCapabilities(mig_devices=True, device_mode="vgpu")),
        (MIN_CUDA, driver("11.5")),
        (MIN_COMPUTE, gpu("7.0")),
        (SharingPolicy(device_mode="mps"), NodeCapabilities(device_mode="mps")),
        (SharingPolicy(device_mode="mps"), NodeCapabilities()),
        (SharingPolicy(mig=False), NodeCapabilities()),
    ],
)
def test_a_node_that_has_what_the_way_of_sharing_requires_has_no_result(
    policy: SharingPolicy, node: NodeCapabilities
) -> None:
    """A node without a label of the device mode is not excluded."""
    assert [] == check(policy, node)


@pytest.mark.parametrize("policy", [MIN_CUDA, MIN_COMPUTE])
def test_a_missing_label_is_unknown(policy: SharingPolicy) -> None:
    """It is neither denied nor ignored."""
    assert [Level.UNKNOWN] == [result.level for result in check(policy, NodeCapabilities())]


def test_both_minima_have_a_result() -> None:
    """A pod learns everything at once."""
    policy = SharingPolicy(min_cuda=CudaVersion(11, 5), min_compute=capability("7.0"))

    assert [Level.INCOMPATIBLE, Level.UNKNOWN] == [result.level for result in check(policy, driver("11.4"))]
