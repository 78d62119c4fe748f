"""`--facts FILE`: a bundle replaces the built-in facts in every command that reads nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import gpugate
from tests.support.fact_builders import bundle, facts_config_map, with_gpu
from tests.support.node_builders import gpu_pod, node


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


def test_a_bundle_that_is_wrong_is_refused_with_its_place(files: Path) -> None:
    (files / "facts.json").write_text(bundle(lambda tables: tables["gpus"][0].update(compute="seven")))
    result = gpugate("preview", "-f", str(files / "pod.yaml"), "--facts", str(files / "facts.json"))

    assert (2, "") == (result.exit_code, result.stdout)
    assert f"error: {files}/facts.json: tables.gpus[0].compute: 'seven' is not a version\n" == result.stderr


def test_a_folder_of_rules_may_have_the_facts_in_a_config_map(files: Path) -> None:
    (files / "facts.yaml").write_text(json.dumps(facts_config_map(bundle(with_gpu))))
    (files / "facts.json").unlink()
    result = gpugate(
        *("nodes", "--nodes", str(files / "nodes.yaml"), "-o", "json"),
        *("--rules", str(files / "facts.yaml")),
    )

    assert "11.0" == json.loads(result.stdout)["classes"][0]["compute"]
