"""Whether a container's needs are met by what a node offers: each reason, its level, error and remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.compatibility.fitness import fitness, forward_fit, outline, without_node
from rules.compatibility.required_affinity import clauses_of
from rules.cuda.image_catalog import BuiltFor, ImageCase, ImageCatalog, ImageRow, built_in_catalog
from rules.cuda.nvidia_require import constraints
from rules.cuda.requirements import (
    ComputeRequirement,
    ContainerFacts,
    CudaRequirement,
    GpuRequirements,
    requirements_of,
)
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.container_env import environment
from rules.model.finding import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.glob import glob
from rules.text.i18n import Text
from tests.support.node_builders import COMPAT, COMPUTE, CUDA, gfd, node

PHYSICAL = SharingPolicy()
VIRTUAL = SharingPolicy(virtual=True)
WITH_BASELINE = SharingPolicy(virtual=True, baseline=CudaVersion(12, 4))
UNVERIFIED = "tensorflow/tensorflow:2.15.0-gpu"  # CUDA 12.2, which nobody has verified


def needing(
    image: str = "team/app:v1", env: dict[str, str] | None = None, **annotations: str
) -> GpuRequirements:
    """Return the needs of a container; annotations: `cuda`, `compute`, `compat`."""
    names = {"cuda": CUDA, "compute": COMPUTE, "compat": COMPAT}
    entries = [{"name": name, "value": value} for name, value in (env or {}).items()]
    said = {names[name]: value for name, value in annotations.items()}
    return requirements_of(ContainerFacts("main", image, environment(entries)), said, built_in_catalog())


def built(for_: str, ptx: bool | None) -> GpuRequirements:
    """Return the needs of an image that has code for these compute capabilities."""
    capabilities = tuple(filter(None, map(ComputeCapability.parse, for_.split())))
    case = ImageCase(built_for=capabilities, ptx=ptx)
    catalog = ImageCatalog([ImageRow("ours", glob("*"), (case,))])
    return requirements_of(ContainerFacts("main", "team/app:v1", environment([])), {}, catalog)


def driver(cuda: str, version: str | None = None, **offer: Any) -> NodeCapabilities:
    """Return the offer of a node whose driver has a CUDA version."""
    return NodeCapabilities(cuda=CudaVersion.parse(cuda), driver=version, **offer)


def gpu(compute: str) -> NodeCapabilities:
    """Return the offer of a node with the newest driver and a compute capability."""
    return NodeCapabilities(cuda=(13, 4), compute_capability=ComputeCapability.parse(compute))


def told(findings: tuple[CheckResult, ...]) -> list[tuple[Level, str, str]]:
    """Return of each finding the level, the reason and the error."""
    return [(found.level, found.reason.en, found.error) for found in findings]


@pytest.mark.parametrize("runtime", ["10.2", "11.8", "12.2", "12.10"])
@pytest.mark.parametrize("cuda", ["10.2", "11.8", "12.2", "12.10"])
def test_a_driver_runs_every_older_cuda_and_no_newer_one(runtime: str, cuda: str) -> None:
    """Compared as versions: 12.10 is after 12.2."""
    newer = [int(part) for part in runtime.split(".")] > [int(part) for part in cuda.split(".")]
    level = level_of(fitness(PHYSICAL, needing(cuda=runtime), driver(cuda)))

    assert newer is (level is Level.INCOMPATIBLE)


def test_an_older_minor_and_an_older_major_fail_differently() -> None:
    """PTX of a newer toolkit within the major; otherwise the runtime itself refuses the driver."""
    assert [
        (
            Level.INCOMPATIBLE,
            "the driver has CUDA 12.2, below 12.4",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)",
        )
    ] == told(fitness(PHYSICAL, needing(cuda="12.4"), driver("12.2")))
    assert [
        (Level.INCOMPATIBLE, "the driver has CUDA 11.8, below 12.4", "cudaErrorInsufficientDriver (35)")
    ] == told(fitness(PHYSICAL, needing(cuda="12.4"), driver("11.8")))


def test_a_refusal_says_who_asks_and_what_helps() -> None:
    """In both languages."""
    (found,) = fitness(PHYSICAL, needing(cuda="12.4"), driver("12.2"))

    assert "annotation gpugate.dev/cuda-version says CUDA 12.4" == found.origin.en
    assert "use an image with CUDA 12.2 or older, or a driver with CUDA 12.4 or newer" == found.remedy.en
    assert "改用 CUDA 12.2 或更旧的镜像，或使用支持 CUDA 12.4 及以上的驱动" == found.remedy.zh
    assert "驱动为 CUDA 12.2，低于 12.4" == found.reason.zh


@pytest.mark.parametrize(
    ("terms", "needs", "offer"),
    [
        (PHYSICAL, needing(), NodeCapabilities()),
        (WITH_BASELINE, needing(), driver("13.0")),
        (PHYSICAL, needing(env={"NVIDIA_REQUIRE_CUDA": "cuda>=="}), NodeCapabilities()),
        (PHYSICAL, needing(cuda="12.4"), driver("12.4")),
        (PHYSICAL, needing(cuda="12.4"), driver("13.0")),
    ],
)
def test_what_is_not_needed_is_not_looked_for(
    terms: SharingPolicy, needs: GpuRequirements, offer: NodeCapabilities
) -> None:
    """No need, no finding."""
    assert () == fitness(terms, needs, offer)


@pytest.mark.parametrize(
    ("terms", "needs", "offer", "count"),
    [
        (PHYSICAL, needing(cuda="12.4"), NodeCapabilities(), 1),
        (PHYSICAL, needing(compute="8.0"), driver("12.4"), 1),
        (PHYSICAL, needing(cuda="12.4", compute="8.0"), NodeCapabilities(), 2),
        (PHYSICAL, needing(env={"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}), NodeCapabilities(), 1),
        (
            WITH_BASELINE,
            needing(env={"NVIDIA_REQUIRE_CUDA": "driver>=535 cuda>=12.0"}),
            NodeCapabilities(),
            1,
        ),
        (SharingPolicy(min_cuda=CudaVersion(11, 5)), needing(), NodeCapabilities(), 1),
        (SharingPolicy(min_compute=ComputeCapability(7, 0)), needing(), NodeCapabilities(), 1),
    ],
)
def test_what_is_needed_and_not_told_is_unknown(
    terms: SharingPolicy, needs: GpuRequirements, offer: NodeCapabilities, count: int
) -> None:
    """Neither refused nor let pass in silence."""
    assert [Level.UNKNOWN] * count == [found.level for found in fitness(terms, needs, offer)]


def test_a_floor_of_the_image_is_silent_where_no_label_tells_the_gpu() -> None:
    """Every image has one; the pod did not ask for it."""
    assert () == fitness(PHYSICAL, needing(cuda="13.0"), driver("13.0"))


@pytest.mark.parametrize("runtime", ["10.2", "11.8"])
def test_a_driver_more_than_one_major_ahead_is_unstable(runtime: str) -> None:
    """One major is what drivers are made for."""
    ahead = int(runtime.split(".", maxsplit=1)[0]) + 2
    (found,) = fitness(PHYSICAL, needing(cuda=runtime), driver(f"{ahead}.0"))

    assert (Level.UNSTABLE, "") == (found.level, found.error)
    assert () == fitness(PHYSICAL, needing(cuda=runtime), driver(f"{ahead - 1}.8"))


def test_what_is_unverified_is_never_more_than_unstable() -> None:
    """On nodes, against a baseline, across majors, where no label tells."""
    needs = needing(UNVERIFIED)
    findings = (
        *fitness(PHYSICAL, needs, driver("11.8")),
        *fitness(VIRTUAL, needs, driver("13.0")),
        *without_node(SharingPolicy(virtual=True, baseline=CudaVersion(11, 8)), needs),
        *without_node(SharingPolicy(virtual=True, baseline=CudaVersion(13, 0)), needs),
        *fitness(PHYSICAL, needs, NodeCapabilities()),
    )

    assert [Level.UNSTABLE] * 5 == [found.level for found in findings]


# Virtual GPUs


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        ("12.6", "the virtual GPUs support CUDA up to 12.4, the container needs 12.6"),
        ("13.0", "the virtual GPUs support CUDA up to 12.4, the container needs 13.0"),
        (
            "11.8",
            "virtual GPUs of CUDA 12.4 need a runtime of the same major version, not 11.8",
        ),
    ],
)
def test_a_baseline_is_not_to_be_exceeded_nor_of_another_major(runtime: str, reason: str) -> None:
    """Whatever the node; the error is unknown, even to CUDA."""
    found = without_node(WITH_BASELINE, needing(cuda=runtime))

    assert [(Level.INCOMPATIBLE, reason, "CUDA_ERROR_UNKNOWN (999)")] == told(found)
    assert "use an image with CUDA 12.x up to 12.4, or whole GPUs" == found[0].remedy.en


@pytest.mark.parametrize("terms", [PHYSICAL, VIRTUAL, WITH_BASELINE])
@pytest.mark.parametrize("needs", [needing(), needing(cuda="12.0"), needing(cuda="12.4"), needing(cuda="12")])
def test_within_the_baseline_there_is_nothing_to_say(terms: SharingPolicy, needs: GpuRequirements) -> None:
    """Or without one."""
    assert () == without_node(terms, needs)


@pytest.mark.parametrize(
    ("terms", "needs", "only"),
    [
        (PHYSICAL, needing(cuda="12.4"), None),
        (VIRTUAL, needing(cuda="12.4"), 12),
        (VIRTUAL, needing(cuda="12"), None),
        (WITH_BASELINE, needing(cuda="12"), 12),
        (WITH_BASELINE, needing(env={"NVIDIA_REQUIRE_CUDA": "cuda>=11.0"}), 12),
    ],
)
def test_virtual_gpus_need_a_driver_of_the_runtimes_major(
    terms: SharingPolicy, needs: GpuRequirements, only: int | None
) -> None:
    """Of the baseline's, where the runtime may also be newer than it says."""
    assert needs.cuda is not None
    assert only == terms.driver_major(needs.cuda)
    expected = [] if only is None else ["CUDA_ERROR_UNKNOWN (999)"]
    assert expected == [found.error for found in fitness(terms, needs, driver("13.0"))]


