"""Images against drivers in each mode of the container runtime: one table of verdicts, and laws about it.

`pytest tests/rules/compatibility/test_runtime_modes.py --update-golden` writes the table; read the diff
before a commit, and compare it with the table in docs/compatibility-semantics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from rules.compatibility.checks import check_on_node
from rules.cuda.image_catalog import CompatLibraries
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import BUILT_IN, gpu_model
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.runtime_modes import ContainerRuntime, RuntimeMode
from tests.support.requirement_builders import requirements

TABLE: Final = Path(__file__).with_name("runtime_modes.md")
LEGACY, CDI, UNKNOWN = RuntimeMode.LEGACY, RuntimeMode.CDI, RuntimeMode.UNKNOWN
IMAGES: Final = (
    "nvidia/cuda:12.4.1-runtime-ubuntu22.04",
    "nvidia/cuda:12.8.1-runtime-ubuntu22.04",
    "nvidia/cuda:12.9.1-runtime-ubuntu22.04",
    "nvidia/cuda:13.0.2-runtime-ubuntu22.04",
    "vllm/vllm-openai:v0.8.5",
    "vllm/vllm-openai:v0.9.2",
    "vllm/vllm-openai:v0.20.0",
    "vllm/vllm-openai:latest",
    "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime",
    "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-devel",
    "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime",
    "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel",
    "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime",
    "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-devel",
    "nvcr.io/nvidia/tritonserver:24.05-py3",
    "nvcr.io/nvidia/tritonserver:25.03-py3",
    "nvcr.io/nvidia/tritonserver:25.06-py3",
    "nvcr.io/nvidia/tritonserver:25.10-py3",
    "lmsysorg/sglang:v0.5.6",
    "lmsysorg/sglang:v0.5.12",
    "lmsysorg/sglang:latest",
    "team/app:cuda13.0",
)
GPUS: Final = {"T4": "Tesla-T4", "A100": "NVIDIA-A100-SXM4-80GB", "RTX 4090": "NVIDIA-GeForce-RTX-4090"}
DRIVERS: Final = {
    "535.104.05": (12, 2),
    "550.54.15": (12, 4),
    "570.124.06": (12, 8),
    "575.57.08": (12, 9),
    "580.82.07": (13, 0),
}
# loads: whether the node makes programs load compatibility libraries.
RUNTIMES: Final = {
    "unknown": ContainerRuntime(),
    "legacy, loads": ContainerRuntime(LEGACY, loads_compat=True),
    "legacy": ContainerRuntime(LEGACY),
    "legacy, does not load": ContainerRuntime(LEGACY, loads_compat=False),
    "cdi, loads": ContainerRuntime(CDI, loads_compat=True),
    "cdi": ContainerRuntime(CDI),
    "cdi, does not load": ContainerRuntime(CDI, loads_compat=False),
}


class Verdict(IntEnum):
    """What is decided on a node, from mild to strict."""

    FITS = 0
    NOTE = 1  # fits, and it is said why
    WARNING = 2
    POLICY = 3
    FACT = 4


class Cell(NamedTuple):
    """The verdict on an image on a node, and its reasons."""

    verdict: Verdict
    reasons: tuple[str, ...]


def verdict_of(results: tuple[CheckResult, ...]) -> Cell:
    """Return the verdict of check results, with the reasons of the worst level."""
    level = level_of(results)
    worst = [result for result in results if result.level is level]
    verdict = Verdict.WARNING
    if level is Level.COMPATIBLE:
        verdict = Verdict.NOTE if worst else Verdict.FITS
    elif level is Level.INCOMPATIBLE:
        verdict = Verdict.POLICY if all(result.setting for result in worst) else Verdict.FACT
    return Cell(verdict, tuple(result.summary.en for result in worst))


@cache
def needs(image: str) -> GpuRequirements:
    """Return the requirements of an image, of its driver only."""
    return requirements(image)


@cache
def cell(image: str, gpu: str, driver: str, runtime: str) -> Cell:
    """Return the verdict on an image on a node."""
    node = NodeCapabilities(cuda=DRIVERS[driver], driver=driver, product=GPUS[gpu], runtime=RUNTIMES[runtime])
    return verdict_of(check_on_node(SharingPolicy(), needs(image), node))


def written() -> str:
    """Return the table: for each image a line for each node, and the reasons."""
    lines = [
        "# Images, drivers and modes of the container runtime",
        "",
        "Written by `pytest tests/rules/compatibility/test_runtime_modes.py --update-golden`: do not edit.",
    ]
    for image in IMAGES:
        reasons: dict[tuple[str, ...], str] = {}
        lines += ["", f"## {image}", "", f"| GPU | driver | {' | '.join(RUNTIMES)} |", "|---" * 9 + "|"]
        for gpu, driver in product(GPUS, DRIVERS):
            answers = [cell(image, gpu, driver, runtime) for runtime in RUNTIMES]
            cells = [
                f"{answer.verdict.name.lower()} {_letter(answer, reasons)}".strip() for answer in answers
            ]
            lines.append(f"| {gpu} | {driver} | {' | '.join(cells)} |")
        lines += ["", *(f"- {letter}: {'; and '.join(summaries)}" for summaries, letter in reasons.items())]
    return "\n".join(lines).rstrip() + "\n"


def _letter(answer: Cell, reasons: dict[tuple[str, ...], str]) -> str:
    if not answer.reasons:
        return ""
    return reasons.setdefault(answer.reasons, f"[{len(reasons) + 1}]")


def test_the_table_of_verdicts_is_as_recorded(pytestconfig: pytest.Config) -> None:
    """Read a change of it cell by cell."""
    if pytestconfig.getoption("--update-golden"):
        TABLE.write_text(written(), "utf-8")

    assert TABLE.read_text("utf-8") == written()


def below_native() -> Iterator[tuple[str, str, str]]:
    """Return image, GPU and driver of each node whose driver is older than the CUDA of the image."""
    for image, gpu, driver in product(IMAGES, GPUS, DRIVERS):
        need = needs(image).cuda
        assert need is not None
        if DRIVERS[driver] < need.version:
            yield image, gpu, driver


def test_no_older_driver_simply_fits() -> None:
    """A note says how it runs; by forward compatibility only with libraries that are known to be loaded."""
    for image, gpu, driver in below_native():
        model = gpu_model(BUILT_IN, GPUS[gpu])
        for runtime, of_node in RUNTIMES.items():
            cell_result = cell(image, gpu, driver, runtime)
            assert Verdict.FITS is not cell_result.verdict, (image, gpu, driver, runtime)
            if any("forward compatibility" in reason for reason in cell_result.reasons):
                in_image = needs(image).cuda_compat
                assert in_image is CompatLibraries.LOADER_PATH or (
                    in_image is CompatLibraries.INSIDE and of_node.loads_compat
                )
                assert model is not None
                assert "datacenter" == model.segment
                assert driver.startswith(("535", "570"))


def test_an_older_major_fits_only_by_libraries_that_are_loaded() -> None:
    """Minor version compatibility is of one major."""
    for image, gpu, driver in below_native():
        need = needs(image).cuda
        assert need is not None
        for runtime in RUNTIMES:
            cell_result = cell(image, gpu, driver, runtime)
            if DRIVERS[driver][0] < need.version.major and cell_result.verdict is Verdict.NOTE:
                assert "it runs by forward compatibility (cuda-compat)" in cell_result.reasons[0]


def test_a_fact_in_an_unknown_mode_is_a_fact_in_every_mode() -> None:
    """Whether the node loads libraries or not."""
    for image, gpu, driver in product(IMAGES, GPUS, DRIVERS):
        if cell(image, gpu, driver, "unknown").verdict is Verdict.FACT:
            verdicts = {cell(image, gpu, driver, runtime).verdict for runtime in RUNTIMES}
            assert {Verdict.FACT} == verdicts, (image, gpu, driver)


def test_an_unknown_mode_is_at_least_a_warning_where_the_modes_differ() -> None:
    """It may be the one in which the container fails."""
    for image, gpu, driver in product(IMAGES, GPUS, DRIVERS):
        verdicts = [cell(image, gpu, driver, runtime).verdict for runtime in RUNTIMES]
        if min(verdicts) <= Verdict.NOTE and max(verdicts) is Verdict.FACT:
            assert cell(image, gpu, driver, "unknown").verdict >= Verdict.WARNING, (image, gpu, driver)


def test_cdi_mode_says_nothing_of_a_refusal() -> None:
    """Nothing is evaluated in it."""
    for image, gpu, driver, runtime in product(IMAGES, GPUS, DRIVERS, ("cdi", "cdi, loads")):
        reasons = " ".join(cell(image, gpu, driver, runtime).reasons)
        assert "not satisfied" not in reasons
        assert "legacy" not in reasons


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_images_of_the_same_facts_get_the_same_verdict(runtime: str) -> None:
    """A tag of nvidia/cuda, a devel image of PyTorch, and servers on that base."""
    same = (
        "nvidia/cuda:13.0.2-runtime-ubuntu22.04",
        "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-devel",
        "vllm/vllm-openai:v0.20.0",
        "lmsysorg/sglang:v0.5.12",
    )
    for gpu, driver in product(GPUS, DRIVERS):
        assert 1 == len({cell(image, gpu, driver, runtime) for image in same})
