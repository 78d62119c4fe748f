"""The compatibility matrix of CUDA runtimes, and `gpugate matrix`."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from rules.cuda.versions import CudaVersion
from rules.decision.pipeline import Snapshot, decide
from rules.model.check_result import Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory_document import inventory_of
from rules.text.i18n import Language, Text
from tests.support.builders import container, pod, policy, request, warning_texts
from tests.support.command import gpugate
from tests.support.node_builders import compatibility_rule
from tests.support.paths import ROOT
from tests.support.pseudo_terminal import on_terminal
from webhook.cli.matrix.matrix import (
    LEVEL_LABELS,
    Table,
    class_table,
    driver_table,
    footnotes,
    gpu_table,
    letters,
)
from webhook.cli.matrix.svg import FILLS, draw

PHYSICAL = SharingPolicy()
VIRTUAL = SharingPolicy(virtual=True, baseline=CudaVersion(12, 4))
SVG = "{http://www.w3.org/2000/svg}"


def _node(
    name: str, product: str = "", driver: str = "", cuda: str = "", compute: str = ""
) -> dict[str, Any]:
    """Return a node with GPUs and the labels of GPU Feature Discovery that are not empty."""
    major, _, minor = compute.partition(".")
    labels = {
        "gpu.product": product,
        "cuda.driver-version.full": driver,
        "cuda.runtime-version.full": cuda,
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
    }
    reported = {f"nvidia.com/{key}": text for key, text in labels.items() if text}
    resources = {"nvidia.com/gpu": "8", "tencent.com/vcuda-core": "800"}
    return {"metadata": {"name": name, "labels": reported}, "status": {"allocatable": resources}}


A100 = _node("a100", "NVIDIA-A100-SXM4-80GB", "535.104.05", "12.2", "8.0")
NODES = [
    A100,
    _node("v100", "Tesla-V100-SXM2-32GB", "", "13.0", "7.0"),
    _node("t4", "Tesla-T4", "", "11.4", "7.5"),
    _node("h100", "NVIDIA-H100-80GB-HBM3", "", "13.0", "9.0"),
    _node("b200", "NVIDIA-B200", "", "12.8", "10.0"),
    _node("unlabelled", "NVIDIA-L4", "", "", "8.9"),
]


def _classes(terms: SharingPolicy, *nodes: dict[str, Any]) -> Table:
    """Return the table of nodes with GPU labels."""
    inventory = inventory_of(list(nodes))
    table = class_table(terms, inventory.classes(inventory.everything))
    assert table is not None
    return table


def _levels(table: Table, **facts: str) -> dict[str, Level]:
    """Return the level of each runtime in the column with these facts."""
    (column,) = (column for column in table.columns if facts.items() <= column.facts.items())
    return {str(cuda): level_of(cell) for cuda, cell in zip(table.runtimes, column.cells, strict=True)}


_run = partial(gpugate, "matrix")


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Write the nodes and two without GPUs to a file."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps([*NODES, {"metadata": {"name": "x"}}, {"metadata": {"name": "y"}}]), "utf-8")
    return path


# What it says


def test_the_runtimes_are_all_known_toolkits_from_cuda_11_on_the_newest_first() -> None:
    """CUDA 12.7 does not exist."""
    runtimes = [str(cuda) for cuda in driver_table(PHYSICAL).runtimes]

    assert ["13.0", "12.9", "12.8", "12.6"] == runtimes[runtimes.index("13.0") :][:4]
    assert "11.0" == runtimes[-1]


def test_a_physical_gpu_is_compatible_with_runtimes_up_to_its_driver_and_warns_two_majors_behind() -> None:
    """On every driver branch."""
    table = driver_table(PHYSICAL)
    for column in table.columns:
        driver = CudaVersion.parse(str(column.facts["cuda"])) or CudaVersion(0, 0)
        for cuda, cell in zip(table.runtimes, column.cells, strict=True):
            warned = Level.UNSTABLE if driver.major - cuda.major > 1 else Level.COMPATIBLE

            assert (Level.INCOMPATIBLE if driver < cuda else warned) is level_of(cell)


def test_a_virtual_gpu_is_compatible_with_one_major_version_up_to_its_baseline() -> None:
    """Of driver, runtime and baseline."""
    levels = _levels(driver_table(VIRTUAL), driver="535")

    assert {"12.0", "12.1", "12.2"} == {cuda for cuda, level in levels.items() if level is Level.COMPATIBLE}
    assert {Level.INCOMPATIBLE} == set(_levels(driver_table(VIRTUAL), driver="580").values())


@pytest.mark.parametrize(
    ("compute", "cuda", "level"),
    [
        ("7.0", "13.0", Level.INCOMPATIBLE),
        ("7.0", "12.9", Level.COMPATIBLE),
        ("9.0", "11.8", Level.COMPATIBLE),
        ("9.0", "11.7", Level.UNSTABLE),
        ("10.0", "12.8", Level.COMPATIBLE),
        ("3.7", "12.0", Level.INCOMPATIBLE),
    ],
)
def test_a_toolkit_is_compatible_with_the_gpus_that_it_compiles_for(
    compute: str, cuda: str, level: Level
) -> None:
    """A newer GPU may compile PTX."""
    assert level is _levels(gpu_table(), compute=compute)[cuda]


def test_gpus_are_listed_by_architecture_and_unverified_ones_are_marked() -> None:
    """In each language."""
    about = {column.facts["compute"]: column.about for column in gpu_table().columns}["8.0"]

    assert (
        Text(
            "Ampere: A30, A30X, A100, A100X, A800 (unverified)",
            zh="Ampere: A30, A30X, A100, A100X, A800 (未证实)",
        )
        == about
    )


@pytest.mark.parametrize(
    ("terms", "rule", "limits"),
    [
        (PHYSICAL, "pgpu/compatibility.yaml", {"nvidia.com/gpu": "1"}),
        (VIRTUAL, "gpu-manager/compatibility-shares.yaml", {"tencent.com/vcuda-core": "20"}),
    ],
)
def test_the_matrix_agrees_with_admission(terms: SharingPolicy, rule: str, limits: dict[str, str]) -> None:
    """A pod of each runtime is denied on incompatible nodes, and warned about otherwise as in the matrix."""
    compiled = policy(Path("rules/catalog", rule).read_text("utf-8"))
    for node in NODES:
        inventory = inventory_of(node)
        for cuda, (cell,) in _classes(terms, node).rows():
            metadata = {"annotations": {"gpugate.dev/cuda-version": str(cuda)}}
            decision = decide(
                Snapshot(compiled, inventory), request(pod(container(limits), metadata=metadata))
            )
            level = level_of(cell)

            assert (level is not Level.INCOMPATIBLE) is decision.allowed
            warned = level is Level.UNKNOWN or (
                level is Level.UNSTABLE and any(result.warns for result in cell)
            )
            assert warned is bool(warning_texts(decision))


def test_nodes_with_equal_facts_and_results_share_a_column() -> None:
    """Differences in memory and MIG do not count; nodes without GPU labels have no column."""
    twin = _node("twin", "NVIDIA-A100-SXM4-40GB", "535.104.05", "12.2", "8.0")
    column, other = _classes(PHYSICAL, A100, twin, _node("unlabelled"), _node("other", cuda="12.4")).columns

    assert {
        "product": "A100",
        "driver": "535.104.05",
        "cuda": "12.2",
        "compute": "8.0",
        "nodes": 2,
    } == column.facts
    assert ("driver CUDA 12.4", "驱动 CUDA 12.4") == (other.name(Language.EN), other.name(Language("zh")))


def test_nodes_without_gpu_labels_have_no_table() -> None:
    """There is nothing to check."""
    inventory = inventory_of([_node("unlabelled")])

    assert class_table(PHYSICAL, inventory.classes(inventory.everything)) is None


def test_each_reason_is_one_footnote_with_a_range_of_versions() -> None:
    """With the CUDA error, in each language."""
    table = _classes(PHYSICAL, A100)
    notes = footnotes([table])
    shown = {str(cuda): letters(cell, notes) for cuda, (cell,) in table.rows()}
    first, second = dict.fromkeys(notes.values())

    assert ("a", "b", "") == (shown["13.0"], shown["12.3"], shown["12.2"])
    assert (
        Text(
            "the driver has CUDA 12.2, below 12.3–12.9, which NVIDIA supports with limits "
            "(no newer features, no PTX)",
            zh="驱动为 CUDA 12.2，低于 12.3–12.9，NVIDIA 有限支持（不含新特性与 PTX）",
        )
        == second.reason
    )
    assert first.error.en.startswith("cudaErrorInsufficientDriver (35): ")
    assert first.error.zh.startswith("cudaErrorInsufficientDriver (35)：")
    assert not second.error


# The command


def test_text_is_aligned_marks_below_their_headings_with_a_legend_and_footnotes(nodes: Path) -> None:
    """Every letter in a cell is explained below."""
    result = _run("--nodes", nodes)
    lines = result.stdout.splitlines()
    heads = lines.index(next(line for line in lines if line.startswith("GPU ")))
    starts = [match.start() for match in re.finditer(r"\S+", lines[heads])][1:]
    rows = [line for line in lines if re.match(r"CUDA \d", line)]
    used = set(re.findall(r"[a-z]", "".join(line[starts[0] :] for line in rows)))

    assert 0 == result.exit_code
    assert ["A100", "B200", "H100", "L4", "T4", "V100"] == lines[heads].split()[1:]
    assert all({line[start] for start in starts} <= set("✓!✗?") for line in rows)
    assert "✓ compatible  ! compatible, with a warning  ✗ incompatible  ? unknown" in lines
    assert sorted(used) == [line[0] for line in lines if re.match(r"[a-z] ", line)]
    assert result.stderr.startswith("note: not in the table: 2 nodes without GPU labels: ")


def test_without_nodes_the_known_drivers_and_gpus_are_shown() -> None:
    """As two tables."""
    stdout = _run().stdout

    assert "CUDA runtimes on driver branches, physical GPUs\n" in stdout
    assert "CUDA runtimes on compute capabilities\n" in stdout
    assert "compute 7.0   Volta: V100, TITAN V, Quadro GV100\n" in stdout


def test_marks_are_coloured_on_a_terminal_only() -> None:
    """A file has no escape sequences."""
    assert "\x1b[31m✗a\x1b[0m" in _run(color=True).stdout
    assert "\x1b" not in _run().stdout


def test_columns_are_broken_to_the_width_of_the_terminal() -> None:
    """None is lost."""
    status, shown = on_terminal(["matrix"], 60)
    lines = shown.splitlines()
    branches = [name for line in lines if line.startswith("driver  ") for name in line.split()[1:]]

    assert 0 == status
    assert 60 >= max(len(line) for line in lines if re.match(r"CUDA \d|driver ", line))
    assert [column.facts["driver"] for column in driver_table(PHYSICAL).columns] == branches


def test_json_has_a_row_for_each_runtime_with_a_cell_for_each_class(nodes: Path) -> None:
    """With reasons and remedies."""
    document = json.loads(_run("--nodes", nodes, "-o", "json").stdout)
    (row,) = (row for row in document["rows"] if row["cuda"] == "12.4")
    classes = {cell["class"]: cell for cell in row["cells"]}

    assert ("physical", None) == (document["sharing"], document["baseline"])
    assert list(classes) == [node_class["class"] for node_class in document["classes"]]
    assert {
        "class": "A100, driver 535.104.05, driver CUDA 12.2, compute 8.0",
        "level": "incompatible",
        "reasons": [
            {
                "level": "incompatible",
                "reason": "the driver has CUDA 12.2, below 12.4, which NVIDIA supports with limits "
                "(no newer features, no PTX)",
                "remedy": "use an image with CUDA 12.2 or older, or a driver with CUDA 12.4 or newer",
                "error": "",
            }
        ],
    } == row["cells"][0]


def test_json_without_nodes_has_the_same_shape() -> None:
    """Drivers and GPUs are the classes."""
    document = json.loads(_run("-o", "json", "--sharing", "virtual").stdout)
    classes = [node_class["class"] for node_class in document["classes"]]

    assert ("virtual", "12.4") == (document["sharing"], document["baseline"])
    assert {"driver 535, driver CUDA 12.2", "compute 8.6"} <= set(classes)
    assert all(classes == [cell["class"] for cell in row["cells"]] for row in document["rows"])


def test_the_baseline_of_virtual_gpus_can_be_set() -> None:
    """A newer virtualization supports newer images."""
    levels = {
        baseline: json.loads(_run("-o", "json", "--sharing", "virtual", "--baseline", baseline).stdout)[
            "rows"
        ]
        for baseline in ("12.4", "12.8")
    }

    def runs(baseline: str) -> list[str]:
        return [
            row["cuda"]
            for row in levels[baseline]
            for cell in row["cells"]
            if cell["class"].startswith("driver 570") and cell["level"] == "compatible"
        ]

    assert ["12.8", "12.6", "12.5"] == [cuda for cuda in runs("12.8") if cuda not in runs("12.4")]


def test_messages_are_available_in_chinese(nodes: Path) -> None:
    """Headings, legend and reasons; columns are aligned by display width."""
    lines = _run("--nodes", nodes, "--lang", "zh").stdout.splitlines()
    driver = next(line for line in lines if line.startswith("驱动 CUDA"))

    assert "✓ 兼容  ! 兼容，有警告  ✗ 不兼容  ? 未知" in lines
    assert 14 - len("驱动") == driver.index("12.2")


def test_labels_are_read_as_the_rules_define_them(tmp_path: Path) -> None:
    """The heading of a column has the values of those labels."""
    nodes, rules = tmp_path / "nodes.json", tmp_path / "rules.yaml"
    nodes.write_text(
        json.dumps({"metadata": {"name": "one", "labels": {"example.com/cuda": "12.4"}}}), "utf-8"
    )
    rules.write_text(compatibility_rule(labels={"cuda": ["example.com/cuda"]}), "utf-8")
    table = json.loads(_run("--nodes", nodes, "--rules", rules, "-o", "json").stdout)

    assert ["driver CUDA 12.4"] == [column["class"] for column in table["classes"]]
    assert "" == _run("--nodes", nodes).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "12.4"], "--baseline requires --sharing virtual"),
        (
            ["--sharing", "virtual", "--baseline", "x"],
            "Invalid value for '--baseline': expected a CUDA version such as 12.4, got 'x'",
        ),
        (["--nodes", "/nowhere"], "/nowhere: No such file or directory"),
        (["--rules", "/nowhere"], "--rules and changes of nodes require --nodes or --context"),
    ],
)
def test_wrong_usage_prints_one_line(arguments: list[str], message: str) -> None:
    """Exit status 2."""
    result = _run(*arguments)

    assert (2, f"error: {message}\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("text", "message", "output"),
    [("[]", "no nodes", "text"), ('[{"metadata": {"name": "x"}}]', "no node has GPU labels", "svg")],
)
def test_what_has_no_table_is_reported(tmp_path: Path, text: str, message: str, output: str) -> None:
    """Exit status 2; a picture has to show something."""
    path = tmp_path / "nodes.json"
    path.write_text(text, "utf-8")
    result = _run("--nodes", path, "-o", output)

    assert 2 == result.exit_code
    assert result.stderr.splitlines()[-1].endswith(message)


def test_nodes_without_gpu_labels_are_listed(tmp_path: Path) -> None:
    """They are no bad input: a cluster without feature discovery has only such nodes. Ten are named."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps([{"metadata": {"name": f"n{at:02}"}} for at in range(12)]), "utf-8")
    result, report = _run("--nodes", path), json.loads(_run("--nodes", path, "-o", "json").stdout)
    names = [f"n{at:02}" for at in range(12)]

    assert (0, "") == (result.exit_code, result.stdout)
    assert (
        f"note: not in the table: 12 nodes without GPU labels: {', '.join(names[:10])}, …; "
        "GPU Feature Discovery or `gpugate node label` adds labels\n"
    ) == result.stderr
    assert ([], [], names) == (report["classes"], report["rows"], report["unlabelled"])