def test_a_variable_that_holds_does_not_make_up_for_another_major() -> None:
    """Not where calls are intercepted."""
    needs = needing(env={"NVIDIA_REQUIRE_CUDA": "cuda>=12.0"})

    assert () == fitness(PHYSICAL, needs, driver("13.0"))
    assert Level.INCOMPATIBLE is level_of(fitness(WITH_BASELINE, needs, driver("13.0")))
    assert () == fitness(WITH_BASELINE, needs, driver("12.2"))


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
def test_within_a_major_a_driver_above_the_floor_may_run_newer_minors(
    setting: Level, runtime: str, cuda: str, version: str | None, runs: bool
) -> None:
    """From CUDA 11 on, as the rule sets it; an unknown driver version is not held against the node."""
    found = fitness(SharingPolicy(minor_versions=setting), needing(cuda=runtime), driver(cuda, version))

    assert (setting if runs else Level.INCOMPATIBLE) is level_of(found)


def test_minor_versions_are_no_help_to_virtual_gpus() -> None:
    """Whatever is set."""
    terms = SharingPolicy(virtual=True, minor_versions=Level.COMPATIBLE)

    assert Level.INCOMPATIBLE is level_of(fitness(terms, needing(cuda="12.4"), driver("12.2", "535.104.05")))


