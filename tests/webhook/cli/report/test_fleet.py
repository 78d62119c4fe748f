"""The drivers of the nodes against the CUDA that workloads need, in the table and the page of `audit`."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from rules import Language
from rules.cuda.versions import CudaVersion
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames, read_driver_families
from tests.support.command import gpugate
from tests.support.paths import ROOT
from tests.webhook.cli.test_driver_support import ENDED, NOVEMBER_2026, WORKLOADS, document, node_file
from webhook.cli.report.fleet import fleet


@pytest.fixture(autouse=True)
def november(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be November 2026."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", NOVEMBER_2026)


def _node(name: str, **labels: str) -> dict[str, object]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {}}


def test_a_workload_counts_once_by_its_newest_image_and_a_node_by_its_driver() -> None:
    """The newest version first; nodes without a GPU do not count; the newest may have more."""
    drivers = ("535.104.05", "570.124.06", "570.86.15", "700.10")
    nodes = [_node(driver, **{"nvidia.com/cuda.driver-version.full": driver}) for driver in drivers]
    inventory = Inventory().with_node([*nodes, _node("cpu")])
    needed = [{CudaVersion(12, 8), CudaVersion(11, 8)}, {CudaVersion(11, 8)}, set[CudaVersion]()]

    rows = fleet(inventory, [LabelNames()], needed, "2026-11")

    assert [
        ("13.5 or newer", 0, 1, ""),
        ("12.8", 1, 2, "570: out of support since 2026-02"),
        ("12.2", 0, 1, "535: out of support since 2026-06"),
        ("11.8", 1, 0, ""),
        ("CUDA unknown", 1, 0, ""),
    ] == [(row.name.en, row.workloads, row.nodes, row.drivers(Language.EN)) for row in rows]


def test_without_gpu_nodes_there_is_no_fleet() -> None:
    """What workloads need is then compared with nothing."""
    inventory = Inventory().with_node([_node("cpu")])

    assert () == fleet(inventory, [LabelNames()], [{CudaVersion(12, 8)}], "2026-11")


def test_a_node_counts_once_by_the_first_labels_that_report_its_cuda_version() -> None:
    """Rules may read different labels; those of any rule in force count."""
    own = replace(LabelNames(), driver=read_driver_families(["example.com/driver"]))
    product = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    inventory = Inventory().with_node(
        [
            _node("nvidia", **product, **{"nvidia.com/cuda.driver-version.full": "570.124.06"}),
            _node("own", **product, **{"example.com/driver": "535.104.05"}),
            _node("unknown", **product),
        ]
    )

    for families in ([LabelNames(), own], [own, LabelNames()]):
        rows = fleet(inventory, families, [], "2026-11")
        assert [("12.8", 1), ("12.2", 1), ("CUDA unknown", 1)] == [(row.name.en, row.nodes) for row in rows]


def test_audit_shows_drivers_their_support_and_the_cuda_of_workloads(tmp_path: Path) -> None:
    """As a table; on the page also as a picture with a title and a description."""
    nodes = node_file(tmp_path, "570.124.06", "595.71.05")
    arguments = ("audit", "-f", WORKLOADS, "--nodes", nodes)
    table, page = gpugate(*arguments).stdout, gpugate(*arguments, "-o", "html").stdout

    assert "13.2          0          1      595: support ends 2027-03" in table
    picture = ET.fromstring(page[page.index("<svg") : page.index("</svg>")] + "</svg>")
    assert "CUDA of workloads and nodes" == picture.findtext("title")
    assert picture.findtext("desc", "").endswith("The table has the same numbers.")
    assert {"workloads", "ending", "ended", "no-end"} >= {bar.get("class") for bar in picture.iter("rect")}
    assert '<td class="text">595: support ends 2027-03</td>' in page


def test_the_json_of_audit_has_the_plan_and_the_fleet(tmp_path: Path) -> None:
    """The driver as `drivers` has it."""
    arguments = ("-f", WORKLOADS, "--nodes", node_file(tmp_path, "535.104.05", "535.104.06"))

    audited = document("audit", *arguments)

    assert {"fixes", "frees", "of"} == {*audited["plan"]}
    assert audited["plan"]["of"] == sum(not workload["allowed"] for workload in audited["workloads"])
    assert {"fix", "workloads"} == {*audited["plan"]["fixes"][0]}
    row = {"cuda": "12.2", "lowerBound": False, "nodes": 2, "drivers": [ENDED]}
    assert [row] == [{key: known[key] for key in row} for known in audited["fleet"] if known["nodes"]]


def test_whatif_shows_the_fleet_if_it_changes_and_its_json_has_both() -> None:
    """A row for each CUDA version of nodes or workloads, before or after."""
    arguments = ("-f", WORKLOADS, "--nodes", str(ROOT / "docs/whatif/nodes.yaml"))
    changed, same = ("--driver", "gpu-v100=595"), ("--image-cuda", "12.2")
    table = gpugate("whatif", *arguments, *changed).stdout
    compared = document("whatif", *arguments, *changed)

    assert "595: support ends 2027-03" in table
    assert {"fixes", "frees", "of"} == {*compared["plan"]}
    numbers = {when: {row["cuda"]: row["nodes"] for row in rows} for when, rows in compared["fleet"].items()}
    assert {"before", "after"} == {*numbers}
    assert f" -> {numbers['after']['13.2']} " in table
    assert sum(numbers["before"].values()) == sum(numbers["after"].values())
    assert "595" not in gpugate("whatif", *arguments, *same).stdout


def test_the_page_of_whatif_shows_the_fleet_before_and_after_the_change() -> None:
    """A new driver moves nodes from one CUDA version to another."""
    nodes = str(ROOT / "docs/whatif/nodes.yaml")
    arguments = ("whatif", "-f", WORKLOADS, "--nodes", nodes, "--driver", "gpu-v100=595", "-o", "html")
    before, after = gpugate(*arguments).stdout.split('<svg class="fleet"')[1:]

    shown = [("535: out of support" in part, "595: support ends" in part) for part in (before, after)]
    assert [(True, False), (False, True)] == shown
