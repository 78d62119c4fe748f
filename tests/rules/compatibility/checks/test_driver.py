"""The CUDA version of the driver: too old, too new, minor version and forward compatibility."""

from __future__ import annotations

import pytest
from msgspec import structs

from rules.compatibility.checks.driver import DriverCheck, libraries
from rules.cuda.image_catalog import CompatLibraries
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import Fact, Status
from rules.cuda.versions import CudaVersion
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.runtime_modes import ContainerRuntime, RuntimeMode
from tests.support.requirement_builders import driver, needing, requirements, requiring, shown

PHYSICAL = SharingPolicy()
VIRTUAL = SharingPolicy(virtual=True)
A100, RTX = "NVIDIA-A100-SXM4-80GB", "NVIDIA-GeForce-RTX-4090"
LOW, UNSUPPORTED = "cudaErrorInsufficientDriver (35)", "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)"
WITH_BASELINE = SharingPolicy(virtual=True, baseline=CudaVersion(12, 4))
UNVERIFIED = requirements("tensorflow/tensorflow:2.15.0-gpu")  # CUDA 12.2, not verified


def check(policy: SharingPolicy, required: GpuRequirements, node: NodeCapabilities) -> list[CheckResult]:
    """Return the results of the check."""
    return [*DriverCheck().on_node(policy, required, node)]


@pytest.mark.parametrize("runtime", ["10.2", "11.8", "12.2", "12.10"])
@pytest.mark.parametrize("cuda", ["10.2", "11.8", "12.2", "12.10"])
def test_a_driver_runs_every_older_cuda_and_no_newer_one(runtime: str, cuda: str) -> None:
    """Compared as versions: 12.10 is after 12.2."""
    newer = [int(part) for part in runtime.split(".")] > [int(part) for part in cuda.split(".")]
    level = level_of(check(PHYSICAL, needing(cuda=runtime), driver(cuda)))

    assert newer is (level is Level.INCOMPATIBLE)


@pytest.mark.parametrize(
    ("cuda", "limits", "error", "setting"),
    [
        (
            "12.2",
            ", which NVIDIA supports with limits (no newer features, no PTX)",
            "",
            "minorVersionCompatibility",
        ),
        (
            "11.4",
            ", and it is unknown whether the image has cuda-compat",
            "cudaErrorInsufficientDriver (35)",
            "majorVersionMismatch",
        ),
    ],
)
def test_an_older_driver_is_denied_by_policy_if_nothing_is_known_of_the_image(
    cuda: str, limits: str, error: str, setting: str
) -> None:
    """Within the major it runs with limits; otherwise the image may have compatibility libraries."""
    reason = f"the driver has CUDA {cuda}, below 12.4{limits}"
    results = check(PHYSICAL, needing(cuda="12.4"), driver(cuda))

    assert [(Level.INCOMPATIBLE, reason, error)] == shown(results)
    assert [setting] == [result.setting for result in results]


@pytest.mark.parametrize(
    ("compat", "product", "loads"),
    [("false", "Tesla-T4", None), ("", "NVIDIA-GeForce-RTX-4090", None), ("", "Tesla-T4", False)],
)
def test_an_older_major_is_a_fact_if_no_libraries_can_help(
    compat: str, product: str, loads: bool | None
) -> None:
    """The image has none, the GPU is not supported, or the container runtime loads none."""
    node = driver("11.4", product=product, runtime=ContainerRuntime(loads_compat=loads))
    required = needing(cuda="12.4", compat=compat) if compat else needing(cuda="12.4")
    (result,) = check(PHYSICAL, required, node)

    assert (Level.INCOMPATIBLE, "") == (result.level, result.setting)


@pytest.mark.parametrize("level", [Level.INCOMPATIBLE, Level.UNSTABLE, Level.COMPATIBLE])
def test_a_setting_decides_about_an_older_major_of_an_image_of_which_nothing_is_known(level: Level) -> None:
    """As for virtual GPUs."""
    (result,) = check(structs.replace(PHYSICAL, major_versions=level), needing(cuda="12.4"), driver("11.4"))

    assert level is result.level


def test_the_result_names_the_source_of_the_requirement_and_a_fix() -> None:
    """An older image, or a newer driver."""
    (result,) = check(PHYSICAL, needing(cuda="12.4"), driver("12.2"))

    assert "annotation gpugate.dev/cuda-version says CUDA 12.4" == result.origin.en
    assert "use an image with CUDA 12.2 or older, or a driver with CUDA 12.4 or newer" == result.remedy.en


