"""NVIDIA_REQUIRE_*: satisfied, unsatisfied or unknown on a node, and the node affinity for it.

Most tests are of the legacy mode of NVIDIA's container runtime, which alone evaluates the variables.
"""

from __future__ import annotations

import pytest

from rules.compatibility.checks import check_on_node
from rules.cuda.versions import CudaVersion
from rules.model.check_result import Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.runtime_modes import RuntimeMode
from tests.support.requirement_builders import driver, gpu, requiring

LEGACY = SharingPolicy(runtime_mode=RuntimeMode.LEGACY)
CDI = SharingPolicy(runtime_mode=RuntimeMode.CDI)
UNKNOWN = SharingPolicy()
TESLA = "cuda>=12.4 brand=tesla,driver>=535"
WITH_BASELINE = SharingPolicy(virtual=True, baseline=CudaVersion(12, 4), runtime_mode=RuntimeMode.LEGACY)


@pytest.mark.parametrize(
    ("expression", "node", "level"),
    [
        ("cuda>=12.4", driver("12.4"), Level.COMPATIBLE),
        ("cuda>=12.4", driver("12.2"), Level.INCOMPATIBLE),
        ("cuda>=12.4,cuda<13", driver("13.0"), Level.INCOMPATIBLE),
        ("cuda>=12.4 driver>=535", driver("12.2", "535.104.05"), Level.COMPATIBLE),
        ("cuda>=12.4 driver>=535", driver("12.2"), Level.COMPATIBLE),
        ("cuda>=12.4 driver>=535.104", driver("12.2"), Level.UNKNOWN),
        ("cuda>=12.4 driver>=535", driver("12.1"), Level.INCOMPATIBLE),
        (TESLA, driver("12.2", product="Tesla-V100-SXM2-32GB"), Level.COMPATIBLE),
        (TESLA, driver("12.2", product="NVIDIA-A100-SXM4-80GB"), Level.INCOMPATIBLE),
        (TESLA, driver("12.2", product="Tesla-T4"), Level.UNKNOWN),
        ("cuda>=12.4 brand=tesla brand=nvidia", driver("12.2", product="Tesla-T4"), Level.COMPATIBLE),
        ("cuda>=12.4 brand=tesla,driver>=535", driver("12.2", "535.104.05"), Level.UNKNOWN),
        ("cuda>=12.4 brand=tesla,driver>=535", driver("12.0", "525.60.13"), Level.INCOMPATIBLE),
        ("cuda>=12.4 brand=tesla,driver>=535", driver("12.4", "550.54.15"), Level.COMPATIBLE),
        ("arch>=8.0", gpu("7.5"), Level.INCOMPATIBLE),
        ("arch>=8.0", NodeCapabilities(), Level.UNKNOWN),
        ("brand=tesla", driver("12.4"), Level.UNKNOWN),
        ("cuda>=12.4,brand=tesla", driver("12.6"), Level.UNKNOWN),
        ("cuda>==", NodeCapabilities(), Level.COMPATIBLE),
    ],
)
def test_a_variable_takes_precedence_over_the_comparison_of_versions(
    expression: str, node: NodeCapabilities, level: Level
) -> None:
    """Only one that is certainly unsatisfied is incompatible; one that cannot be parsed requires nothing."""
    assert level is level_of(check_on_node(LEGACY, requiring(expression), node))


@pytest.mark.parametrize(
    ("expression", "node", "level", "setting"),
    [
        ("cuda>=12.4,cuda<13", driver("13.0"), Level.UNKNOWN, ""),
        ("arch>=8.0", gpu("7.5"), Level.UNKNOWN, ""),
        ("cuda>=12.4", driver("12.2"), Level.INCOMPATIBLE, "minorVersionCompatibility"),
        ("cuda>=12.4", driver("12.4"), Level.COMPATIBLE, ""),
    ],
)
def test_without_a_known_mode_an_unsatisfied_variable_proves_nothing_by_itself(
    expression: str, node: NodeCapabilities, level: Level, setting: str
) -> None:
    """A denial needs what fails in CDI mode, too; the message says both."""
    results = check_on_node(UNKNOWN, requiring(expression), node)

    assert (level, {setting} if results else set()) == (
        level_of(results),
        {result.setting for result in results},
    )
    for check_result in results:
        assert (
            "NVIDIA's legacy container runtime does not start it (NVIDIA_REQUIRE_CUDA"
            in check_result.reason.en
        )
        assert "; in CDI mode it " in check_result.reason.en


