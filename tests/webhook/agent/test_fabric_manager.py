"""The version of Fabric Manager against the driver's. The program here is a script that prints as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.cuda.versions import CudaVersion, DriverVersion
from webhook.agent.diagnosis import diagnose
from webhook.agent.fabric_manager import fabric_manager_version
from webhook.agent.nvml_probe import FABRIC_READY, Gpu, Probe


def driver(text: str) -> DriverVersion:
    """Return a version."""
    version = DriverVersion.parse(text)
    assert version
    return version


@pytest.mark.parametrize(
    ("printed", "version"),
    [("Fabric Manager version is : 535.161.08", "535.161.08"), ("unknown option", None), ("", None)],
)
def test_the_program_prints_its_version(printed: str, version: str | None, tmp_path: Path) -> None:
    """As it is installed; other text is unknown."""
    program = tmp_path / "nv-fabricmanager"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n", "utf-8")
    program.chmod(0o755)

    assert (driver(version) if version else None) == fabric_manager_version(str(program))
    assert fabric_manager_version(str(tmp_path / "absent")) is None


@pytest.mark.parametrize(
    ("fabric", "version", "broken"),
    [
        (FABRIC_READY, "535.129.03", []),
        (FABRIC_READY, "535.104.05", [False]),  # started before the upgrade
        ("Not Started", "535.104.05", [True, True]),
        (None, "535.104.05", []),  # GPUs without NVSwitch
        (FABRIC_READY, None, []),
    ],
)
def test_mission_10_fabric_manager_has_the_version_of_the_driver(
    fabric: str | None, version: str | None, broken: list[bool]
) -> None:
    """Otherwise it does not start; the fix names the driver's version."""
    gpu = Gpu("NVIDIA H100 80GB HBM3", None, None, 81559, fabric=fabric)
    installed = driver(version) if version else None
    probed = Probe(driver("535.129.03"), CudaVersion(12, 2), (gpu,), fabric_manager=installed)
    problems = diagnose(probed, None)
    texts = [(problem.problem.en, problem.remedy.en) for problem in problems]
    expected = (
        "Fabric Manager has version 535.104.05, the driver 535.129.03",
        "install Fabric Manager 535.129.03, and restart it",
    )

    assert broken == [problem.broken for problem in problems]
    assert bool(broken) is (expected in texts)
