"""Presets of `--nodes`: nodes that a GPU or a machine type stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import gpugate

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: serve}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.8.5
      args: [--model=x, --dtype=bfloat16]
      resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.mark.parametrize(
    ("nodes", "status", "shown"),
    [
        ("t4", 1, "1      NVIDIA-T4  ?       ?     7.5      compute capability 7.5, below 8.0"),
        ("t4@535", 1, "1      NVIDIA-T4  535."),
        ("v100@570", 1, "Tesla-V100"),
        ("l4@570", 0, "nodes 1 of 1 that the scheduler may choose: NVIDIA-L4"),
        ("gke:g2-standard-8", 0, "no label provides the driver's CUDA version (1 × NVIDIA-L4, CUDA ?)"),
        ("eks:p4d.24xlarge@570", 0, "may choose: NVIDIA-A100-SXM4-40GB"),
        ("aks:Standard_NC4as_T4_v3", 1, "Tesla-T4"),
    ],
)
def test_a_name_stands_for_a_node_by_facts(nodes: str, status: int, shown: str) -> None:
    """Its driver is unknown, unless it is stated; a note says what is not known."""
    result = gpugate("preview", "-", "--nodes", nodes, input=POD)

    assert (status, True) == (result.exit_code, shown in result.stdout)
    assert ("its driver is unknown" in result.stderr) is ("@" not in nodes)
    assert "its number of GPUs is not checked" in result.stderr


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("l44", "l44: no file or GPU has this name – did you mean 'L4'?"),
        ("eks:m5.large", "eks:m5.large: this machine type has no GPU of NVIDIA"),
        ("eks:x9.large", "eks:x9.large: no GPU of this machine type is known; name its GPU, such as l4"),
        ("t4@9", "t4@9: unknown driver branch 9;"),
        ("missing.yaml", "missing.yaml: No such file or directory"),
    ],
)
def test_an_unknown_name_is_an_error(nodes: str, message: str) -> None:
    """With a suggestion if a GPU has a similar name."""
    result = gpugate("preview", "-", "--nodes", nodes, input=POD)

    assert 2 == result.exit_code
    assert f"error: {message}" in result.stderr


def test_a_file_of_the_name_of_a_gpu_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a suffix."""
    monkeypatch.chdir(tmp_path)
    Path("t4").write_text("{kind: Node, apiVersion: v1, metadata: {name: own}}", "utf-8")
    result = gpugate("nodes", "--nodes", "t4", "-o", "name")

    assert (0, "node/own\n") == (result.exit_code, result.stdout)
