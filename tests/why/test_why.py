"""`gpugate why`: recorded failures, each with its cause.

A folder has the pod, and what is known of it: events, a log, nodes. `expected.txt` is what the command
prints; `--update-golden` writes it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import Result

from tests.support.command import gpugate
from tests.support.paths import ROOT as PAGES

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
    causes = [(cause["name"], cause["certain"]) for cause in json.loads(result.stdout)["causes"]]

    assert CAUSES[name] == next(iter(causes), None)
    assert (0 if name == "runs" else 1) == result.exit_code


@pytest.mark.parametrize("name", CAUSES)
def test_what_is_printed_is_what_was_recorded(name: str, request: pytest.FixtureRequest) -> None:
    """Causes with evidence and fix, then what was compared."""
    golden, result = ROOT / name / "expected.txt", _why(ROOT / name)
    if request.config.getoption("--update-golden"):
        golden.write_text(result.stdout, "utf-8")

    assert golden.read_text("utf-8") == result.stdout


_PAGE: Final = (PAGES / "docs/errors.md").read_text("utf-8")
# By the headings of the page: the cause, and where the text is.
_ERRORS: Final = {
    "The NVIDIA driver on your system is too old": ("driver-too-old", "log"),
    "unsatisfied condition: cuda>=12.9": ("unsatisfied-condition", "log"),
    "Error 803: unsupported display driver / cuda driver combination": (
        "cudaErrorSystemDriverMismatch",
        "log",
    ),
    "Error 804: forward compatibility was attempted on non supported HW": (
        "cudaErrorCompatNotSupportedOnDevice",
        "log",
    ),
    "no kernel image is available for execution on the device": ("cudaErrorNoKernelImageForDevice", "log"),
    "Bfloat16 is only supported on GPUs with compute capability of at least 8.0": ("bfloat16", "log"),
    "CUDA out of memory": ("gpu-memory", "log"),
    "UnexpectedAdmissionError": ("devices-unavailable", "status"),
    "Insufficient nvidia.com/gpu": ("insufficient-resource", "condition"),
}


def test_each_error_of_the_page_has_its_cause(tmp_path: Path) -> None:
    """As a log alone, or as the state of a pod."""
    texts = dict(re.findall(r"^## (.+)\n\n```text\n(.+)\n```$", _PAGE, re.MULTILINE))
    causes = {}
    for heading, text in texts.items():
        where = _ERRORS[heading][1]
        status = {
            "log": {},
            "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": text},
            "condition": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": text}],
            },
        }[where]
        (tmp_path / "log.txt").write_text(text, "utf-8")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
        (tmp_path / "pod.yaml").write_text(json.dumps(pod | {"status": status}), "utf-8")
        option = ("--log", tmp_path / "log.txt") if where == "log" else ("-f", tmp_path / "pod.yaml")
        (cause, *_) = json.loads(gpugate("why", *option, "-o", "json").stdout)["causes"] or [{"name": ""}]
        causes[heading] = cause["name"], where

    assert causes == _ERRORS