# The image


def test_the_image_is_self_contained_and_each_cell_has_its_reason() -> None:
    """Valid XML without scripts or links; each cell has a mark and a tooltip."""
    root = ET.fromstring(_run("-o", "svg").stdout)
    cells = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    tables = [driver_table(PHYSICAL), gpu_table()]
    tips = [cell.findtext(f"{SVG}title", "") for cell in cells]

    assert {"svg", "title", "style", "rect", "g", "text"} == {
        element.tag.removeprefix(SVG) for element in root.iter()
    }
    assert not any("href" in name for element in root.iter() for name in element.attrib)
    assert sum(len(table.runtimes) * len(table.columns) for table in tables) == len(cells)
    assert {level_label.mark for level_label in LEVEL_LABELS.values()} >= {
        cell.findtext(f"{SVG}text", "") for cell in cells
    }
    assert (
        "CUDA 12.4 – driver 535, driver CUDA 12.2: incompatible\n"
        "the driver has CUDA 12.2, below 12.4, which NVIDIA supports with limits "
        "(no newer features, no PTX)\n"
        "→ use an image with CUDA 12.2 or older, or a driver with CUDA 12.4 or newer"
    ) in tips


def test_all_content_is_inside_the_page(nodes: Path) -> None:
    """Cells and the start of texts."""
    root = ET.fromstring(_run("--nodes", nodes, "-o", "svg").stdout)
    page = [float(root.get(size, "")) for size in ("width", "height")]
    placed = [element for element in root.iter() if "x" in element.attrib]
    right = max(float(element.get("x", "")) + float(element.get("width", "0")) for element in placed)
    bottom = max(float(element.get("y", "")) + float(element.get("height", "0")) for element in placed)

    assert [right < page[0], bottom < page[1]] == [True, True]


