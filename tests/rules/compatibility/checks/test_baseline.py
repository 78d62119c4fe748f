"""The baseline of virtual GPUs: the highest CUDA version that they support, and its major."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rules.compatibility.checks.baseline import BaselineCheck
from rules.cuda.requirements import GpuRequirements
from rules.cuda.versions import CudaVersion
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import SharingPolicy
from tests.support.requirement_builders import needing, requirements, requiring, shown

PHYSICAL = SharingPolicy()
VIRTUAL = SharingPolicy(virtual=True)
WITH_BASELINE = SharingPolicy(virtual=True, baseline=CudaVersion(12, 4))


def check(policy: SharingPolicy, required: GpuRequirements) -> list[CheckResult]:
    """Return the results of the check, which are the same on every node."""
    return [*BaselineCheck().on_any_node(policy, required)]


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        ("12.6", "the virtual GPUs support CUDA up to 12.4, the container needs 12.6"),
        ("13.0", "the virtual GPUs support CUDA up to 12.4, the container needs 13.0"),
        ("11.8", "the virtual GPUs are of CUDA 12.4, the container is of another major, 11.8"),
    ],
)
def test_a_version_above_the_baseline_or_of_another_major_is_incompatible(runtime: str, reason: str) -> None:
    """On every node; no CUDA error is named."""
    results = check(WITH_BASELINE, needing(cuda=runtime))

    assert [(Level.INCOMPATIBLE, reason, "")] == shown(results)
    assert "use an image with CUDA 12.x up to 12.4, or whole GPUs" == results[0].remedy.en
    assert f"annotation gpugate.dev/cuda-version says CUDA {runtime}" == results[0].origin.en


@pytest.mark.parametrize(
    ("setting", "levels"), [(Level.INCOMPATIBLE, [3, 3]), (Level.UNSTABLE, [3, 1]), (Level.COMPATIBLE, [3])]
)
def test_another_major_has_the_level_of_the_policy(setting: Level, levels: list[int]) -> None:
    """A version above the baseline stays incompatible, of whatever major."""
    policy = replace(WITH_BASELINE, major_versions=setting)
    names = [result for cuda in ("13.0", "11.8") for result in check(policy, needing(cuda=cuda))]

    assert levels == [name.level for name in names]


@pytest.mark.parametrize("policy", [PHYSICAL, VIRTUAL, WITH_BASELINE])
@pytest.mark.parametrize(
    "required", [needing(), needing(cuda="12.0"), needing(cuda="12.4"), needing(cuda="12")]
)
def test_a_version_within_the_baseline_has_no_result(
    policy: SharingPolicy, required: GpuRequirements
) -> None:
    """Nor has a rule without a baseline."""
    assert [] == check(policy, required)


def test_a_runtime_that_may_be_newer_is_not_of_another_major() -> None:
    """`cuda>=11.0` does not exclude a runtime of CUDA 12."""
    assert [] == check(WITH_BASELINE, requiring("cuda>=11.0"))


@pytest.mark.parametrize("baseline", [CudaVersion(11, 8), CudaVersion(13, 0)])
def test_an_unverified_version_is_a_warning(baseline: CudaVersion) -> None:
    """It never denies a pod, above the baseline or of another major."""
    unverified = requirements("tensorflow/tensorflow:2.15.0-gpu")  # CUDA 12.2
    policy = SharingPolicy(virtual=True, baseline=baseline)

    assert [Level.UNSTABLE] == [result.level for result in check(policy, unverified)]
