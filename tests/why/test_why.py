"""`gpugate why`: recorded failures, each with its cause.

A folder has the pod, and what is known of it: events, a log, nodes. `expected.txt` is what the command
prints; `--update-golden` writes it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.command import gpugate

ROOT = Path(__file__).parent
# The name of the first cause, and whether it is certain; None: no cause is known.
CAUSES: dict[str, tuple[str, bool] | None] = {
    "architecture": ("exec-format", False),
    "bfloat16-on-a-t4": ("compatibility-pgpu", True),
    "cdi-specification-of-another-gpu": ("cdi-device-missing", True),
    "devices-taken": ("devices-unavailable", True),
    "driver-not-loaded": ("nvml-not-initialized", True),
    "driver-older-than-the-image": ("compatibility-pgpu", True),
    "driver-upgraded-under-pods": ("nvml-mismatch", True),
    "forward-compatibility": ("cudaErrorCompatNotSupportedOnDevice", False),
    "gpu-index-too-high": ("gpu-not-found", True),
    "gpu-memory": ("gpu-memory", False),
    "gpus-in-use": ("insufficient-resource", True),
    "lost-access": ("nvml-unknown", False),
    "memory-limit": ("oom-killed", True),
    "nccl-after-a-kernel-error": ("cudaErrorNoKernelImageForDevice", False),
    "no-cdi-specification": ("cdi-device-missing", True),
    "no-gpu-device": ("no-gpu-device", False),
    "no-gpu-requested": ("no-libcuda", False),
    "no-runtime-class": ("no-nvidia-runtime", True),
    "no-sandbox": ("sandbox-not-ready", False),
    "node-is-full": ("node-is-full", True),
    "own-bug": None,
    "requirement-of-the-image": ("unsatisfied-condition", True),
    "runs": None,
    "small-shared-memory": ("shared-memory", False),
    "taint": ("untolerated-taint", True),
    "unhealthy-device": ("device-unhealthy", False),
    "unknown-gpu-id": ("gpu-id-unknown", True),
}


def _why(folder: Path, *arguments: str) -> Result:
    words = ["why", "-f", str(folder / "pod.yaml")]
    for option, name in (("--log", "log.txt"), ("--events", "events.yaml"), ("--nodes", "nodes.yaml")):
        words += [option, str(folder / name)] if (folder / name).exists() else []
    return gpugate(*words, *arguments)


def test_each_folder_has_a_cause() -> None:
    """At least twelve failures."""
    folders = {path.parent.name for path in ROOT.glob("*/pod.yaml")}

    assert folders == CAUSES.keys()
    assert sum(cause is not None for cause in CAUSES.values()) >= 12


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_of_a_recorded_failure_is_named(name: str) -> None:
    """First, and certain only if the evidence proves it. The exit status is 1, unless the pod runs."""
    result = _why(ROOT / name, "-o", "json")
    found = [(each["name"], each["certain"]) for each in json.loads(result.stdout)["causes"]]

    assert CAUSES[name] == next(iter(found), None)
    assert (0 if name == "runs" else 1) == result.exit_code


@pytest.mark.parametrize("name", CAUSES)
def test_what_is_printed_is_what_was_recorded(name: str, request: pytest.FixtureRequest) -> None:
    """Causes with evidence and fix, then what was compared."""
    golden, result = ROOT / name / "expected.txt", _why(ROOT / name)
    if request.config.getoption("--update-golden"):
        golden.write_text(result.stdout, "utf-8")

    assert golden.read_text("utf-8") == result.stdout