def test_a_container_without_a_cuda_version_has_no_result() -> None:
    """Unknown requires nothing."""
    assert [] == check(PHYSICAL, needing(), NodeCapabilities())
    assert [] == check(WITH_BASELINE, needing(), driver("13.0"))


def test_a_missing_label_is_unknown() -> None:
    """It is neither denied nor ignored."""
    assert [Level.UNKNOWN] == [
        result.level for result in check(PHYSICAL, needing(cuda="12.4"), NodeCapabilities())
    ]


@pytest.mark.parametrize("runtime", ["10.2", "11.8"])
def test_a_driver_more_than_one_major_ahead_is_unstable(runtime: str) -> None:
    """A driver supports programs of the major before its own."""
    ahead = int(runtime.split(".", maxsplit=1)[0]) + 2
    (result,) = check(PHYSICAL, needing(cuda=runtime), driver(f"{ahead}.0"))

    assert (Level.UNSTABLE, "") == (result.level, result.error)
    assert [] == check(PHYSICAL, needing(cuda=runtime), driver(f"{ahead - 1}.8"))


@pytest.mark.parametrize(
    ("policy", "required", "node"),
    [
        (PHYSICAL, UNVERIFIED, driver("11.8")),
        (PHYSICAL, structs.replace(UNVERIFIED, cuda_compat=CompatLibraries.LOADER_PATH), driver("11.8")),
        (PHYSICAL, UNVERIFIED, NodeCapabilities()),
        (VIRTUAL, UNVERIFIED, driver("13.0")),
    ],
)
def test_an_unverified_version_is_a_warning(
    policy: SharingPolicy, required: GpuRequirements, node: NodeCapabilities
) -> None:
    """With an older driver, also with cuda-compat; without a label; with another major."""
    assert [Level.UNSTABLE] == [result.level for result in check(policy, required, node)]


# Virtual GPUs


@pytest.mark.parametrize(
    ("policy", "required", "major"),
    [
        (PHYSICAL, needing(cuda="12.4"), None),
        (VIRTUAL, needing(cuda="12.4"), 12),
        (VIRTUAL, needing(cuda="12"), None),
        (WITH_BASELINE, needing(cuda="12"), 12),
        (WITH_BASELINE, requiring("cuda>=11.0"), 12),
    ],
)
def test_virtual_gpus_need_a_driver_of_the_major_of_the_runtime(
    policy: SharingPolicy, required: GpuRequirements, major: int | None
) -> None:
    """If the runtime may be newer than declared, it is the major of the baseline."""
    assert required.cuda is not None
    assert major == policy.driver_major(required.cuda)
    expected = [] if major is None else [("majorVersionMismatch", "")]
    assert expected == [(result.setting, result.error) for result in check(policy, required, driver("13.0"))]


# Minor version and forward compatibility


@pytest.mark.parametrize("setting", [Level.COMPATIBLE, Level.UNSTABLE])
@pytest.mark.parametrize(
    ("runtime", "cuda", "version", "runs"),
    [
        ("12.8", "12.0", "525.60.13", True),
        ("12.8", "12.0", None, True),
        ("12.8", "12.0", "525.60.11", False),
        ("11.8", "11.0", "450.80.02", True),
        ("11.8", "11.0", "450.51.06", False),
        ("13.1", "13.0", "580.65.06", True),
        ("12.8", "11.8", "520.61.05", False),
        ("10.2", "10.1", "418.39", False),
    ],
)
def test_minor_version_compatibility_is_as_the_rule_sets_it(
    setting: Level, runtime: str, cuda: str, version: str | None, runs: bool
) -> None:
    """From CUDA 11 on, with a driver above the floor; an unknown driver version does not exclude a node."""
    results = check(SharingPolicy(minor_versions=setting), needing(cuda=runtime), driver(cuda, version))

    assert (setting if runs else Level.INCOMPATIBLE) is level_of(results)


@pytest.mark.parametrize("setting", [Level.COMPATIBLE, Level.UNSTABLE, Level.INCOMPATIBLE])
def test_minor_version_compatibility_of_virtual_gpus_is_as_the_rule_sets_it(setting: Level) -> None:
    """As for whole GPUs."""
    policy = SharingPolicy(virtual=True, minor_versions=setting)

    assert setting is level_of(check(policy, needing(cuda="12.4"), driver("12.2", "535.104.05")))


