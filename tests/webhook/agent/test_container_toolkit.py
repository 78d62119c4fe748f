"""NVIDIA Container Toolkit of a node: its mode and version."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.nodes.runtime_modes import RuntimeMode
from webhook.agent.container_toolkit import ContainerToolkit, read_toolkit

LEGACY, CDI = RuntimeMode.LEGACY, RuntimeMode.CDI
DEBIAN = "usr/lib/x86_64-linux-gnu"
# As the package has it, in part.
DEFAULT = """
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
[nvidia-container-cli]
load-kmods = true
[nvidia-container-runtime]
mode = "auto"
[nvidia-container-runtime.modes.legacy]
cuda-compat-mode = "ldconfig"
"""


def installed(root: Path, config: str = DEFAULT, version: str = "1.17.8", folder: str = DEBIAN) -> Path:
    """Install the toolkit below a folder, and return that."""
    (root / "etc/nvidia-container-runtime").mkdir(parents=True)
    (root / "etc/nvidia-container-runtime/config.toml").write_text(config, "utf-8")
    (root / folder).mkdir(parents=True)
    for name in ("libnvidia-container.so.1", f"libnvidia-container.so.{version}"):
        (root / folder / name).touch()
    return root


@pytest.mark.parametrize(("version", "mode"), [("1.17.8", LEGACY), ("1.18.0", CDI)])
@pytest.mark.parametrize("folder", [DEBIAN, "usr/lib64", "usr/lib"])
def test_auto_is_by_the_version_of_the_library(
    tmp_path: Path, version: str, mode: RuntimeMode, folder: str
) -> None:
    """Wherever the distribution has its libraries."""
    assert ContainerToolkit(mode, version) == read_toolkit(
        installed(tmp_path, version=version, folder=folder)
    )


@pytest.mark.parametrize(
    ("config", "toolkit"),
    [
        ("", ContainerToolkit(CDI, "1.18.0")),
        ('nvidia-container-runtime = {mode = "legacy"}', ContainerToolkit(LEGACY, "1.18.0")),
        ('nvidia-container-runtime = {mode = "jit-cdi"}', ContainerToolkit(CDI, "1.18.0")),
        ('nvidia-container-runtime = {mode = "cdi"}', ContainerToolkit(CDI)),
        ('nvidia-container-runtime = {mode = "csv"}', None),
        ("nvidia-container-runtime = {mode = 5}", None),
        ("nvidia-container-runtime = 5", ContainerToolkit(CDI, "1.18.0")),
        ("disable-require = true", None),
        ("features = {disable-cuda-compat-lib-hook = true}", ContainerToolkit(CDI)),
        (
            'nvidia-container-runtime = {modes = {legacy = {cuda-compat-mode = "disabled"}}}',
            ContainerToolkit(CDI),
        ),
        ("mode = ", None),
    ],
)
def test_the_configuration_sets_the_mode(
    tmp_path: Path, config: str, toolkit: ContainerToolkit | None
) -> None:
    """Without the version where it says nothing about compatibility libraries, and nothing if in doubt."""
    assert toolkit == read_toolkit(installed(tmp_path, config, "1.18.0"))


def test_without_the_library_only_a_configured_mode_is_known(tmp_path: Path) -> None:
    """Two versions tell none."""
    root = installed(tmp_path)
    (root / DEBIAN / "libnvidia-container.so.1.18.0").touch()
    auto = read_toolkit(root)
    (root / "etc/nvidia-container-runtime/config.toml").write_text(DEFAULT.replace("auto", "legacy"), "utf-8")

    assert (None, ContainerToolkit(LEGACY)) == (auto, read_toolkit(root))


@pytest.mark.parametrize(
    "path", ["usr/local/nvidia/toolkit", "var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"]
)
def test_nothing_is_known_where_something_else_gives_containers_their_gpus(tmp_path: Path, path: str) -> None:
    """GPU Operator's own toolkit, or a device plugin that uses CDI while the runtime is in legacy mode."""
    root = installed(tmp_path)
    (root / path).mkdir(parents=True)

    assert read_toolkit(root) is None


def test_nothing_is_known_without_a_configuration(tmp_path: Path) -> None:
    """As in a pod into which nothing is mounted."""
    assert read_toolkit(tmp_path) is None