@pytest.mark.parametrize(
    ("product", "version", "runtime", "level"),
    [
        ("Tesla-T4", "535.104.05", "12.8", Level.COMPATIBLE),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "535.104.05", "12.8", Level.COMPATIBLE),
        ("Tesla-T4", "570.26", "12.8", Level.INCOMPATIBLE),
        ("Tesla-T4", "550.54.15", "12.8", Level.UNKNOWN),
        ("Tesla-T4", None, "12.8", Level.UNKNOWN),
        ("Tesla-T4", "535.104.05", "12.7", Level.UNKNOWN),
        ("NVIDIA-GeForce-RTX-4090", "535.104.05", "12.8", Level.INCOMPATIBLE),
        ("NVIDIA-RTX-A6000", "535.104.05", "12.8", Level.UNKNOWN),
        ("Card-of-tomorrow", "535.104.05", "12.8", Level.UNKNOWN),
        (None, "535.104.05", "12.8", Level.UNKNOWN),
    ],
)
def test_cuda_compat_helps_where_nvidia_lists_it(
    product: str | None, version: str | None, runtime: str, level: Level
) -> None:
    """On data centre GPUs, on the branches of its table; on consumer cards never; else nobody knows."""
    offer = driver("12.2", version, product=product)
    needs = needing(cuda=runtime, compat="true")

    assert level is forward_fit(needs, offer)
    assert level is level_of(fitness(PHYSICAL, needs, offer))
    assert Level.INCOMPATIBLE is forward_fit(needing(cuda=runtime), offer)


def test_where_minor_versions_are_allowed_cuda_compat_need_not_help() -> None:
    """Nobody knows of the one, and the other is certain."""
    terms, needs = SharingPolicy(minor_versions=Level.COMPATIBLE), needing(cuda="12.8", compat="true")

    assert Level.COMPATIBLE is level_of(
        fitness(terms, needs, driver("12.4", "550.54.15", product="Tesla-T4"))
    )


