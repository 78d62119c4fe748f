"""Images by their tags against nodes: the verdict is that of the image's own NVIDIA_REQUIRE_CUDA.

The expressions are evaluated a second time here, as src/cli/dsl.c of NVIDIA/libnvidia-container does it, on
what NVML prints on these nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple

import pytest

from rules.cuda.tables import BUILT_IN, RequireText, read_table, require_of_nvidia_cuda
from rules.model.decision import Decision
from rules.model.finding import Basis
from tests.support.builders import policy, warning_texts
from tests.support.node_builders import (
    Node,
    compatibility_rule,
    decided,
    gpu_pod,
    image_catalog,
    inventory,
    judged,
    legacy,
    node,
    requiring,
    targets,
)


class Machine(NamedTuple):
    """A node: its product label, what NVML prints, and its CPU architecture."""

    product: str
    brand: str
    compute: str
    driver: str
    cuda: str
    architecture: str = "amd64"


MACHINES: Final = {
    "T4/470": Machine("Tesla-T4", "Tesla", "7.5", "470.82.01", "11.4"),
    "T4/535": Machine("Tesla-T4", "NVIDIA", "7.5", "535.104.05", "12.2"),
    "V100/535": Machine("Tesla-V100-SXM2-32GB", "Tesla", "7.0", "535.104.05", "12.2"),
    "A10G/550": Machine("NVIDIA-A10G", "NVIDIA", "8.6", "550.54.15", "12.4"),
    "A100/525": Machine("NVIDIA-A100-SXM4-80GB", "NVIDIA", "8.0", "525.85.12", "12.0"),
    "A100/535": Machine("NVIDIA-A100-SXM4-80GB", "NVIDIA", "8.0", "535.104.05", "12.2"),
    "H100/535": Machine("NVIDIA-H100-80GB-HBM3", "NVIDIA", "9.0", "535.104.05", "12.2"),
    "H100/570": Machine("NVIDIA-H100-80GB-HBM3", "NVIDIA", "9.0", "570.124.06", "12.8"),
    "L4/550": Machine("NVIDIA-L4", "NVIDIA", "8.9", "550.54.15", "12.4"),
    "RTX 4090/535": Machine("NVIDIA-GeForce-RTX-4090", "GeForce", "8.9", "535.104.05", "12.2"),
    "RTX 4090/550": Machine("NVIDIA-GeForce-RTX-4090", "GeForce", "8.9", "550.54.15", "12.4"),
    "RTX 4090/580": Machine("NVIDIA-GeForce-RTX-4090", "GeForce", "8.9", "580.65.06", "13.0"),
    "GB200/580": Machine("NVIDIA-GB200", "NVIDIA", "10.0", "580.65.06", "13.0", "arm64"),
}
# More, which are not compared with what NVML prints.
OTHERS: Final = {
    "A100/550": Machine("NVIDIA-A100-SXM4-80GB", "NVIDIA", "8.0", "550.54.15", "12.4"),
    "A100/575": Machine("NVIDIA-A100-SXM4-80GB", "NVIDIA", "8.0", "575.57.08", "12.9"),
    "T4/550": Machine("Tesla-T4", "NVIDIA", "7.5", "550.54.15", "12.4"),
    "T4/520": Machine("Tesla-T4", "NVIDIA", "7.5", "520.61.05", "11.8"),
}
Comparison = Callable[[Any, Any], bool]
COMPARE: Final[dict[str, Comparison]] = {">=": ge, "<=": le, "!=": ne, "=": eq, ">": gt, "<": lt}
# The capability below which a CUDA major has no code at all: Volta has none in 13.
NO_CODE: Final = {"13": 7.5}
VERSIONS: Final = sorted(
    {
        version
        for row in read_table("requirements")["expressions"]
        for version in row["images"].split()
        if not row.get("partial")
    }
)


def cluster(*names: str) -> list[dict[str, Any]]:
    """Return a node for each machine, with the labels of GPU Feature Discovery."""
    nodes = []
    for name in names:
        machine = (MACHINES | OTHERS)[name]
        cuda, compute = machine.cuda.split("."), machine.compute.split(".")
        labels = {
            "kubernetes.io/arch": machine.architecture,
            "nvidia.com/cuda.driver-version.full": machine.driver,
            "nvidia.com/cuda.runtime-version.major": cuda[0],
            "nvidia.com/cuda.runtime-version.minor": cuda[1],
            "nvidia.com/gpu.compute.major": compute[0],
            "nvidia.com/gpu.compute.minor": compute[1],
            "nvidia.com/gpu.product": machine.product,
        }
        nodes.append(node(name.replace(" ", "-").replace("/", "-"), labels))
    return nodes


def satisfied(expression: str, machine: Machine) -> bool:
    """Evaluate an expression as libnvidia-container does: groups by spaces, conditions by commas."""
    return any(
        all(_holds(condition, machine) for condition in group.split(",")) for group in expression.split()
    )


def _holds(condition: str, machine: Machine) -> bool:
    operator = next(comparison for comparison in COMPARE if comparison in condition)
    name, expected = condition.split(operator)
    if name == "brand":
        return COMPARE[operator](machine.brand.lower(), expected)
    actual = {"cuda": machine.cuda, "driver": machine.driver, "arch": machine.compute}[name]
    numbers = [[int(part) for part in text.split(".")] for text in (actual, expected)]
    longest = max(map(len, numbers))
    one, other = (number + [0] * (longest - len(number)) for number in numbers)
    return COMPARE[operator](one, other)


def expression_of(version: str, machine: Machine) -> RequireText | None:
    """Return what the image has on a machine, of its newest build, if that was read."""
    texts = require_of_nvidia_cuda(BUILT_IN, version)
    return next((text for text in texts if text.architecture == machine.architecture), None)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_image_is_judged_by_its_tag_as_by_its_own_variables(version: str) -> None:
    """And as the legacy mode of NVIDIA's container runtime does, except on GPUs without code."""
    for name, machine in MACHINES.items():
        constraint = expression_of(version, machine)
        if constraint is None or not constraint.status.certain:
            continue
        env = {"NVIDIA_REQUIRE_CUDA": constraint.text}
        by_tag = decided(legacy(*cluster(name)), gpu_pod(f"nvidia/cuda:{version}-base-ubuntu22.04", "./app"))
        by_variables = decided(legacy(*cluster(name)), requiring(**env))
        starts = satisfied(constraint.text, machine)
        has_code = float(machine.compute) >= NO_CODE.get(version.partition(".")[0], 0)

        assert (name, starts and has_code) == (name, by_tag.allowed)
        assert (name, starts) == (name, by_variables.allowed)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nvcr.io/nvidia/tritonserver:24.04-py3", "A100/535"),
        ("vllm/vllm-openai:v0.9.0", "H100/535"),
        ("vllm/vllm-openai:v0.7.0", "A100/535"),
        ("ghcr.io/huggingface/text-generation-inference:3.0.1", "T4/535"),
        ("nvidia/cuda:12.4.1-runtime-ubuntu22.04", "H100/535"),
    ],
)
def test_an_image_that_admits_an_older_driver_is_allowed_with_a_note(image: str, name: str) -> None:
    """It runs by minor-version or forward compatibility."""
    decision = decided(cluster(name), gpu_pod(image))

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert ["it runs by"] == [note.en.partition(": ")[2][:10] for note in decision.notes]


