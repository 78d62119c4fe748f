"""`gpugate preview --before`: which verdicts a change of manifests changes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.command import gpugate
from tests.support.paths import ROOT
from tests.support.webhooks import pod

_preview = partial(gpugate, "preview")
_NODES: Final = ROOT / "docs" / "compatibility" / "nodes.yaml"
_SERVICE: Final = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}


def _named(name: str, gpus: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return pod(limits) | {"metadata": {"name": name, "namespace": "ml"}}


def _deployment(image: str) -> dict[str, Any]:
    container = {"name": "main", "image": image}
    template = {"spec": {"containers": [container | {"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    metadata = {"name": "serve", "namespace": "ml"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"template": template},
    }


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return the manifests before and after a change of each kind."""
    monkeypatch.chdir(tmp_path)
    before = [
        *(_named(name, 1) for name in ("breaks", "same", "removed")),
        *(_named(name, "1.5") for name in ("freed", "still")),
        _named("plain", None),
        _SERVICE,
    ]
    after = [
        *(_named(name, 1) for name in ("freed", "same", "new")),
        *(_named(name, "1.5") for name in ("breaks", "still", "new-and-wrong")),
        _named("also-plain", None),
        _SERVICE | {"metadata": {"name": "b"}},
    ]
    for name, objects in (("before", before), ("after", after)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "other-name.yaml").write_text(yaml.safe_dump_all(objects), "utf-8")
    return tmp_path / "before", tmp_path / "after"


_ALLOWED: Final = "unchanged; CUDA not checked"
_ROWS: Final = [
    ("Pod ml/breaks", _ALLOWED, "denied"),
    ("Pod ml/new-and-wrong", "new", "denied"),
    ("Pod ml/new", "new", _ALLOWED),
    ("Pod ml/freed", "denied", _ALLOWED),
    ("Pod ml/removed", _ALLOWED, "removed"),
]


@pytest.mark.usefixtures("folders")
def test_markdown_has_a_row_for_each_object_whose_verdict_changes_worst_first() -> None:
    """Objects that are equal, request no accelerator or hold no pods have none; the findings follow."""
    result = _preview("-f", "after", "--before", "before", "-o", "markdown")
    lines = result.stdout.splitlines()
    at = lines.index("| WORKLOAD | BEFORE | AFTER |")
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[at + 2 : at + 7]]

    assert 1 == result.exit_code
    assert "verdict changes: 5 workloads" == lines[at - 2]
    assert _ROWS == [tuple(cell.partition(":")[0] for cell in row) for row in rows]
    assert "expected" in rows[0][2]
    assert "" == lines[at + 7]
    assert lines.index("| LEVEL | SOURCE | FINDING | RULE |") > at


@pytest.mark.usefixtures("folders")
def test_the_terminal_and_json_have_the_same_rows() -> None:
    """JSON with the kind of change; without the option, it has none."""
    text = _preview("-f", "after", "--before", "before").stdout
    facts = json.loads(_preview("-f", "after", "--before", "before", "-o", "json").stdout)

    assert "\nverdict changes: 5 workloads\nWORKLOAD" in text
    assert [row[0] for row in _ROWS] == [
        f"{change['kind']} {change['namespace']}/{change['name']}" for change in facts["changes"]
    ]
    assert ["changed", "added", "added", "changed", "removed"] == [row["change"] for row in facts["changes"]]
    assert {"allowed": True, "result": _ALLOWED} == facts["changes"][0]["before"]
    assert [False, None] == [facts["changes"][0]["after"]["allowed"], facts["changes"][1]["before"]]
    assert "changes" not in json.loads(_preview("-f", "after", "-o", "json").stdout)


def test_a_deployment_whose_pods_run_on_other_nodes_has_a_row(tmp_path: Path) -> None:
    """Although it is admitted unchanged both times."""
    files = [tmp_path / "before.yaml", tmp_path / "after.yaml"]
    for file, cuda in zip(files, ("11.4.3", "12.4.1"), strict=True):
        image = f"nvidia/cuda:{cuda}-base-ubuntu22.04"
        file.write_text(yaml.safe_dump(_deployment(image)), "utf-8")
    result = _preview("-f", files[1], "--before", files[0], "--nodes", _NODES, "-o", "json")
    (change,) = json.loads(result.stdout)["changes"]

    assert "; nodes: 3 of 3 " in change["before"]["result"]
    assert "; its pods: ✎ patched; nodes: 1 of 3 " in change["after"]["result"]


