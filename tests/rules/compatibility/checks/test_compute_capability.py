"""The compute capability of a GPU against flags, annotations, the toolkit and the code in the image."""

from __future__ import annotations

import pytest

from rules.compatibility.checks.compute_capability import ComputeCapabilityCheck
from rules.cuda.requirements import ComputeRequirement, GpuRequirements
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.requirement_builders import code_for, driver, gpu, minimum, needing, shown

NO_BINARY = "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"


def check(required: GpuRequirements, node: NodeCapabilities) -> list[CheckResult]:
    """Return the results of the check."""
    return [*ComputeCapabilityCheck().on_node(SharingPolicy(), required, node)]


@pytest.mark.parametrize(
    ("compute", "level"),
    [("7.5", Level.INCOMPATIBLE), ("8.0", Level.COMPATIBLE), ("9.0", Level.COMPATIBLE)],
)
def test_a_gpu_below_the_required_capability_is_incompatible(compute: str, level: Level) -> None:
    """Without a CUDA error: a framework checks its flags before CUDA does."""
    results = check(needing(compute="8.0"), gpu(compute))

    assert level is level_of(results)
    assert all(result.error == "" for result in results)


def test_a_gpu_below_what_the_toolkit_compiles_for_ends_in_an_error_of_cuda() -> None:
    """Nothing stops the program earlier."""
    assert [(Level.INCOMPATIBLE, "compute capability 7.0, below 7.5", NO_BINARY)] == shown(
        check(needing(cuda="13.0"), gpu("7.0"))
    )


def test_a_missing_label_is_unknown_if_the_pod_requires_a_capability() -> None:
    """An uncertain requirement is a warning; what only the image requires has no result."""
    certain, uncertain = minimum("8.0"), minimum("9.0", certain=False)
    images = GpuRequirements(compute=(minimum("7.5", by_pod=False),), built_for=code_for("8.0"))
    both = GpuRequirements(compute=(uncertain, certain))

    assert [Level.UNKNOWN] == [result.level for result in check(both, driver("13.0"))]
    assert [Level.UNSTABLE] == [
        result.level for result in check(GpuRequirements(compute=(uncertain,)), driver("13.0"))
    ]
    assert [] == check(images, driver("13.0"))


@pytest.mark.parametrize(
    ("code", "ptx", "levels"),
    [
        ("7.5 8.6", True, {"7.0": 3, "7.5": 0, "8.0": 3, "8.6": 0, "8.9": 0, "9.0": 0}),
        ("7.5 8.6", False, {"7.0": 3, "7.5": 0, "8.0": 3, "8.6": 0, "8.9": 0, "9.0": 3}),
        ("7.5 8.6", None, {"7.0": 3, "7.5": 0, "8.0": 1, "8.6": 0, "8.9": 0, "9.0": 1}),
    ],
)
def test_an_image_runs_on_gpus_that_it_has_code_for(
    code: str, ptx: bool | None, levels: dict[str, int]
) -> None:
    """The same major and the same or a higher minor; newer GPUs need PTX."""
    required = GpuRequirements(built_for=code_for(code, ptx=ptx))

    assert levels == {compute: int(level_of(check(required, gpu(compute)))) for compute in levels}


MISSING_CODE = "the image holds no code for compute capability 7.5"


@pytest.mark.parametrize(
    ("compute", "reasons"),
    [
        ((minimum("8.0"),), ["compute capability 7.5, below 8.0"]),
        (
            (minimum("8.0"), minimum("8.6", certain=False)),
            ["compute capability 7.5, below 8.0", "a test; the GPU has 7.5"],
        ),
        (
            (minimum("8.6", certain=False), minimum("8.0")),
            ["a test; the GPU has 7.5", "compute capability 7.5, below 8.0"],
        ),
        ((minimum("8.0", certain=False),), ["a test; the GPU has 7.5", MISSING_CODE]),
        ((minimum("7.0"),), [MISSING_CODE]),
    ],
)
def test_missing_code_is_not_reported_in_addition_to_an_unmet_certain_requirement(
    compute: tuple[ComputeRequirement, ...], reasons: list[str]
) -> None:
    """Both have one cause: the GPU is too old. After a mere warning it is reported, because it denies."""
    required = GpuRequirements(compute=compute, built_for=code_for("8.0"))

    assert reasons == [result.reason.en for result in check(required, gpu("7.5"))]


def test_uncertain_facts_are_warnings() -> None:
    """An unverified row of the catalogue denies no pod."""
    required = GpuRequirements(
        compute=(minimum("8.0", certain=False),), built_for=code_for("8.0", certain=False)
    )

    assert [Level.UNSTABLE] * 2 == [result.level for result in check(required, gpu("7.5"))]