def test_a_driver_that_runs_the_image_plainly_has_no_note() -> None:
    """Nothing is to be said."""
    assert () == decided(cluster("H100/570"), gpu_pod("vllm/vllm-openai:v0.9.0")).notes


def test_a_geforce_that_an_image_with_compatibility_libraries_admits_is_unknown() -> None:
    """CUDA 12.4 lists driver 535 for GeForce, too, but its libraries fail there if they are loaded."""
    decision = decided(cluster("RTX 4090/535"), gpu_pod("nvidia/cuda:12.4.1-runtime-ubuntu22.04"))

    assert decision.allowed
    assert "it may fail: cuda-compat does not support consumer GPUs" in warning_texts(decision)[0]


def test_a_brand_that_the_image_does_not_admit_is_denied_with_that_reason() -> None:
    """CUDA 12.8 admits driver 535 on data center GPUs, not on a GeForce."""
    decision = decided(legacy(*cluster("RTX 4090/535")), gpu_pod("vllm/vllm-openai:v0.9.0"))

    assert not decision.allowed
    assert "it admits a driver with CUDA 12.2, but not for GPUs of brand geforce" in decision.denial.en
    assert "which the node's container runtime enforces" in decision.denial.en
    assert [Basis.FACT] == bases(decision)


def test_a_brand_that_the_image_does_not_admit_is_denied_by_policy_without_a_known_mode() -> None:
    """In CDI mode, the container starts and runs with limits; the setting of the rule decides."""
    decision = decided(cluster("RTX 4090/535"), gpu_pod("vllm/vllm-openai:v0.9.0"))

    assert [Basis.POLICY] == bases(decision)
    assert (
        "the driver has CUDA 12.2, below 12.8: NVIDIA's legacy container runtime does not start it "
        "(NVIDIA_REQUIRE_CUDA is not satisfied); in CDI mode it runs with limits (no newer features, no PTX)"
    ) in decision.denial.en
    assert "policy: the owner of the rule can change minorVersionCompatibility" in decision.denial.en


