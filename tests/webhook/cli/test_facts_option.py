"""`--facts`: a bundle or a folder replaces the built-in facts in every command that reads nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import gpugate
from tests.support.fact_builders import bundle, facts_config_map, with_gpu
from tests.support.node_builders import gpu_pod, node, node_profile
from tests.support.paths import ROOT


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with a node of a GPU that only the bundle knows, a pod for it, and the bundle."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-X1"}
    (tmp_path / "nodes.yaml").write_text(json.dumps(node("new", labels)))
    (tmp_path / "pod.yaml").write_text(json.dumps(gpu_pod("vllm/vllm-openai:v0.6.3")))
    (tmp_path / "facts.json").write_text(bundle(with_gpu))
    return tmp_path


def test_a_gpu_of_the_bundle_is_known(files: Path) -> None:
    nodes = ["nodes", "--nodes", str(files / "nodes.yaml"), "-o", "json"]
    before, after = (
        json.loads(gpugate(*nodes, *options).stdout)["classes"][0]["compute"]
        for options in ((), ("--facts", str(files / "facts.json")))
    )

    assert (None, "11.0") == (before, after)


@pytest.mark.parametrize("facts", ["builtin", ROOT / "rules/facts", "facts.json", "-"])
def test_the_option_takes_what_facts_show_takes(
    files: Path, facts: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    stdin = bundle() if facts == "-" else ""
    results = [
        gpugate("nodes", "--nodes", "nodes.yaml", "--facts", facts, input=stdin),
        gpugate("facts", "show", facts, input=stdin),
    ]

    assert [(0, ""), (0, "")] == [(result.exit_code, result.stderr) for result in results]


@pytest.mark.parametrize(
    ("file", "why"), [("drivers.yaml", "not JSON: Expecting value"), ("no.json", "No such")]
)
def test_a_file_that_is_no_bundle_is_the_same_error_everywhere(files: Path, file: str, why: str) -> None:
    """And applying its fix makes a bundle."""
    (files / "drivers.yaml").write_bytes((ROOT / "rules/facts/drivers.yaml").read_bytes())
    option = gpugate("nodes", "--nodes", files / "nodes.yaml", "--facts", files / file)
    shown = gpugate("facts", "show", files / file)
    (files / "facts.json").write_text(gpugate("facts", "bundle", files).stdout)

    assert (2, 2, option.stderr) == (option.exit_code, shown.exit_code, shown.stderr)
    assert why in option.stderr
    assert (file == "no.json") is ("`gpugate facts bundle FOLDER > facts.json`" not in option.stderr)
    assert 0 == gpugate("nodes", "--nodes", files / "nodes.yaml", "--facts", files / "facts.json").exit_code


def test_a_bundle_that_is_wrong_is_refused_with_its_place(files: Path) -> None:
    (files / "facts.json").write_text(bundle(lambda tables: tables["gpus"][0].update(compute="seven")))
    result = gpugate("preview", "-f", str(files / "pod.yaml"), "--facts", str(files / "facts.json"))

    assert (2, "") == (result.exit_code, result.stdout)
    assert f"error: {files}/facts.json: tables.gpus[0].compute: 'seven' is not a version\n" == result.stderr


def test_lint_compares_a_profile_with_the_facts_of_the_option(files: Path) -> None:
    (files / "profile.yaml").write_text(node_profile(product="NVIDIA-X1", computeCapability="9.0"))
    lint = ["lint", files / "profile.yaml", "--fail-on", "warn"]
    before, after = (gpugate(*lint, *options) for options in ((), ("--facts", files / "facts.json")))

    assert (0, 3) == (before.exit_code, after.exit_code)
    assert "NVIDIA-X1 has compute capability 11.0, not 9.0" in after.stdout


def test_rule_tests_run_with_the_facts_of_the_option(files: Path) -> None:
    def with_old_gpu(tables: dict[str, Any]) -> None:
        with_gpu(tables)
        tables["gpus"][-1]["compute"] = "5.0"

    (files / "facts.json").write_text(bundle(with_old_gpu))
    case = {
        "name": "a GPU that only the bundle knows",
        "nodes": [json.loads((files / "nodes.yaml").read_text())],
        "pod": gpu_pod("vllm/vllm-openai:v0.6.3")["spec"],
        "expect": {"allowed": False, "violations": [{"message": "compute capability 5.0"}]},
    }
    test = {"apiVersion": "gpugate.dev/v1", "kind": "RuleTest", "rules": ["shipped:."], "cases": [case]}
    (files / "x.test.yaml").write_text(json.dumps(test))
    run = ["test", files / "x.test.yaml"]

    assert [1, 0] == [
        gpugate(*run, *options).exit_code for options in ((), ("--facts", files / "facts.json"))
    ]


def test_a_folder_of_rules_may_have_the_facts_in_a_config_map(files: Path) -> None:
    (files / "facts.yaml").write_text(json.dumps(facts_config_map(bundle(with_gpu))))
    (files / "facts.json").unlink()
    result = gpugate(
        *("nodes", "--nodes", str(files / "nodes.yaml"), "-o", "json"),
        *("--rules", str(files / "facts.yaml")),
    )

    assert "11.0" == json.loads(result.stdout)["classes"][0]["compute"]