def test_a_driver_that_fails_in_every_mode_is_denied_without_naming_the_error() -> None:
    """The legacy mode does not start the container, so that it ends in no CUDA error."""
    (result,) = check_on_node(UNKNOWN, requiring("cuda>=12.4"), driver("11.8"))

    assert (Level.INCOMPATIBLE, "", "") == (result.level, result.setting, result.error)
    assert (
        "the driver has CUDA 11.8, below 12.4: NVIDIA_REQUIRE_CUDA is not satisfied; "
        "cuda-compat of CUDA 12.4 does not support driver branch 520"
    ) == result.reason.en


@pytest.mark.parametrize("policy", [LEGACY, WITH_BASELINE])
@pytest.mark.parametrize("expression", ["cuda>=12.4", "driver>=535 cuda>=12.0"])
def test_a_missing_label_is_reported_once(policy: SharingPolicy, expression: str) -> None:
    """Not as a driver of unknown version in addition."""
    results = check_on_node(policy, requiring(expression), NodeCapabilities())

    assert [Level.UNKNOWN] == [result.level for result in results]


def test_a_satisfied_variable_does_not_help_virtual_gpus_with_another_major() -> None:
    """Their calls are intercepted."""
    required = requiring("cuda>=12.0")

    assert () == check_on_node(LEGACY, required, driver("13.0"))
    assert Level.INCOMPATIBLE is level_of(check_on_node(WITH_BASELINE, required, driver("13.0")))
    assert () == check_on_node(WITH_BASELINE, required, driver("12.2"))


@pytest.mark.parametrize(
    ("expression", "node", "remedy"),
    [
        (
            "cuda>=12.4",
            driver("12.2"),
            "use an image with CUDA 12.2 or older, or a driver with CUDA 12.4 or newer",
        ),
        ("cuda>=12.4,cuda<13", driver("13.0"), ""),
        ("arch>=8.0", gpu("7.5"), ""),
    ],
)
def test_a_newer_driver_is_suggested_only_if_it_helps(
    expression: str, node: NodeCapabilities, remedy: str
) -> None:
    """And an image with an older CUDA; without a CUDA error, because the container is not started."""
    (result,) = check_on_node(LEGACY, requiring(expression), node)

    assert (remedy, "") == (result.remedy.en, result.error)


def test_a_long_expression_is_cut_in_the_message() -> None:
    """NVIDIA's have 2,000 characters."""
    required = requiring(" ".join(["cuda>=13.0"] * 100))
    (result,) = check_on_node(LEGACY, required, driver("12.2"))

    assert "…`, which the node's container runtime enforces" in result.origin.en
    assert len(result.origin.en) < 200


def test_an_unknown_brand_is_a_missing_label_only_without_a_product() -> None:
    """No label has the brand; the table knows it of most products."""
    (unlabelled,) = check_on_node(LEGACY, requiring(TESLA), driver("12.2"))
    (labelled,) = check_on_node(LEGACY, requiring(TESLA), driver("12.2", product="Card-of-tomorrow"))

    assert unlabelled.reason.en.endswith("no label provides the GPU's product and so its brand")
    assert "" == unlabelled.remedy.en
    assert labelled.reason.en.endswith("the GPU's brand is unknown")
    assert "use an image with CUDA 12.2 or older, or a driver with CUDA 12.4 or newer" == labelled.remedy.en


def test_cdi_mode_evaluates_no_variable() -> None:
    """Nothing is said of it. Which error follows is unknown."""
    assert () == check_on_node(CDI, requiring("arch>=8.0"), gpu("7.5"))
    (result,) = check_on_node(CDI, requiring("cuda>=12.4"), driver("11.8"))
    reason = (
        "the driver has CUDA 11.8, below 12.4; cuda-compat of CUDA 12.4 does not support driver branch 520"
    )
    assert reason == result.summary.en