def test_a_gpu_that_its_driver_no_longer_supports_is_incompatible_with_every_runtime() -> None:
    """In the text and in the image, with the reason and the fix: T4 and V100 under driver 595."""
    nodes = ROOT / "docs/compatibility/driver-upgrade.yaml"
    reason = "driver branch 595 does not support the V100 (Volta): R580 is the last branch that does"
    text = _run("--nodes", nodes).stdout
    rows = [line.split() for line in text.splitlines() if line.startswith("CUDA 1")]
    root = ET.fromstring(_run("--nodes", nodes, "-o", "svg").stdout)
    tips = [group.findtext(f"{SVG}title", "") for group in root.iter(f"{SVG}g")]
    (of_v100,) = [tip for tip in tips if tip.startswith("CUDA 12.4 – V100")]

    assert "CUDA 12.4 ✓ ✗b" in [" ".join(row) for row in rows]
    assert {"✗"} == {row[3][0] for row in rows}
    assert f"b {reason}" in text.splitlines()
    assert (
        "CUDA 12.4 – V100, driver 595.71.05, driver CUDA 13.2, compute 7.0: incompatible\n"
        f"{reason}\n"
        "→ downgrade the node's driver to R580, or use a newer GPU"
    ) == of_v100


def test_texts_are_escaped_in_the_image() -> None:
    """For any table title."""
    hostile = "<script>&\"'</script>"
    table = replace(gpu_table(), title=Text(hostile))
    root = ET.fromstring(draw([table], footnotes([table]), Language.EN))

    assert hostile in [element.text for element in root.iter(f"{SVG}text")]
    assert [] == list(root.iter(f"{SVG}script"))


