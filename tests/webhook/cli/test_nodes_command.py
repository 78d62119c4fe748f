"""`gpugate nodes` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.node_builders import compatibility_rule
from webhook.cli import main

A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/cuda.driver-version.full": "535.104.05",
    "nvidia.com/cuda.runtime-version.full": "12.2",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia-device-enable": "pgpu",
}
NEWER = A100 | {
    "nvidia.com/cuda.driver-version.full": "1000.1",
    "nvidia.com/cuda.runtime-version.full": "13.0",
}


def _nodes(path: Path, **labels: dict[str, str]) -> Path:
    """Write nodes of these names with these labels, as kubectl prints them."""
    items = [{"metadata": {"name": name, "labels": each}} for name, each in labels.items()]
    path.write_text(json.dumps({"kind": "NodeList", "items": items}), "utf-8")
    return path


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["nodes", *map(str, arguments)])


def _document(*arguments: str | Path) -> Any:
    return json.loads(_run(*arguments, "-o", "json").stdout)


def test_equal_nodes_are_one_line_with_their_number(tmp_path: Path) -> None:
    """Aligned under headings, older drivers first, the unknown as a dash and last."""
    result = _run("--nodes", _nodes(tmp_path / "n.json", silent={}, new=NEWER, a=A100, b=A100))
    lines = result.stdout.splitlines()

    assert [
        ["NODES", "PRODUCT", "DRIVER", "CUDA", "COMPUTE", "MEMORY", "MIG", "SHARING", "MODE"],
        ["2", "NVIDIA-A100-SXM4-80GB", "535.104.05", "12.2", "8.0", "81920Mi", "mixed", "none", "pgpu"],
        ["1", "NVIDIA-A100-SXM4-80GB", "1000.1", "13.0", "8.0", "81920Mi", "mixed", "none", "pgpu"],
        ["1", *["-"] * 8],
    ] == [line.split() for line in lines]
    assert lines[0].index("DRIVER") == lines[1].index("535.104.05") == lines[2].index("1000.1")
    assert (0, "") == (result.exit_code, result.stderr)


def test_json_names_the_nodes_of_each_class(tmp_path: Path) -> None:
    """Numbers as numbers, the unknown as null, over several files."""
    first = _nodes(tmp_path / "1.json", b=A100, a=A100)
    second = _nodes(tmp_path / "2.json", silent={})
    a100, silent = _document("--nodes", first, "--nodes", second)["classes"]

    assert {
        "product": "NVIDIA-A100-SXM4-80GB",
        "driver": "535.104.05",
        "cuda": "12.2",
        "compute": "8.0",
        "memoryMiB": 81920,
        "mig": "mixed",
        "slices": None,
        "sharing": "none",
        "mode": "pgpu",
        "nodes": ["a", "b"],
    } == a100
    assert dict.fromkeys(a100, None) | {"nodes": ["silent"]} == silent


def test_nodes_whose_gpus_are_cut_into_slices_are_a_line_of_their_own(tmp_path: Path) -> None:
    """Not every way of sharing goes with MIG."""
    result = _run(
        "--nodes", _nodes(tmp_path / "n.json", cut=A100 | {"nvidia.com/mig-1g.5gb.count": "7"}, a=A100)
    )

    assert ["mixed", "mixed, slices"] == sorted(
        line[line.index("mixed") : line.index("none")].strip() for line in result.stdout.splitlines()[1:]
    )


def test_labels_are_read_as_the_rules_read_them(tmp_path: Path) -> None:
    """Where rules differ, one is named."""
    nodes = _nodes(tmp_path / "n.json", a=A100 | {"example.com/cuda": "13.0"})
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "---\n".join(
            [
                compatibility_rule(name="as-shipped"),
                compatibility_rule(name="own-labels", labels={"cuda": ["example.com/cuda"]}),
            ]
        ),
        "utf-8",
    )
    found = [
        _document("--nodes", nodes, "--rules", rules, "--rule", name)["classes"][0]["cuda"]
        for name in ("as-shipped", "own-labels")
    ]
    both = _run("--nodes", nodes, "--rules", rules)
    neither = _run("--nodes", nodes, "--rules", rules, "--rule", "own-label")

    assert ["12.2", "13.0"] == found
    assert (2, 2) == (both.exit_code, neither.exit_code)
    assert "name one with --rule: as-shipped, own-labels" in both.stderr
    assert "no compatibility rule 'own-label' is in force – did you mean 'own-labels'?" in neither.stderr


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", ["nodes", "matrix"])
def test_a_rule_with_a_mistake_hides_no_result_and_ends_with_2(
    command: str, output: str, tmp_path: Path
) -> None:
    """As with a preview: labels are read as the other rules read them."""
    nodes = _nodes(tmp_path / "n.json", a=A100 | {"example.com/cuda": "13.0"})
    rules = tmp_path / "rules.yaml"
    sound = compatibility_rule(labels={"cuda": ["example.com/cuda"]})
    rules.write_text(f"kind: [\n---\n{sound}", "utf-8")
    words = [command, "--nodes", str(nodes), "--rules", str(rules), "-o", output]
    result = CliRunner().invoke(main, words)
    (complaint,) = result.stderr.splitlines()

    assert (2, True) == (result.exit_code, "13.0" in result.stdout)
    assert complaint.startswith(f"error: {rules}:2:1: not YAML: ")


def test_labels_that_cannot_be_read_are_told_and_are_no_failure(tmp_path: Path) -> None:
    """On stderr, so that the table stays a table; what they would tell is unknown."""
    result = _run("--nodes", _nodes(tmp_path / "n.json", odd=A100 | {"nvidia.com/gpu.memory": "80G"}))

    assert 0 == result.exit_code
    assert "-" == result.stdout.splitlines()[1].split()[5]
    assert "warning: node 'odd': label 'nvidia.com/gpu.memory' cannot be read: '80G'\n" == result.stderr


@pytest.mark.parametrize(("nodes", "last"), [(10, "node"), (12, "2 more cannot be read; -o json lists all")])
def test_ten_problems_are_told_and_the_rest_counted(tmp_path: Path, nodes: int, last: str) -> None:
    """One publisher's mistake is on every node; JSON has all of it."""
    mistake = {"nvidia-device-enable": "no"}
    path = _nodes(tmp_path / "n.json", **{f"n{number}": mistake for number in range(nodes)})
    lines = _run("--nodes", path).stderr.splitlines()

    assert 10 == sum("cannot be read: 'no'" in line for line in lines)
    assert lines[-1].startswith(f"warning: {last}")
    assert [
        {"node": f"n{number}", "label": "nvidia-device-enable", "value": "no"} for number in range(nodes)
    ] == _document("--nodes", path)["problems"]


def test_a_hostile_label_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """Files may hold what no API server would."""
    path = _nodes(tmp_path / "n.json", odd={"x\x1b[2J": "y" * 1000})
    (line,) = _run("--nodes", path).stderr.splitlines()

    assert line.isprintable()
    assert len(line) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{path}: no nodes in this file"),
        ("kind: NodeList\nitems: []\n", "{path}: no nodes"),
        (None, "no nodes; name a file with --nodes or a cluster with --context"),
    ],
)
def test_no_nodes_at_all_are_told_plainly(tmp_path: Path, text: str | None, message: str) -> None:
    """Bad usage, not an empty table."""
    path = tmp_path / "n.yaml"
    path.write_text(text or "", "utf-8")
    result = _run() if text is None else _run("--nodes", path)

    assert (2, f"Error: {message.format(path=path)}") == (result.exit_code, result.stderr.splitlines()[-1])


def test_a_cluster_that_is_not_there_is_told_plainly() -> None:
    """As with the other commands."""
    result = _run("--kubeconfig", "/nowhere/config")

    assert 2 == result.exit_code
    assert "check --kubeconfig and --context" in result.stderr.splitlines()[-1]