def test_a_requirement_on_the_gpu_does_not_replace_the_comparison_of_versions() -> None:
    """Only conditions on cuda or driver say which drivers are admitted."""
    image, arch = "team/app:cuda13.0", {"name": "NVIDIA_REQUIRE_ARCH", "value": "arch>=7.0"}
    document = gpu_pod(image)
    document["spec"]["containers"][0]["env"] = [arch]

    assert not decided(cluster("T4/470"), document).allowed


@pytest.mark.parametrize(
    ("product", "driver", "cuda", "expected"),
    [
        ("Tesla-T4", "470.82.01", "11.4", "allowed"),  # listed for data center GPUs
        ("Tesla-T4", "535.104.05", "12.2", "allowed"),
        ("Tesla-T4", "460.32.03", "11.2", "denied"),  # never listed for CUDA 12.4
        ("NVIDIA-GeForce-RTX-3090", "470.82.01", "11.4", "denied"),  # no forward compatibility on GeForce
        ("NVIDIA-GeForce-RTX-3090", "535.104.05", "12.2", "unknown"),  # the same major, but libraries fail
    ],
)
def test_ngc_images_run_on_the_drivers_that_their_release_notes_list(
    product: str, driver: str, cuda: str, expected: str
) -> None:
    """They ask for no more than CUDA 9, and use forward compatibility on data center GPUs only."""
    major, minor = cuda.split(".")
    labels = {
        "nvidia.com/cuda.driver-version.full": driver,
        "nvidia.com/cuda.runtime-version.major": major,
        "nvidia.com/cuda.runtime-version.minor": minor,
        "nvidia.com/gpu.product": product,
    }
    decision = decided([node("one", labels)], gpu_pod("nvcr.io/nvidia/tritonserver:24.04-py3"))
    outcome = (
        "unknown"
        if decision.allowed and warning_texts(decision)
        else "allowed"
        if decision.allowed
        else "denied"
    )

    assert expected == outcome


def test_an_image_with_a_partly_known_requirement_is_never_denied_for_it() -> None:
    """Other groups of CUDA 13.4 were not read."""
    decision = decided(cluster("H100/570"), gpu_pod("nvidia/cuda:13.4.1-base-ubuntu24.04"))

    assert decision.allowed
    assert "cannot determine whether NVIDIA_REQUIRE_CUDA is satisfied" in warning_texts(decision)[0]
    assert "gpugate image inspect" in warning_texts(decision)[0]


def test_a_value_that_is_not_certain_makes_no_node_better_than_one_with_a_missing_label() -> None:
    """That of CUDA 12.8 for arm64 is assumed; the pod is bound to neither architecture."""
    nodes = [node(name, {"kubernetes.io/arch": name}) for name in ("amd64", "arm64")]

    assert () == decided(nodes, gpu_pod("nvidia/cuda:12.8.1-base-ubuntu22.04")).patch


def test_a_minor_version_below_an_image_without_requirement_is_denied_by_policy() -> None:
    """The message names the setting that changes it."""
    decision = decided(cluster("A100/525"), gpu_pod("team/app:cuda12.4"))

    assert not decision.allowed
    assert [Basis.POLICY] == bases(decision)
    assert "policy: the owner of the rule can change minorVersionCompatibility" in decision.denial.en


@pytest.mark.parametrize("in_mode", [legacy, lambda *cluster: [*cluster]], ids=["legacy", "unknown"])
def test_affinity_admits_exactly_the_machines_that_start_the_image(
    in_mode: Callable[..., list[Node]],
) -> None:
    """By driver, brand and architecture, in the labels of the cluster; in a known mode or an unknown one."""
    everything = in_mode(*cluster(*MACHINES))
    for version in VERSIONS:
        document = gpu_pod(f"nvidia/cuda:{version}-base-ubuntu22.04")
        decision = decided(everything, document)
        alone = [node_object for node_object in everything if _certain(decided([node_object], document))]

        assert (version, [node_object["metadata"]["name"] for node_object in alone]) == (
            version,
            targets(everything, document, decision),
        )


@pytest.mark.parametrize("name", ["A100/535", "A100/550", "A100/575", "T4/535", "T4/550"])
@pytest.mark.parametrize(
    "image",
    [
        "vllm/vllm-openai:v0.20.0",
        "vllm/vllm-openai:latest",
        "vllm/vllm-openai:v0.34.0",
        "nvidia/cuda:13.0.2-base-ubuntu22.04",
        "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-devel",
        "lmsysorg/sglang:v0.5.12",
        "lmsysorg/sglang:latest",
    ],
)
def test_cuda_13_on_an_older_major_is_neither_denied_nor_called_compatible(image: str, name: str) -> None:
    """Whether its libraries are loaded is unknown; pods go to a node that runs it, if there is one."""
    document = gpu_pod(image)
    decision = decided(cluster(name), document)

    assert (True, (), ()) == (decision.allowed, decision.patch, decision.notes)
    assert "it may fail: " in " ".join(warning_texts(decision))
    if image.endswith(("latest", "v0.34.0")):  # their facts are not certain, so they exclude no node
        return
    both = cluster(name, "RTX 4090/580")
    assert ["RTX-4090-580"] == targets(both, document, decided(both, document))


