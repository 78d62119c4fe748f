"""What commands show of NVIDIA's support of drivers, and of drivers that are newer than all known ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import gpugate
from tests.support.paths import ROOT

NOVEMBER_2026 = "1794700800"
NODES = str(ROOT / "docs/whatif/nodes.yaml")
WORKLOADS = str(ROOT / "docs/whatif/workloads.yaml")
ENDED = {"branch": 535, "kind": "lts", "end": "2026-06", "state": "ended"}
ENDING = {"branch": 595, "kind": "production", "end": "2027-03", "state": "ending"}


@pytest.fixture(autouse=True)
def november(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be November 2026."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", NOVEMBER_2026)


def node_file(folder: Path, *drivers: str) -> str:
    """Write nodes of which only driver and GPU are known; return their file."""
    nodes = [
        {
            "kind": "Node",
            "metadata": {
                "name": f"gpu-{driver}",
                "labels": {
                    "nvidia.com/cuda.driver-version.full": driver,
                    "nvidia.com/gpu.product": "NVIDIA-L4",
                },
            },
            "status": {"allocatable": {"nvidia.com/gpu": "1"}},
        }
        for driver in drivers
    ]
    path = folder / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": nodes}), "utf-8")
    return str(path)


def document(*arguments: str) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(gpugate(*arguments, "-o", "json").stdout)


def test_the_wide_list_of_nodes_shows_drivers_whose_support_ends() -> None:
    """The list without -o wide does not."""
    wide, text = (gpugate("nodes", "--nodes", NODES, *more).stdout for more in (("-o", "wide"), ()))
    rows = {line.split()[2]: line for line in wide.splitlines()}

    assert "out of support since 2026-06" in rows["535.104.05"]
    assert "SUPPORT" in wide
    assert "support" not in text.lower()


def test_the_wide_list_has_no_column_of_support_if_none_ends(tmp_path: Path) -> None:
    """Branch 580 is supported until 2028."""
    wide = gpugate("nodes", "--nodes", node_file(tmp_path, "580.95.05"), "-o", "wide").stdout

    assert "SUPPORT" not in wide


def test_nodes_without_a_label_of_their_cuda_show_that_of_their_driver(tmp_path: Path) -> None:
    """At least that of the newest known driver, if it is newer; in JSON apart from what labels report."""
    path = node_file(tmp_path, "570.124.06", "620.70.06", "700.10")
    rows = {line.split()[2]: line for line in gpugate("nodes", "--nodes", path).stdout.splitlines()}

    assert "12.8 (by driver)" in rows["570.124.06"]
    assert " 13.5 (by driver)" in rows["620.70.06"]
    assert ">=13.5 (by driver)" in rows["700.10"]
    facts = {node_class["driver"]: node_class for node_class in document("nodes", "--nodes", path)["classes"]}
    assert (None, "13.5") == (facts["700.10"]["cuda"], facts["700.10"]["leastCuda"])
    assert facts["700.10"]["driverSupport"] is None
    assert "2029-09" == facts["620.70.06"]["driverSupport"]["end"]


def test_the_matrix_of_branches_lists_those_whose_support_ends() -> None:
    """Below the reasons; in JSON all known ones."""
    lines = gpugate("matrix").stdout.splitlines()

    assert lines[-2].startswith("out of support: driver 450 (2023-07), ")
    assert "535 (2026-06), " in lines[-2]
    assert "support ends: driver 595 (2027-03)" == lines[-1]
    drivers = document("matrix")["drivers"]
    assert ENDED in drivers
    assert {"branch": 615, "kind": "new-feature", "end": None, "state": None} in drivers


def test_the_matrix_of_nodes_lists_their_drivers_whose_support_ends() -> None:
    """With changes of nodes, those after them."""
    changed = ("matrix", "--nodes", NODES, "--driver", "595")

    assert (
        "out of support: driver 535 (2026-06), 550 (2025-04)"
        == gpugate("matrix", "--nodes", NODES).stdout.splitlines()[-1]
    )
    assert [ENDING] == document(*changed)["drivers"]


def test_a_what_if_notes_that_the_support_of_the_new_driver_ends() -> None:
    """It changes no effect."""
    arguments = ("whatif", "-f", WORKLOADS, "--nodes", NODES, "--driver")
    ending, long = (gpugate(*arguments, branch) for branch in ("595", "620"))

    assert "note: driver branch 595: support ends 2027-03\n" == ending.stderr
    assert "" == long.stderr
    assert [ENDING] == [change["driverSupport"] for change in document(*arguments, "595")["changes"]]
    assert (1, 1) == (ending.exit_code, long.exit_code)


def test_an_audit_notes_drivers_of_nodes_that_are_out_of_support() -> None:
    """It denies nothing and changes no exit status."""
    result = gpugate("audit", "-f", WORKLOADS, "--nodes", NODES)

    assert 0 == result.exit_code
    assert "note: driver branch 535: out of support since 2026-06\n" in result.stderr
    assert ENDED in document("audit", "-f", WORKLOADS, "--nodes", NODES)["drivers"]


def test_an_audit_notes_the_cuda_of_images_that_get_no_fixes(tmp_path: Path) -> None:
    """Of containers with accelerators, if the toolkit in the image is known."""
    tags = ("11.7.1-base-ubuntu22.04", "13.0.0-base-ubuntu24.04", "11.0.3-base-ubuntu20.04")
    containers = [
        {"name": f"c{at}", "image": f"nvidia/cuda:{tag}", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        for at, tag in enumerate(tags)
    ]
    containers.append({"name": "other", "image": "nvidia/cuda:12.1.1-base-ubuntu22.04"})
    path = tmp_path / "pod.json"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "old", "namespace": "team"},
                "spec": {"containers": containers},
            }
        ),
        "utf-8",
    )
    result = gpugate("audit", "-f", path, "--nodes", NODES)

    assert (
        "note: images of CUDA 11.0 (2023-07), 11.7 (2023-05): out of support by NVIDIA, so they get no "
        "fixes; use images of a newer CUDA\n" in result.stderr
    )
    assert [{"cuda": "11.0", "end": "2023-07"}, {"cuda": "11.7", "end": "2023-05"}] == document(
        "audit", "-f", str(path), "--nodes", NODES
    )["endedToolkits"]


def test_an_end_of_support_is_said_in_chinese_too() -> None:
    """As all messages."""
    result = gpugate("audit", "-f", WORKLOADS, "--nodes", NODES, "--lang", "zh")

    assert "驱动分支 535：已于 2026-06 终止支持" in result.stderr


def test_without_the_variable_it_is_the_present_month(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branch 535 has ended for good."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH")

    assert ENDED in document("matrix")["drivers"]