# Machado, Oliveira, Fernandes 2009, severity 1.0: linear RGB as it is seen.
# https://www.inf.ufrgs.br/~oliveira/pubs_files/CVD_Simulation/CVD_Simulation.html
SIGHT = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def _seen(colour: str, sight: str) -> tuple[float, float, float]:
    """Return a colour in CIE L*a*b*, in which equal distances are equally visible."""
    srgb = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in srgb
    ]
    red, green, blue = (
        sum(weight * channel for weight, channel in zip(row, linear, strict=True)) for row in SIGHT[sight]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    f, g, h = (max(ratio, 0) ** (1 / 3) for ratio in (x, y, z))
    return 116 * g - 16, 500 * (f - g), 200 * (g - h)


def test_the_image_is_dark_where_the_reader_s_screen_is() -> None:
    """The page and texts on it change; what is on the colour of a cell stays dark."""
    root = ET.fromstring(_run("-o", "svg").stdout)
    _, dark = root.findtext(f"{SVG}style", "").split("@media (prefers-color-scheme: dark)")

    assert "page" == next(root.iter(f"{SVG}rect")).get("class")
    assert [".page", "text", ".small", ".on"] == [line.split()[0] for line in dark.splitlines()[1:-1]]
    for group in root.iter(f"{SVG}g"):
        is_coloured = group.find(f"{SVG}rect").get("class") is None  # type: ignore[union-attr]
        texts = [text.get("class", "").split() for text in group.iter(f"{SVG}text")]
        assert [is_coloured] * len(texts) == ["on" in classes for classes in texts]


@pytest.mark.parametrize("page", ["report/templates/page.css", "ui/static/page.css"])
def test_pages_have_the_colours_of_the_image(page: str) -> None:
    styles = (ROOT / "webhook/cli" / page).read_text("utf-8")
    names = {Level.COMPATIBLE: "ok", Level.UNSTABLE: "unstable", Level.INCOMPATIBLE: "no"}

    for level, name in names.items():
        assert {FILLS[level]} == set(re.findall(rf"--{name}: (#\w+);", styles))


@pytest.mark.parametrize("sight", SIGHT)
def test_the_colours_of_the_image_differ_for_colour_blind_people_too(sight: str) -> None:
    """By 20 in L*a*b*; 2 is about the smallest visible difference."""
    root = ET.fromstring(_run("-o", "svg").stdout)
    rectangles = (group.find(f"{SVG}rect") for group in root.iter(f"{SVG}g"))
    colours = {rectangle.get("fill", "") for rectangle in rectangles if rectangle is not None}
    distances = [
        sum((one - other) ** 2 for one, other in zip(_seen(a, sight), _seen(b, sight), strict=True)) ** 0.5
        for a, b in combinations(sorted(colours), 2)
    ]

    assert (4, True) == (len(colours), min(distances) > 20)


def test_the_page_has_each_cell_its_reason_and_what_it_was_made_with(tmp_path: Path) -> None:
    """Of nodes; cells and reasons are those of the table, also for screen readers."""
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"kind": "List", "items": [A100]}), "utf-8")
    page = _run("--nodes", file, "--driver", "580.65.06", "-o", "html").stdout

    assert page.startswith("<!DOCTYPE html>")
    _, first, column = page.split('<th scope="col">', 3)[:3]
    facts = {"GPU": "A100", "driver": "580.65.06", "driver CUDA": "13.0", "compute": "8.0", "nodes": "1"}
    assert [*facts] == re.findall('<span class="fact">([^<]+)</span>', first)
    assert facts == dict(re.findall('<span class="hidden">([^<]+) </span>([^<]+)</span>', column))
    (row,) = re.findall(r'<tr><th scope="row">CUDA 13.5</th>.*?</tr>', page, re.DOTALL)
    (letter,) = re.findall(r'<span class="hidden">incompatible ([a-z])</span>', row)
    assert f"<dt>{letter}</dt><dd>" in page
    assert "<p>change: driver 580.65.06 (CUDA 13.0) on 1 node</p>" in page


def test_the_page_without_nodes_has_all_drivers_and_gpus() -> None:
    """With the GPUs of each compute capability, and the drivers whose support ended."""
    page = _run("-o", "html").stdout

    assert 2 == page.count("<table")
    assert "<dt>compute 8.0</dt><dd>" in page
    assert re.search(r'<li class="deny"><strong>\d+</strong>out of support</li>', page)