def test_a_driver_without_a_cuda_label_is_unknown() -> None:
    """An image that admits its branch says nothing of what its programs do with it."""
    node = NodeCapabilities(driver="450.51.06", product="Tesla-V100-SXM2-32GB")
    required = requirements("nvidia/cuda:11.3.1-base-ubuntu20.04")

    assert Level.UNKNOWN is level_of(check(VIRTUAL, required, node))
    assert Level.UNKNOWN is level_of(check(PHYSICAL, required, node))


@pytest.mark.parametrize("setting", [Level.COMPATIBLE, Level.UNSTABLE, Level.INCOMPATIBLE])
def test_another_major_of_virtual_gpus_is_as_the_rule_sets_it(setting: Level) -> None:
    """An older major is too old in any case, and no error is named: which one follows depends on the call."""
    policy = SharingPolicy(virtual=True, major_versions=setting)

    (result,) = check(policy, needing(cuda="11.8"), driver("12.2"))
    assert (setting, "", "majorVersionMismatch") == (result.level, result.error, result.setting)
    (result,) = check(policy, needing(cuda="12.4"), driver("11.8"))
    assert (Level.INCOMPATIBLE, "") == (result.level, result.setting)


@pytest.mark.parametrize(
    ("product", "version", "runtime", "supported"),
    [
        ("Tesla-T4", "535.104.05", "12.8", True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "535.104.05", "12.8", True),
        ("Tesla-T4", None, "12.8", True),
        ("Tesla-T4", "535.104.05", "13.0", True),
        ("Tesla-T4", "570.26", "12.8", False),
        ("Tesla-T4", "530.30.02", "12.8", False),
        ("Tesla-T4", "470.82.01", "13.0", False),
        ("Tesla-T4", "550.54.15", "12.8", None),
        ("Tesla-T4", "550.54.15", "13.0", None),
        ("Tesla-T4", "575.57.08", "13.0", None),
        ("Tesla-T4", "535.104.05", "12.7", None),
        ("NVIDIA-GeForce-RTX-4090", "535.104.05", "12.8", False),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "570.124.06", "13.0", True),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition", "570.124.06", "13.0", None),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition", "570.124.06", "13.0", None),
        ("NVIDIA-RTX-A6000", "535.104.05", "12.8", None),
        ("Card-of-tomorrow", "535.104.05", "12.8", None),
        (None, "535.104.05", "12.8", None),
    ],
)
def test_cuda_compat_is_supported_if_nvidia_lists_the_gpu_and_the_driver_branch(
    product: str | None, version: str | None, runtime: str, supported: bool | None
) -> None:
    """Data center GPUs and branches of NVIDIA's list; not on consumer cards, nor on a branch of no list.

    A branch that NVIDIA listed before is unknown. Without a label for the driver, its CUDA version shows it.
    """
    node = driver("12.2", version, product=product)

    assert (True, supported) == libraries(PHYSICAL, needing(cuda=runtime, compat="true"), node)


@pytest.mark.parametrize(
    ("libraries_of_image", "loads", "loaded"),
    [
        (CompatLibraries.LOADER_PATH, False, True),
        (CompatLibraries.INSIDE, True, True),
        (CompatLibraries.INSIDE, None, None),
        (CompatLibraries.INSIDE, False, False),
        (CompatLibraries.NONE, True, False),
        (CompatLibraries.UNKNOWN, True, None),
        (CompatLibraries.UNKNOWN, None, None),
        (CompatLibraries.UNKNOWN, False, False),
    ],
)
def test_libraries_are_loaded_from_the_loader_path_or_by_the_container_runtime(
    libraries_of_image: CompatLibraries, loads: bool | None, loaded: bool | None
) -> None:
    """What may be in an image counts only if the node would load it. Virtual GPUs load none."""
    required = structs.replace(needing(cuda="12.8"), cuda_compat=libraries_of_image)
    node = driver("12.2", product="Tesla-T4", runtime=ContainerRuntime(loads_compat=loads))

    assert loaded is libraries(PHYSICAL, required, node).loaded
    assert libraries(VIRTUAL, required, node).loaded is False


