"""What containers get by the mode of the container runtime and the strategy of the device plugin.

docs/runtime-modes.md has all of it as a table, which `--update-golden` writes: each cell is a test.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from rules.nodes.runtime_modes import RuntimeMode, mode_of, toolkit_version
from tests.e2e.assets import build
from tests.e2e.assets import node as assets
from tests.e2e.node.images import LOADED, write_image
from tests.e2e.node.pods import Outcome, created, gpus_in, pod
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.e2e.node.real_cluster import RealCluster, Strategy

# The first one waits until all pods of the table have run.
pytestmark = pytest.mark.timeout(600)

PAGES: Final = {"en": ROOT / "docs/runtime-modes.md", "zh": ROOT / "docs/zh/runtime-modes.md"}
NODE: Final = "gpu-1"
# Of compatibility libraries, on a node with driver 570.
NEWER, OLDER = "580.65.06", "550.54.14"
CALLS: Final = "/run/nvidia/nvidia-container-cli.log"


class Mode(NamedTuple):
    """A row: RuntimeClass (empty: the default runtime, runc), and strategy of the device plugin."""

    runtime_class: str
    strategy: Strategy

    def __str__(self) -> str:
        return f"{self.runtime_class or 'runc'}, {self.strategy}"


MODES: Final = [
    Mode("", "cdi-cri"),
    Mode("nvidia", "cdi-cri"),
    Mode("nvidia-cdi", "cdi-cri"),
    Mode("nvidia-legacy", "cdi-cri"),
    Mode("", "cdi-annotations"),
    Mode("nvidia", "cdi-annotations"),
    Mode("", "envvar"),
    Mode("nvidia", "envvar"),
    Mode("nvidia-cdi", "envvar"),
    Mode("nvidia-legacy", "envvar"),
    Mode("nvidia-csv", "envvar"),
    Mode("nvidia", "volume-mounts"),
    Mode("nvidia-legacy", "volume-mounts"),
]
# Columns: what is asked, by the pod that shows it.
COLUMNS: Final = ("requirement", "all", "unrequested", "newer", "older")


@pytest.fixture(scope="module")
def images(real: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import an image for each version of compatibility libraries."""
    library = (assets.standins() / "libcuda.so.1").read_bytes()
    for version in (NEWER, OLDER):
        files = {f"/usr/local/cuda/compat/libcuda.so.{version}": library}
        archive = tmp_path_factory.mktemp("image") / "image.tar"
        real.nodes[NODE].import_image(write_image(archive, _image(version), files))


@pytest.fixture(scope="module")
def seen(real: RealCluster, images: None) -> dict[Mode, dict[str, str]]:
    """Return the whole table; the node has its own device plugin again afterwards."""
    del images
    node = real.nodes[NODE]
    table: dict[Mode, dict[str, str]] = {}
    strategy = node.spec.strategy
    for mode in MODES:
        if mode.strategy != strategy:
            strategy = mode.strategy
            node.use_device_plugin(strategy)
        table[mode] = _observe(real, mode)
    node.use_device_plugin(node.spec.strategy)
    return table


def _observe(real: RealCluster, mode: Mode) -> dict[str, str]:
    spec: dict[str, Any] = {"nodeName": NODE}
    if mode.runtime_class:
        spec["runtimeClassName"] = mode.runtime_class
    node = real.nodes[NODE]
    node.run("rm", "-f", CALLS)
    everything = {"NVIDIA_VISIBLE_DEVICES": "all"}
    pods = {
        "requirement": pod("requirement", 1, env={"NVIDIA_REQUIRE_CUDA": "cuda>=99.0"}, **spec),
        "all": pod("all", 1, env=everything, **spec),
        "unrequested": pod("unrequested", env=everything, **spec),
        # Which of the GPUs a device plugin chooses is open; the mode csv knows the first one only.
        "newer": pod("newer", 1, image=_image(NEWER), env=everything, **spec),
        "older": pod("older", 1, image=_image(OLDER), env=everything, **spec),
    }
    cells = {}
    with created(real, *pods.values()) as outcomes:
        calls = node.run("cat", CALLS, check=False).stdout.splitlines()
        for name, outcome in zip(pods, outcomes, strict=True):
            identifier = real.kubectl(
                "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].containerID}"
            ).stdout.rpartition("/")[2]
            call = next((call for call in calls if identifier and identifier in call), "")
            cells[name] = _cell(real, name, outcome, call)
    return cells