def test_without_cuda_compat_in_need_there_is_no_word_of_it() -> None:
    """A driver that is new enough is all that counts."""
    offer = driver("12.8", "570.26", product="NVIDIA-GeForce-RTX-4090")

    assert () == fitness(PHYSICAL, needing(cuda="12.8", compat="true"), offer)


# NVIDIA_REQUIRE_*


@pytest.mark.parametrize(
    ("expression", "offer", "level"),
    [
        ("cuda>=12.4", driver("12.4"), Level.COMPATIBLE),
        ("cuda>=12.4", driver("12.2"), Level.INCOMPATIBLE),
        ("cuda>=12.4,cuda<13", driver("13.0"), Level.INCOMPATIBLE),
        ("cuda>=12.4 driver>=535", driver("12.2", "535.104.05"), Level.COMPATIBLE),
        ("cuda>=12.4 driver>=535", driver("12.2"), Level.UNKNOWN),
        ("cuda>=12.4 brand=tesla,driver>=535", driver("12.2", "535.104.05"), Level.UNKNOWN),
        ("cuda>=12.4 brand=tesla,driver>=535", driver("12.0", "525.60.13"), Level.INCOMPATIBLE),
        ("cuda>=12.4 brand=tesla,driver>=535", driver("12.4", "550.54.15"), Level.COMPATIBLE),
        ("arch>=8.0", gpu("7.5"), Level.INCOMPATIBLE),
        ("arch>=8.0", NodeCapabilities(), Level.UNKNOWN),
        ("brand=tesla", driver("12.4"), Level.UNKNOWN),
        ("cuda>=12.4,brand=tesla", driver("12.6"), Level.UNKNOWN),
    ],
)
def test_a_variable_holds_or_does_not_or_nobody_knows(
    expression: str, offer: NodeCapabilities, level: Level
) -> None:
    """One that holds goes before the comparison of versions, and only one that does not refuses."""
    assert level is level_of(fitness(PHYSICAL, needing(env={"NVIDIA_REQUIRE_CUDA": expression}), offer))


def test_a_long_expression_is_cut_in_the_message() -> None:
    """NVIDIA's have 2,000 characters."""
    needs = needing(env={"NVIDIA_REQUIRE_CUDA": " ".join(["cuda>=13.0"] * 100)})
    (found,) = fitness(PHYSICAL, needs, driver("12.2"))

    assert found.origin.en.endswith("…`")
    assert len(found.origin.en) < 150


# Compute capability


@pytest.mark.parametrize(
    ("compute", "level"), [("7.5", Level.INCOMPATIBLE), ("8.0", Level.COMPATIBLE), ("9.0", Level.COMPATIBLE)]
)
def test_a_gpu_below_the_capability_that_is_asked_for_is_refused(compute: str, level: Level) -> None:
    """No CUDA error is claimed: who asks for it, a framework by its flag, stops before CUDA does."""
    found = fitness(PHYSICAL, needing(compute="8.0"), gpu(compute))

    assert level is level_of(found)
    assert all(each.error == "" for each in found)


def test_a_gpu_below_what_the_toolkit_compiles_for_gives_the_error_of_the_kernel() -> None:
    """Nothing stops the program before."""
    (found,) = fitness(PHYSICAL, needing(cuda="13.0"), gpu("7.0"))

    assert "CUDA_ERROR_NO_BINARY_FOR_GPU (209)" == found.error


@pytest.mark.parametrize(
    ("for_", "ptx", "levels"),
    [
        ("7.5 8.6", True, {"7.0": 3, "7.5": 0, "8.0": 3, "8.6": 0, "8.9": 0, "9.0": 0}),
        ("7.5 8.6", False, {"7.0": 3, "7.5": 0, "8.0": 3, "8.6": 0, "8.9": 0, "9.0": 3}),
        ("7.5 8.6", None, {"7.0": 3, "7.5": 0, "8.0": 1, "8.6": 0, "8.9": 0, "9.0": 1}),
    ],
)
def test_an_image_runs_on_what_it_has_code_for(for_: str, ptx: bool | None, levels: dict[str, int]) -> None:
    """Same major, same or higher minor; beyond, by PTX."""
    found = {compute: int(level_of(fitness(PHYSICAL, built(for_, ptx), gpu(compute)))) for compute in levels}

    assert levels == found


def test_one_gpu_that_is_too_old_is_told_once() -> None:
    """A floor that refuses it, and code that is missing, are one fact."""
    found = fitness(PHYSICAL, needing(cuda="13.0"), gpu("7.0"))

    assert ["compute capability 7.0, below 7.5"] == [each.reason.en for each in found]