@pytest.mark.parametrize(
    "variable",
    [
        ("NVIDIA_REQUIRE_CUDA", "driver>=1"),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=9.0"),
        ("NVIDIA_REQUIRE_CUDA", ""),
        ("NVIDIA_DISABLE_REQUIRE", "1"),
    ],
)
def test_a_variable_of_the_pod_does_not_make_an_older_driver_run_the_image(variable: tuple[str, str]) -> None:
    """NVIDIA has never listed branch 470 for CUDA 13."""
    document = gpu_pod("nvidia/cuda:13.0.1-runtime-ubuntu22.04")
    name, value = variable
    document["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    decision = decided(cluster("T4/470"), document)

    assert ([Basis.FACT], ()) == (bases(decision), decision.notes)
    assert "cuda-compat of CUDA 13.0 does not support driver branch 470" in decision.denial.en
    assert ((name,) if name == "NVIDIA_REQUIRE_CUDA" else ()) == decision.declared


def test_a_version_in_a_variable_of_the_pod_does_not_switch_off_the_requirement_of_the_image() -> None:
    """The container runtime reads that of the image; in CDI mode the variable alone counts."""
    document = gpu_pod("nvidia/cuda:13.0.2-base-ubuntu22.04")
    document["spec"]["containers"][0]["env"] = [{"name": "CUDA_VERSION", "value": "11.8"}]
    unknown = decided(cluster("T4/520"), document)

    assert [Basis.FACT] == bases(decided(legacy(*cluster("T4/520")), document))
    assert unknown.allowed
    assert "NVIDIA's legacy container runtime does not start it" in warning_texts(unknown)[0]


def test_an_image_of_a_catalogue_that_admits_an_older_major_is_not_denied_for_unknown_libraries() -> None:
    """A config does not show the files; a requirement that lists older drivers speaks for libraries."""
    text = require_of_nvidia_cuda(BUILT_IN, "13.0.2")[0].text
    rules = (
        compatibility_rule(),
        image_catalog({"image": "team/*", "cuda": "13.0", "require": {"NVIDIA_REQUIRE_CUDA": text}}),
    )
    decisions = [
        judged(policy(*rules), inventory(cluster(name)), gpu_pod("team/app:v1"))
        for name in ("A100/535", "A100/525")
    ]

    assert [True, False] == [decision.allowed for decision in decisions]
    assert "it may fail: the image may have no cuda-compat" in warning_texts(decisions[0])[0]


def _certain(decision: Decision) -> bool:
    return decision.allowed and not any("compatibility unknown" in text for text in warning_texts(decision))


def bases(decision: Decision) -> list[Basis]:
    """Return the basis of each violation."""
    return [violation.basis for violation in decision.violations]


def test_the_brand_of_an_a10g_is_known() -> None:
    """It is one of those for which NVIDIA lists older drivers."""
    decision = decided(cluster("A10G/550"), gpu_pod("nvidia/cuda:12.6.2-base-ubuntu22.04"))

    assert (True, ()) == (decision.allowed, warning_texts(decision))


def test_a_copy_with_cuda_in_the_tag_admits_the_drivers_of_its_base() -> None:
    """A data centre GPU with driver 535 runs vLLM on CUDA 12.8, as NVIDIA lists it; not only by the tag."""
    copy, unknown = "registry.example/vllm-openai:v0.10.0-cu128-fix1", "registry.example/app:v1-cu128"

    assert decided(cluster("A100/535"), gpu_pod(copy)).allowed
    assert (
        "image tag `v1-cu128`, base unknown, says CUDA 12.8"
        in decided(cluster("A100/535"), gpu_pod(unknown)).denial.en
    )


@pytest.mark.parametrize("image", ["ollama/ollama:0.12.0", "ollama/ollama:latest"])
def test_a_program_that_falls_back_to_the_cpu_is_warned_about(image: str) -> None:
    """Ollama starts on a driver that is older than its CUDA."""
    decision = decided(cluster("T4/470"), gpu_pod(image))

    assert decision.allowed
    assert "the driver has CUDA 11.4, below 12.1" in warning_texts(decision)[0]