@pytest.mark.parametrize(
    ("product", "version", "loads", "expected"),
    [
        (A100, "570.26", True, (Level.COMPATIBLE, ": it runs by forward compatibility (cuda-compat)", "")),
        (A100, "570.26", None, (Level.UNKNOWN, "the node's container runtime may not load", "")),
        (A100, "570.26", False, (Level.INCOMPATIBLE, "; the node's container runtime does not load", LOW)),
        (A100, "575.57.08", True, (Level.UNKNOWN, "cuda-compat may not support this GPU and driver", "")),
        (A100, "530.30.02", None, (Level.INCOMPATIBLE, "does not support driver branch 530", "")),
        (RTX, "570.26", True, (Level.INCOMPATIBLE, "does not support consumer GPUs", UNSUPPORTED)),
        (RTX, "570.26", None, (Level.INCOMPATIBLE, "does not support consumer GPUs", "")),
        (RTX, "570.26", False, (Level.INCOMPATIBLE, "does not load the image's cuda-compat", LOW)),
    ],
)
@pytest.mark.parametrize("mode", RuntimeMode)
def test_an_older_major_needs_libraries_that_are_loaded_and_supported(
    mode: RuntimeMode, product: str, version: str, loads: bool | None, expected: tuple[Level, str, str]
) -> None:
    """Whatever the mode: the image of this test has no NVIDIA_REQUIRE_CUDA."""
    required = structs.replace(needing(cuda="13.0"), cuda_compat=CompatLibraries.INSIDE)
    runtime = ContainerRuntime(mode, loads_compat=loads)
    (result,) = check(PHYSICAL, required, driver("12.8", version, product=product, runtime=runtime))

    level, words, error = expected
    assert (level, error, "") == (result.level, result.error, result.setting)
    assert words in result.reason.en


@pytest.mark.parametrize(
    ("setting", "loads", "level", "words"),
    [
        (Level.COMPATIBLE, True, Level.UNKNOWN, "does not support consumer GPUs"),
        (Level.COMPATIBLE, None, Level.UNKNOWN, "does not support consumer GPUs"),
        (Level.COMPATIBLE, False, Level.COMPATIBLE, "supports with limits"),
        (Level.INCOMPATIBLE, None, Level.INCOMPATIBLE, "supports with limits"),
    ],
)
def test_libraries_that_do_not_support_the_gpu_may_fail_where_the_driver_alone_would_do(
    setting: Level, loads: bool | None, level: Level, words: str
) -> None:
    """Error 804, if they are loaded; a rule that forbids older minor versions forbids this one, too."""
    required = structs.replace(needing(cuda="12.8"), cuda_compat=CompatLibraries.INSIDE)
    node = driver("12.2", "535.104.05", product=RTX, runtime=ContainerRuntime(loads_compat=loads))
    (result,) = check(SharingPolicy(minor_versions=setting), required, node)

    assert (level, "") == (result.level, result.error)
    assert words in result.reason.en


def test_an_unverified_row_for_cuda_compat_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither admits nor denies."""
    required, node = needing(cuda="12.8", compat="true"), driver("12.2", "535.104.05", product="Tesla-T4")
    for value in (True, False):
        fact = Fact(value, "none", Status.UNVERIFIED)
        monkeypatch.setattr("rules.compatibility.checks.driver.forward_compatible", lambda *_, row=fact: row)
        assert libraries(PHYSICAL, required, node).supported is None


def test_cuda_compat_on_a_driver_of_an_unknown_branch_is_unknown() -> None:
    """No label has its version."""
    node = NodeCapabilities(product="Tesla-T4")

    assert (True, None) == libraries(PHYSICAL, needing(cuda="12.8", compat="true"), node)


def test_minor_version_compatibility_decides_before_a_cuda_compat_that_is_unknown() -> None:
    """The one is certain, the other is not."""
    policy, required = SharingPolicy(minor_versions=Level.COMPATIBLE), needing(cuda="12.8", compat="true")

    assert Level.COMPATIBLE is level_of(
        check(policy, required, driver("12.4", "550.54.15", product="Tesla-T4"))
    )


def test_cuda_compat_has_no_result_with_a_driver_that_is_new_enough() -> None:
    """Even on a card that does not support it."""
    node = driver("12.8", "570.26", product="NVIDIA-GeForce-RTX-4090")

    assert [] == check(PHYSICAL, needing(cuda="12.8", compat="true"), node)