def test_the_worst_finding_is_the_level() -> None:
    """Nothing found is well."""
    assert Level.COMPATIBLE is level_of(())
    assert Level.INCOMPATIBLE is level_of(
        fitness(PHYSICAL, needing(cuda="12.4", compute="8.0"), driver("11.8"))
    )


# What nobody has verified

versions = st.builds(CudaVersion, st.integers(10, 14), st.integers(0, 9))
computes = st.builds(ComputeCapability, st.integers(5, 12), st.integers(0, 9))
doubted = st.builds(
    GpuRequirements,
    container=st.just("main"),
    cuda=st.none()
    | st.builds(
        CudaRequirement, versions, st.booleans(), st.just(False), st.just("row"), st.just(Text("an image"))
    ),
    compute=st.lists(
        st.builds(ComputeRequirement, computes, st.just(False), st.just(Text("a flag")), st.booleans()),
        max_size=2,
    ).map(tuple),
    built_for=st.none()
    | st.builds(
        BuiltFor,
        st.lists(computes, min_size=1, max_size=3).map(tuple),
        st.sampled_from([True, False, None]),
        st.just(False),
    ),
    cuda_compat=st.booleans(),
)
offers = st.builds(
    NodeCapabilities,
    cuda=st.none() | versions,
    driver=st.none()
    | st.sampled_from(["450.80.02", "450.51.06", "470.82.01", "525.60.13", "525.60.1", "535.104.05", "?"]),
    compute_capability=st.none() | computes,
    product=st.none() | st.sampled_from(["Tesla-T4", "NVIDIA-GeForce-RTX-4090", "Quadro-P1000"]),
    memory_mib=st.none() | st.integers(1, 2),
    mig_strategy=st.none() | st.just("mixed"),
    mig_devices=st.booleans(),
    sharing_strategy=st.none() | st.just("mps"),
    device_mode=st.none() | st.sampled_from(["pgpu", "mps"]),
)


@given(
    st.sampled_from(
        [
            PHYSICAL,
            WITH_BASELINE,
            SharingPolicy(minor_versions=Level.UNSTABLE),
            SharingPolicy(
                min_cuda=CudaVersion(11, 4), min_compute=ComputeCapability(7, 0), device_mode="mps", mig=False
            ),
        ]
    ),
    doubted.map(lambda needs: replace(needs, cuda=needs.cuda and replace(needs.cuda, certain=True))),
    st.sampled_from(["", "cuda>=12.4 driver>=450.60,driver<451", "driver>=525.60.2", "arch>=8.0"]),
    offers,
)
def test_an_outline_of_an_offer_suits_as_the_offer_does(
    terms: SharingPolicy, needs: GpuRequirements, required: str, offer: NodeCapabilities
) -> None:
    """In every word that is said of it."""
    needs = replace(needs, constraints=constraints({"NVIDIA_REQUIRE_CUDA": required} if required else {}))
    seen = outline(offer, variables=bool(required), compat=needs.cuda_compat)

    assert fitness(terms, needs, offer) == fitness(terms, needs, seen)


def test_drivers_of_one_branch_are_of_one_outline_but_for_the_floor_that_parts_them() -> None:
    """And for variables, which may ask for any of them."""
    drivers = [driver("12.0", f"525.{minor}") for minor in ("60.11", "60.12", "60.13", "85.12", "105.17")]
    plain, asking = (
        [outline(each, variables=variables, compat=False) for each in drivers] for variables in (False, True)
    )

    assert (2, 5) == (len(set(plain)), len(set(asking)))
    assert plain[1] != plain[2]


@given(
    st.sampled_from([PHYSICAL, VIRTUAL, WITH_BASELINE, SharingPolicy(minor_versions=Level.UNSTABLE)]),
    doubted,
    st.builds(
        NodeCapabilities,
        cuda=st.none() | versions,
        driver=st.none() | st.sampled_from(["470.82.01", "535.104.05", "580.65.06"]),
        compute_capability=st.none() | computes,
        product=st.none() | st.sampled_from(["Tesla-T4", "NVIDIA-GeForce-RTX-4090"]),
    ),
    st.booleans(),
)
def test_what_nobody_has_verified_refuses_no_node_and_shuts_none_out(
    terms: SharingPolicy, needs: GpuRequirements, offer: NodeCapabilities, doubtful: bool
) -> None:
    """Whatever it would ask: it is a warning, and no reason for affinity."""
    cluster = Inventory.of([node("old", gfd("11.4")), node("new", gfd("13.0"))])

    assert level_of((*without_node(terms, needs), *fitness(terms, needs, offer))) < Level.UNKNOWN
    assert () == clauses_of(terms, needs, cluster, doubtful=doubtful)
