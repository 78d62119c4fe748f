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
        ("l44", "l44: no file or GPU has this name – did you mean 'l4'? (known: a10, a100, "),
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


def test_the_fix_of_a_gpu_without_a_driver_is_to_add_one() -> None:
    """Its labels are not those of nodes of the user."""
    result = gpugate("preview", "-", "--nodes", "l4", input=POD)

    assert "; add the driver to --nodes, such as --nodes l4@570 [compatibility-pgpu]" in result.stdout
    assert "label these nodes" not in result.stdout


@pytest.mark.parametrize(("gpus", "condition"), [(1, ""), (2, ", if it has as many GPUs as requested")])
@pytest.mark.parametrize("nodes", ["l4@570", "eks:p4d.24xlarge@570"])
def test_a_node_by_facts_is_chosen_only_if_it_has_as_many_gpus(nodes: str, gpus: int, condition: str) -> None:
    """Their number is no fact."""
    pod = POD.replace("nvidia.com/gpu: 1", f"nvidia.com/gpu: {gpus}")
    result = gpugate("preview", "-", "--nodes", nodes, input=pod)

    assert f"nodes 1 of 1 that the scheduler may choose{condition}: NVIDIA-" in result.stdout


def test_a_node_by_facts_offers_whole_gpus_alone() -> None:
    """Of a share or a slice, only a file with nodes can say whether they have it."""
    pod = POD.replace("nvidia.com/gpu: 1", "nvidia.com/mig-1g.5gb: 1").replace("=bfloat16", "=half")
    result = gpugate("preview", "-", "--nodes", "a100@570", input=pod)

    assert (
        "a100@570 stands for nodes with whole GPUs, which do not offer nvidia.com/mig-1g.5gb; "
        in result.stdout
    )
    assert "; give a file with your nodes (--nodes FILE) [compatibility-mig]" in result.stdout


def test_a_node_by_facts_has_no_number_of_gpus_that_a_pod_exceeds() -> None:
    """No machine has 1000."""
    pod = POD.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 1000")

    assert "no node has more than" not in gpugate("preview", "-", "--nodes", "l4@570", input=pod).stdout


def test_a_file_of_the_name_of_a_gpu_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a suffix."""
    monkeypatch.chdir(tmp_path)
    Path("t4").write_text("{kind: Node, apiVersion: v1, metadata: {name: own}}", "utf-8")
    result = gpugate("nodes", "--nodes", "t4", "-o", "name")

    assert (0, "node/own\n") == (result.exit_code, result.stdout)