def _cell(real: RealCluster, name: str, outcome: Outcome, call: str) -> str:
    """Return what became of a pod, as the page has it. call: of nvidia-container-cli, which is a stand-in."""
    if outcome.reason != "Running":
        (cause,) = re.findall("unsatisfied condition", outcome.message)
        return f"{outcome.reason}: `{cause}`"
    if call:
        option = {"requirement": "require", "newer": "cuda-compat-mode", "older": "cuda-compat-mode"}
        (argument,) = re.findall(rf"--{option.get(name, 'device')}=\S+", call)
        return re.sub(r"GPU-[-\w]+", "GPU-…", f"`{argument}`")
    count = len(gpus_in(real, name))
    if name == "requirement":
        return "starts" if count else "starts, no GPU"
    if name in ("all", "unrequested"):
        return {0: "no GPU", 1: "1 GPU"}.get(count, f"{count} GPUs")
    loaded = real.kubectl("exec", name, "--", *LOADED, check=False).stdout
    if "libcuda.so.1 => /usr/local/cuda/compat/" in loaded:
        return "of the image"
    return "of the driver" if "libcuda.so.1 => /usr/lib64/" in loaded else "none"


def _image(version: str) -> str:
    return f"localhost/compat:{version}"


@pytest.fixture(scope="module")
def page(seen: dict[Mode, dict[str, str]], pytestconfig: pytest.Config) -> dict[tuple[str, str], list[str]]:
    """Return the cells of the page, by their row; --update-golden writes them before."""
    if pytestconfig.getoption("--update-golden"):
        for language, path in PAGES.items():
            path.write_text(_written(path.read_text("utf-8"), seen, language), "utf-8")
    lines = re.findall(
        r"^\| (`[\w-]+`) \| (`[\w-]+`) \| (.*) \|$", PAGES["en"].read_text("utf-8"), re.MULTILINE
    )
    return {
        (name.strip("`").replace("runc", ""), how.strip("`")): rest.split(" | ") for name, how, rest in lines
    }


def _written(text: str, seen: dict[Mode, dict[str, str]], language: str) -> str:
    """Return a page with the rows of its table."""
    rows = [
        " | ".join([f"| `{mode.runtime_class or 'runc'}`", f"`{mode.strategy}`", *cells.values()]) + " |\n"
        for mode, cells in seen.items()
    ]
    written = "".join(rows)
    if language == "zh":
        for english, chinese in CHINESE.items():
            written = written.replace(f" {english} |", f" {chinese} |")
    return re.sub(
        r"(?<=^\|---\|---\|---\|---\|---\|---\|---\|\n)(\|.*\n)*", lambda _: written, text, flags=re.MULTILINE
    )


CHINESE: Final = {
    "starts": "启动",
    "starts, no GPU": "启动，没有 GPU",
    "no GPU": "没有 GPU",
    "1 GPU": "1 块 GPU",
    "8 GPUs": "8 块 GPU",
    "of the image": "镜像的",
    "of the driver": "驱动的",
    "none": "没有",
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_page_says_what_a_container_got(
    seen: dict[Mode, dict[str, str]], page: dict[tuple[str, str], list[str]], mode: Mode, column: str
) -> None:
    """On a node with 8 GPUs, which is real but for NVML, device plugin and nvidia-container-cli."""
    assert page[mode][COLUMNS.index(column)] == seen[mode][column]


def test_the_page_has_no_other_rows_and_names_the_versions(page: dict[tuple[str, str], list[str]]) -> None:
    """Those that were built."""
    text = PAGES["en"].read_text("utf-8")

    assert MODES == list(page)
    assert f"Kubernetes {build.pinned(build.KUBERNETES)}" in text
    assert assets.containerd().name.replace("-", " ") in text
    assert f"NVIDIA Container Toolkit {assets.toolkit().name.rpartition('-')[2]}" in text


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.runtime_class == "nvidia"], ids=str)
def test_the_default_mode_evaluates_what_the_table_of_facts_says(
    seen: dict[Mode, dict[str, str]], mode: Mode
) -> None:
    """Nothing, in this version of the toolkit, whatever the device plugin."""
    version = toolkit_version(assets.toolkit().name.rpartition("-v")[2])

    assert RuntimeMode.CDI is mode_of("auto", version)
    assert "starts" == seen[mode]["requirement"]