def test_an_object_of_which_only_the_patch_changes_has_a_row_that_says_so(tmp_path: Path) -> None:
    """In the table, as JSON and in Markdown, which the Action comments; an equal patch is no change."""
    files = [tmp_path / "before.yaml", tmp_path / "after.yaml"]
    for file, needs in zip(files, ({}, {"gpugate.dev/min-compute-capability": "8.0"}), strict=True):
        annotations = {"gpugate.dev/cuda-version": "12.4"}
        changed, same = _deployment("a"), _deployment("nvidia/cuda:12.4.1-base-ubuntu22.04")
        changed["spec"]["template"]["metadata"] = {"annotations": annotations | needs}
        same["metadata"] = {"name": "same", "namespace": "ml"}
        file.write_text(yaml.safe_dump_all([changed, same]), "utf-8")
    words = ("-f", files[1], "--before", files[0], "--nodes", _NODES)
    text, markdown = _preview(*words).stdout, _preview(*words, "-o", "markdown").stdout
    (change,) = json.loads(_preview(*words, "-o", "json").stdout)["changes"]
    chinese = _preview(*words, "-o", "markdown", "--lang", "zh").stdout

    assert "\nverdict changes: 0 workloads; only the patch changes: 1 workload\nWORKLOAD" in text
    (row,) = (line for line in markdown.splitlines() if line.startswith("| Deployment ml/serve |"))
    assert row.endswith("; with another patch |")
    assert ("patch", "serve") == (change["change"], change["name"])
    assert change["before"] == change["after"]
    assert "；补丁不同 |" in chinese


def test_an_edit_of_the_authors_own_affinity_is_no_other_patch(tmp_path: Path) -> None:
    """gpugate adds the same to it; its patch repeats the terms of the author."""
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    for file, zones in (before, "a"), (after, "bc"):
        document = _named("a", 1)
        document["spec"]["containers"][0]["image"] = "nvidia/cuda:12.4.1-base-ubuntu22.04"
        own = [[{"key": "zone", "operator": "NotIn", "values": [zone]}] for zone in zones]
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions} for expressions in own]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        document["spec"]["affinity"] = affinity
        file.write_text(yaml.safe_dump(document), "utf-8")
    result = _preview("-f", after, "--before", before, "--nodes", _NODES, "-o", "json").stdout

    assert '"NotIn"' in _preview("-f", after, "--nodes", _NODES, "-o", "patch").stdout
    assert [] == json.loads(result)["changes"]


def test_what_was_wrong_before_does_not_fail(tmp_path: Path) -> None:
    """A note says that it is not compared; claims and quotas of both sides are apart."""
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text("a: [\n---\nkind: Pod\n", "utf-8")
    after.write_text(yaml.safe_dump(_named("a", 1)), "utf-8")
    result = _preview("-f", after, "--before", before, "-o", "markdown")

    assert 0 == result.exit_code
    assert "not compared: " in result.stdout
    assert "| Pod ml/a | new |" in result.stdout


def test_an_empty_folder_has_no_objects(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    """All objects are new, or all are removed."""
    (tmp_path / "none").mkdir()
    results = [
        json.loads(_preview("-f", new, "--before", old, "-o", "json").stdout)["changes"]
        for old, new in ((tmp_path / "none", folders[0]), (folders[0], tmp_path / "none"))
    ]

    assert [{"added"}, {"removed"}] == [{row["change"] for row in rows} for rows in results]
    assert 2 == _preview("-f", tmp_path / "none").exit_code


def test_names_are_no_markup_in_the_table(tmp_path: Path) -> None:
    """They are of the author of a change."""
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(_named("a|<b>@team", 1)), "utf-8")
    (tmp_path / "none").mkdir()
    text = _preview("-f", file, "--before", tmp_path / "none", "-o", "markdown").stdout

    assert r"| Pod ml/a\|&lt;b>@&#8203;team | new |" in text


@pytest.mark.usefixtures("folders")
def test_the_table_is_available_in_chinese() -> None:
    """All of its words."""
    text = _preview("-f", "after", "--before", "before", "-o", "markdown", "--lang", "zh").stdout

    assert "| Pod ml/new | 新增 |" in text
    assert "结果变化：5 个工作负载" in text
