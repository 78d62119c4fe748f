"""`gpugate facts show | diff | bundle`: of this program, of bundles and of folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.cuda.fact_bundle import SCHEMA
from rules.cuda.tables import built_in_tables
from tests.support.command import gpugate
from tests.support.fact_builders import bundle as facts_bundle
from tests.support.node_builders import gpu_pod, node
from tests.support.paths import ROOT

FACTS = ROOT / "rules/facts"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle with the facts of this program."""
    path = tmp_path / "facts.json"
    path.write_text(gpugate("facts", "bundle").stdout, "utf-8")
    return path


def edited(bundle: Path, change: Any) -> Path:
    """Return a copy of a bundle whose tables were changed."""
    document = json.loads(bundle.read_text("utf-8"))
    change(document["tables"])
    path = bundle.with_name("edited.json")
    path.write_text(json.dumps(document), "utf-8")
    return path


def test_show_has_the_date_the_newest_versions_and_the_origin_of_each_table() -> None:
    shown = json.loads(gpugate("facts", "show", "-o", "json").stdout)
    tables = built_in_tables()
    toolkits = {row["cuda"] for row in (*tables["toolkits"], *tables["toolkit_wheels"])}
    origins = {table["table"]: (table["origin"], table["documents"]) for table in shown["tables"]}

    assert (tables["lock"]["date"], SCHEMA) == (shown["date"], shown["schema"])
    assert (tables["drivers"]["branches"][-1]["branch"], len(toolkits)) == (
        shown["driver"],
        shown["toolkits"],
    )
    assert tables["toolkit_wheels"][-1]["cuda"] == shown["toolkit"]
    assert ("by hand", 0) == origins["drivers"]
    assert ("generated", len(tables["toolkit_wheels"])) == origins["toolkit_wheels"]
    assert sorted(origins) == sorted({*tables} - {"lock"})


def test_show_prints_a_line_for_each_number_and_a_table() -> None:
    lines = gpugate("facts", "show").stdout.splitlines()

    assert [
        "Date",
        "Schema",
        "Newest driver branch",
        "Newest CUDA of a driver",
        "Newest CUDA toolkit",
        "CUDA toolkits",
        "Frameworks",
        "GPUs",
        "Image families",
    ] == [line.partition(":")[0] for line in lines[:9]]
    assert ["TABLE", "ROWS", "ORIGIN", "DOCUMENTS", "RETRIEVED"] == lines[10].split()


def test_show_is_the_same_for_a_bundle_and_the_folder_that_it_was_made_of(bundle: Path) -> None:
    yaml_text = gpugate("facts", "show", FACTS, "-o", "yaml").stdout

    assert yaml.safe_load(yaml_text) == json.loads(gpugate("facts", "show", bundle, "-o", "json").stdout)


def test_a_bundle_of_the_folder_is_that_of_the_program(bundle: Path) -> None:
    assert bundle.read_text("utf-8") == gpugate("facts", "bundle", FACTS).stdout


def test_diff_says_what_changed_and_exits_with_1(bundle: Path) -> None:
    newer = edited(
        bundle, lambda tables: tables["toolkits"].append({**tables["toolkits"][0], "cuda": "13.9"})
    )
    result = gpugate("facts", "diff", "builtin", newer)
    rows = json.loads(gpugate("facts", "diff", bundle, newer, "-o", "json").stdout)["differences"]
    text = "CUDA 13.9 added: built for 3.0 3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0"

    assert (1, f"toolkits: {text}\n") == (result.exit_code, result.stdout)
    assert [{"table": "toolkits", "change": "added", "text": text}] == rows
    assert (0, "") == (gpugate("facts", "diff", FACTS, bundle).exit_code, "")


def test_a_wrong_bundle_is_refused_with_its_place(bundle: Path) -> None:
    wrong = edited(bundle, lambda tables: tables["gpus"][3].update(source="rumour"))
    result = gpugate("facts", "show", wrong)

    assert (2, f"error: {wrong}: tables.gpus[3].source: unknown source 'rumour'; add it to sources\n") == (
        result.exit_code,
        result.stderr,
    )


def test_diff_refuses_a_value_that_no_workload_can_be_evaluated_with(bundle: Path, tmp_path: Path) -> None:
    wrong = edited(bundle, lambda tables: tables["images"][0].update(cuda="newest"))
    (tmp_path / "pod.yaml").write_text(json.dumps(gpu_pod("vllm/vllm-openai:v0.6.3")))
    result = gpugate("facts", "diff", "builtin", wrong, "-f", tmp_path / "pod.yaml")

    assert (2, f"error: {wrong}: tables: a value cannot be read: 'newest' in a table is not a version\n") == (
        result.exit_code,
        result.stderr,
    )


def test_a_folder_with_a_wrong_table_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "gpus.yaml").write_text("- {product: T4}\n", "utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "gpus.yaml").write_text("a: [\n", "utf-8")
    wrong, broken = gpugate("facts", "bundle", tmp_path), gpugate("facts", "bundle", tmp_path / "other")
    empty = gpugate("facts", "show", tmp_path.parent)

    assert f"error: {tmp_path}: tables.gpus[0]: required key 'label' is missing\n" == wrong.stderr
    assert broken.stderr.startswith(f"error: {tmp_path / 'other' / 'gpus.yaml'}:")
    expected = "no tables in this folder; expected files such as drivers.yaml"
    assert f"error: {tmp_path.parent}: {expected}\n" == empty.stderr
    assert [2, 2, 2] == [result.exit_code for result in (wrong, broken, empty)]


def test_diff_shows_which_workloads_change_their_verdict(tmp_path: Path) -> None:
    """They are evaluated with the old and with the new facts, as `gpugate whatif` does."""
    row = {"product": "X1", "label": "X1", "compute": "7.0", "arch": "volta", "segment": "datacenter"}
    row |= {"brand": "nvidia", "source": "none", "status": "verified"}
    (tmp_path / "facts.json").write_text(facts_bundle(lambda tables: tables["gpus"].append(row)))
    (tmp_path / "nodes.yaml").write_text(json.dumps(node("new", {"nvidia.com/gpu.product": "NVIDIA-X1"})))
    server = gpu_pod("vllm/vllm-openai:v0.6.3", "--dtype", "bfloat16")
    (tmp_path / "pod.yaml").write_text(json.dumps(server))
    files = ("-f", tmp_path / "pod.yaml", "--nodes", tmp_path / "nodes.yaml")
    result = gpugate("facts", "diff", "builtin", tmp_path / "facts.json", *files, "-o", "json")
    document = json.loads(result.stdout)

    assert (1, ["GPU X1 added: compute capability 7.0"]) == (
        result.exit_code,
        [change["text"].partition(",")[0] for change in document["differences"]],
    )
    assert [("breaks", True, False)] == [
        (workload["effect"], workload["before"]["allowed"], workload["after"]["allowed"])
        for workload in document["workloads"]
    ]
