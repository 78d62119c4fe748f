"""`gpugate nodes`: output and exit status."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import gpugate
from tests.support.dra_clusters import bare_node, device_class
from tests.support.fake_api import FakeApi, running
from tests.support.node_builders import compatibility_rule, node_profile
from tests.support.paths import ROOT

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
A100_NAME = A100["nvidia.com/gpu.product"]
NEWER = A100 | {
    "nvidia.com/cuda.driver-version.full": "1000.1",
    "nvidia.com/cuda.runtime-version.full": "13.0",
}

MANAGED = "nvidia.com/gpu.deploy.container-toolkit"
CLUSTER_POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {"cdi": {"enabled": True}, "toolkit": {"version": "v1.18.0"}},
}


def _nodes(path: Path, **labels: dict[str, str]) -> Path:
    """Write nodes of these names with these labels, as kubectl prints them."""
    offered = {"allocatable": {"nvidia.com/gpu": "8"}}
    items = [
        {"metadata": {"name": name, "labels": label}, "status": offered} for name, label in labels.items()
    ]
    path.write_text(json.dumps({"kind": "NodeList", "items": items}), "utf-8")
    return path


_run = partial(gpugate, "nodes")


def _document(*arguments: str | Path) -> Any:
    return json.loads(_run(*arguments, "-o", "json").stdout)


def test_equal_nodes_are_one_line_with_their_number(tmp_path: Path) -> None:
    """Aligned under headings, older drivers first; unknown values are a dash and last."""
    result = _run("--nodes", _nodes(tmp_path / "n.json", unlabelled={}, new=NEWER, a=A100, b=A100))
    lines = result.stdout.splitlines()

    assert [
        ["NODES", "PRODUCT", "DRIVER", "CUDA", "COMPUTE", "MEMORY", "MIG", "SHARING", "MODE"],
        ["2", "NVIDIA-A100-SXM4-80GB", "535.104.05", "12.2", "8.0", "81920Mi", "mixed", "none", "pgpu"],
        ["1", "NVIDIA-A100-SXM4-80GB", "1000.1", "13.0", "8.0", "81920Mi", "mixed", "none", "pgpu"],
        ["1", *["-"] * 8],
    ] == [line.split() for line in lines]
    assert lines[0].index("DRIVER") == lines[1].index("535.104.05") == lines[2].index("1000.1")
    assert (0, "") == (result.exit_code, result.stderr)


def test_container_runtimes_are_shown_with_their_source_where_some_are_known(tmp_path: Path) -> None:
    """A ClusterPolicy sets it for the nodes that GPU Operator manages."""
    file = tmp_path / "n.json"
    document = json.loads(_nodes(file, a=A100 | {MANAGED: "true"}, b=A100).read_text())
    file.write_text(json.dumps([document, CLUSTER_POLICY]), "utf-8")
    managed, other = _document("--nodes", file)["classes"]
    rows = [line.split("  ") for line in _run("--nodes", file, "-o", "wide").stdout.splitlines()]

    assert {
        "mode": "cdi",
        "loadsCompat": True,
        "toolkit": "1.18.0",
        "source": "ClusterPolicy cluster-policy",
    } == managed["runtime"]
    assert other["runtime"] is None
    assert [["a"], ["b"]] == [managed["nodes"], other["nodes"]]
    assert [["RUNTIME", "RUNTIME SOURCE"], ["cdi", "ClusterPolicy cluster-policy"], ["unknown", "-"]] == [
        [cell.strip() for cell in row if cell.strip()][9:11] for row in rows
    ]
    assert "RUNTIME" not in _run("--nodes", _nodes(tmp_path / "b.json", b=A100), "-o", "wide").stdout
    assert "node/a\n" == _run("--nodes", file, "--filter", "runtime=cdi", "-o", "name").stdout


def test_nodes_are_selected_by_name_and_by_column(tmp_path: Path) -> None:
    """A named node is a line of its own; a filter selects classes, in JSON too."""
    nodes = ("--nodes", _nodes(tmp_path / "n.json", b1=A100, b2=A100, a=NEWER, unlabelled={}))
    by_name, by_cuda = _run(*nodes, "b*", "a"), _run(*nodes, "--filter", "cuda!=12.*,product=NVIDIA-*")

    assert [["NAME", "PRODUCT"], ["b1", A100_NAME], ["b2", A100_NAME], ["a", A100_NAME]] == [
        line.split()[:2] for line in by_name.stdout.splitlines()
    ]
    assert [["NODES", "PRODUCT"], ["1", A100_NAME]] == [
        line.split()[:2] for line in by_cuda.stdout.splitlines()
    ]
    assert [["a"]] == [
        node_class["nodes"] for node_class in _document(*nodes, "--filter", "cuda=13.0")["classes"]
    ]
    assert "node/b1\nnode/b2\n" == _run(*nodes, "--filter", "cuda=12.2", "-o", "name").stdout
    assert (2, "error: no node is named 'c1'\n") == ((wrong := _run(*nodes, "c1")).exit_code, wrong.stderr)


def test_problems_of_nodes_that_are_not_selected_are_not_printed(tmp_path: Path) -> None:
    """Labels with unsupported values belong to a node."""
    bad = A100 | {"nvidia.com/gpu.memory": "much"}
    nodes = ("--nodes", _nodes(tmp_path / "n.json", good=A100, bad=bad))

    assert ["", True] == [_run(*nodes, "good").stderr, "'much'" in _run(*nodes, "bad").stderr]


def test_json_names_the_nodes_of_each_class(tmp_path: Path) -> None:
    """Numbers as numbers, unknown values as null, from several files."""
    first = _nodes(tmp_path / "1.json", b=A100, a=A100)
    second = _nodes(tmp_path / "2.json", unlabelled={})
    a100, unlabelled = _document("--nodes", first, "--nodes", second)["classes"]

    assert {
        "product": "NVIDIA-A100-SXM4-80GB",
        "driver": "535.104.05",
        "cuda": "12.2",
        "leastCuda": None,
        "driverSupport": {"branch": 535, "kind": "lts", "end": "2026-06", "state": "ended"},
        "compute": "8.0",
        "memoryMiB": 81920,
        "mig": "mixed",
        "slices": None,
        "sharing": "none",
        "mode": "pgpu",
        "runtime": None,
        "nodes": ["a", "b"],
        "notReady": [],
        "tainted": [],
        "taints": [],
    } == a100
    lists = {"nodes": ["unlabelled"], "notReady": [], "tainted": [], "taints": []}
    assert dict.fromkeys(a100, None) | lists == unlabelled


def test_a_driver_that_no_longer_supports_its_gpu_is_marked_and_explained() -> None:
    """T4 and V100 under driver 595: the V100 offers nothing."""
    nodes = ROOT / "docs/compatibility/driver-upgrade.yaml"
    result = _run("--nodes", nodes)
    reason = "driver branch 595 does not support the V100 (Volta): R580 is the last branch that does"
    remedy = "downgrade the node's driver to R580, or use a newer GPU"

    assert [
        ["1", "Tesla-T4", "595.71.05", "13.2", "7.5"],
        ["1", "Tesla-V100-SXM2-32GB", "595.71.05", "(unsupported)", "13.2"],
    ] == [line.split()[:5] for line in result.stdout.splitlines()[1:]]
    assert f"warning: node 'v100-a' (1 in all): {reason}; {remedy}\n" == result.stderr
    assert 0 == result.exit_code
    assert [{"nodes": ["v100-a"], "reason": reason, "remedy": remedy}] == _document("--nodes", nodes)[
        "unsupported"
    ]


def test_a_driver_that_is_older_than_its_gpu_is_marked_and_one_that_may_be_is_explained(
    tmp_path: Path,
) -> None:
    """An H100 under driver 470 offers nothing, what an H800 does under 530.30.02 is unknown."""
    labels = {
        name: {"nvidia.com/gpu.product": product, "nvidia.com/cuda.driver-version.full": driver}
        for name, product, driver in (
            ("h100", "NVIDIA-H100-80GB-HBM3", "470.256.02"),
            ("h800", "NVIDIA-H800", "530.30.02"),
        )
    }
    result = _run("--nodes", _nodes(tmp_path / "n.json", **labels))

    assert [
        ["1", "NVIDIA-H100-80GB-HBM3", "470.256.02", "(unsupported)"],
        ["1", "NVIDIA-H800", "530.30.02", "12.1"],
    ] == [line.split()[:4] for line in result.stdout.splitlines()[1:]]
    assert (
        "node 'h100' (1 in all): driver branch 470 does not support the H100 (Hopper): R520 is the first "
        "branch that does; upgrade the node's driver to R520 or a later branch\n"
    ) in result.stderr
    assert (
        "node 'h800' (1 in all): driver 530.30.02 may not support the H800: 530.41.03 is the next release "
        "that names it; upgrade the node's driver to 530.41.03, or to a newer branch\n"
    ) in result.stderr


def test_without_a_driver_label_the_cuda_version_is_marked(tmp_path: Path) -> None:
    """A branch has one CUDA version."""
    labels = {
        "nvidia.com/gpu.product": "Tesla-P100-PCIE-16GB",
        "nvidia.com/cuda.runtime-version.full": "13.2",
    }
    result = _run("--nodes", _nodes(tmp_path / "n.json", p100=labels))

    assert ["1", "Tesla-P100-PCIE-16GB", "-", "13.2", "(unsupported)"] == result.stdout.split()[9:14]
    assert "driver branch 595 does not support the P100 (Pascal)" in result.stderr


def test_nodes_with_mig_devices_have_their_own_row(tmp_path: Path) -> None:
    """Some sharing modes do not support MIG."""
    result = _run(
        "--nodes", _nodes(tmp_path / "n.json", cut=A100 | {"nvidia.com/mig-1g.5gb.count": "7"}, a=A100)
    )

    assert ["mixed", "mixed, slices"] == sorted(
        line[line.index("mixed") : line.index("none")].strip() for line in result.stdout.splitlines()[1:]
    )


@pytest.mark.parametrize("command", ["nodes", "matrix"])
def test_nodes_are_read_by_the_labels_of_all_rules(command: str, tmp_path: Path) -> None:
    """Each node once, by the first labels that report its CUDA version; equal nodes are one class."""
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    own = {"example.com/cuda": "13.0"}
    nodes = _nodes(
        tmp_path / "n.json",
        both=A100 | product | own,
        own=product | own,
        equal=product | {"example.org/cuda": "13.0"},
    )
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "---\n".join(
            [
                compatibility_rule(name="built-in-labels"),
                compatibility_rule(name="own-labels", labels={"cuda": ["example.com/cuda"]}),
                compatibility_rule(name="other-labels", labels={"cuda": ["example.org/cuda"]}),
            ]
        ),
        "utf-8",
    )
    result = gpugate(command, "--nodes", str(nodes), "--rules", str(rules), "-o", "json")
    document = json.loads(result.stdout)

    assert ["12.2", "13.0"] == [node_class["cuda"] for node_class in document["classes"]]


def test_an_unreadable_label_of_any_rule_is_reported_once(tmp_path: Path) -> None:
    """Also one that several rules read."""
    nodes = _nodes(tmp_path / "n.json", a={"example.com/cuda": "many", "nvidia.com/gpu.memory": "much"})
    rules = tmp_path / "rules.yaml"
    own = compatibility_rule(name="own-labels", labels={"cuda": ["example.com/cuda"]})
    rules.write_text(f"{compatibility_rule(name='built-in-labels')}---\n{own}", "utf-8")
    problems = _document("--nodes", nodes, "--rules", rules)["problems"]

    assert ["nvidia.com/gpu.memory", "example.com/cuda"] == [problem["label"] for problem in problems]


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", ["nodes", "matrix"])
def test_an_invalid_rule_does_not_hide_results_and_exits_with_2(
    command: str, output: str, tmp_path: Path
) -> None:
    """Like in preview: the other rules define the labels."""
    nodes = _nodes(tmp_path / "n.json", a=A100 | {"example.com/cuda": "13.0"})
    rules = tmp_path / "rules.yaml"
    valid = compatibility_rule(labels={"cuda": ["example.com/cuda"]})
    rules.write_text(f"kind: [\n---\n{valid}", "utf-8")
    words = [command, "--nodes", str(nodes), "--rules", str(rules), "-o", output]
    result = gpugate(*words)
    (error,) = result.stderr.splitlines()

    assert (2, True) == (result.exit_code, "13.0" in result.stdout)
    assert error.startswith(f"error: {rules}:2:1: not YAML: ")


def test_labels_with_unsupported_values_are_reported_without_failure(tmp_path: Path) -> None:
    """On stderr; the value is that of the product then, or unknown."""
    product, memory = "nvidia.com/gpu.product", {"nvidia.com/gpu.memory": "80G"}
    for name, shown in ((A100[product], "81920Mi"), ("Prototype", "-")):
        labels = A100 | {product: name} | memory
        result = _run("--nodes", _nodes(tmp_path / "n.json", odd=labels))

        assert (0, shown) == (result.exit_code, result.stdout.splitlines()[1].split()[5])
        assert (
            "warning: node 'odd': label 'nvidia.com/gpu.memory': unsupported value '80G'\n" == result.stderr
        )


@pytest.mark.parametrize(
    ("nodes", "last"), [(10, "node"), (12, "2 more labels with unsupported values (use -o json to list all)")]
)
def test_ten_problems_are_printed_and_the_rest_counted(tmp_path: Path, nodes: int, last: str) -> None:
    """A faulty publisher affects every node; JSON lists all."""
    mistake = {"nvidia-device-enable": "no"}
    path = _nodes(tmp_path / "n.json", **{f"n{number}": mistake for number in range(nodes)})
    lines = _run("--nodes", path).stderr.splitlines()

    assert 10 == sum("unsupported value 'no'" in line for line in lines)
    assert lines[-1].startswith(f"warning: {last}")
    assert [
        {"node": f"n{number}", "label": "nvidia-device-enable", "value": "no"} for number in range(nodes)
    ] == _document("--nodes", path)["problems"]


def test_a_malicious_label_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """Files may contain values that an API server rejects."""
    path = _nodes(tmp_path / "n.json", odd={"x\x1b[2J": "y" * 1000})
    (line,) = _run("--nodes", path).stderr.splitlines()

    assert line.isprintable()
    assert len(line) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "{path}: no nodes in this file"), ("kind: NodeList\nitems: []\n", "{path}: no nodes")],
)
def test_an_input_without_nodes_is_reported(tmp_path: Path, text: str, message: str) -> None:
    """Exit status 2."""
    path = tmp_path / "n.yaml"
    path.write_text(text, "utf-8")
    result = _run("--nodes", path)

    assert (2, f"error: {message.format(path=path)}") == (result.exit_code, result.stderr.splitlines()[-1])


def test_a_missing_cluster_is_reported() -> None:
    """Like other commands."""
    result = _run("--kubeconfig", "/nowhere/config")

    assert 2 == result.exit_code
    assert "check --kubeconfig and --context" in result.stderr.splitlines()[-1]


def _rules(path: Path, *profiles: str) -> Path:
    """Write rules."""
    path.write_text("---\n".join(profiles), "utf-8")
    return path


def test_a_profile_is_a_row_of_nodes_that_may_come(tmp_path: Path) -> None:
    """After the present nodes, with what it states; without profiles there is no such column."""
    nodes = _nodes(tmp_path / "n.json", a=A100 | {"pool": "a"})
    rules = _rules(
        tmp_path / "rules.yaml",
        node_profile(product="NVIDIA-H100-80GB-HBM3", cuda="13.0", match={"nodeLabels": {"pool": "h100"}}),
        node_profile(name="fixed", product="Tesla-T4", canScale=False, match={"nodeLabels": {"pool": "t4"}}),
        node_profile(name="disabled", enabled="false"),
    )
    result = _run("--nodes", nodes, "--rules", rules)
    heading, present, *rows = (line.split() for line in result.stdout.splitlines())

    assert ["STATE", "POOL"] == heading[-2:]
    assert ["present", "-"] == present[-2:]
    assert [
        [
            "-",
            "NVIDIA-H100-80GB-HBM3",
            "-",
            "13.0",
            "9.0",
            "81920Mi",
            *"---",
            "may",
            "come",
            "NodeProfile/profile",
        ],
        ["-", "Tesla-T4", "-", "-", "7.5", "16384Mi", *"---", "cannot", "come", "NodeProfile/fixed"],
    ] == rows
    assert (0, "") == (result.exit_code, result.stderr)


def test_a_profile_that_present_nodes_contradict_is_reported(tmp_path: Path) -> None:
    """On stderr, and in JSON with the names of the nodes; the exit status stays 0."""
    labels = A100 | {"pool": "a"}
    nodes = _nodes(tmp_path / "n.json", b=labels, a=labels)
    rules = _rules(tmp_path / "rules.yaml", node_profile(cuda="13.0"))
    result = _run("--nodes", nodes, "--rules", rules)
    (profile,) = _document("--nodes", nodes, "--rules", rules)["profiles"]

    assert (
        "warning: node profile 'profile' and reality differ: cuda is 13.0 in the profile, but 12.2 on "
        "present nodes ('a', 2 in all); correct the profile, or the labels in its match\n"
    ) == result.stderr
    assert 0 == result.exit_code
    assert [{"fact": "cuda", "stated": "13.0", "reported": "12.2", "nodes": ["a", "b"]}] == profile[
        "differences"
    ]
    assert ("may come", {"nvidia.com/gpu": 8}, {"pool": "a"}, ["a", "b"]) == tuple(
        profile[key] for key in ("state", "resources", "labelsAtCreation", "nodes")
    )


def test_ten_differences_are_printed_and_the_rest_counted(tmp_path: Path) -> None:
    """JSON lists all."""
    nodes = _nodes(tmp_path / "n.json", a=A100 | {"pool": "a"})
    rules = _rules(
        tmp_path / "rules.yaml",
        *(
            node_profile(name=f"p{number}", cuda="13.0", labelsAtCreation={"pool": f"a{number}"})
            for number in range(12)
        ),
    )
    lines = _run("--nodes", nodes, "--rules", rules).stderr.splitlines()

    assert (11, True) == (len(lines), lines[-1].startswith("warning: 2 more differences"))


TAINTED = "nvidia.com/gpu=present:NoSchedule"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "h100"},
    "spec": {
        "template": {
            "metadata": {
                "labels": {
                    "nvidia.com/cuda.runtime-version.major": "13",
                    "nvidia.com/cuda.runtime-version.minor": "0",
                }
            },
            "spec": {
                "taints": [TAINT],
                "requirements": [
                    {"key": "karpenter.k8s.aws/instance-gpu-name", "operator": "In", "values": ["h100"]}
                ],
            },
        }
    },
}
FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "t4"},
    "spec": {"nodeLabels": {"nvidia.com/gpu.product": "Tesla-T4"}},
}
NODE_GROUP = {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "kind": "MachineDeployment",
    "metadata": {
        "name": "a100",
        "annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "0",
            "capacity.cluster-autoscaler.kubernetes.io/gpu-type": "nvidia.com/gpu",
            "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2",
            "capacity.cluster-autoscaler.kubernetes.io/labels": "pool=a100",
        },
    },
}
STATUS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
}


def _list(path: Path, *items: dict[str, Any]) -> Path:
    """Write a list as kubectl prints it."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "utf-8")
    return path


def _node(name: str, labels: dict[str, str], *taints: dict[str, str]) -> dict[str, Any]:
    """Return a node with GPUs."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }


def test_declared_pools_are_rows_of_nodes_that_may_come(tmp_path: Path) -> None:
    """With kind, name and taints; what they do not declare is a dash."""
    nodes = _list(tmp_path / "n.json", _node("a", A100, TAINT), NODE_POOL, FLAVOR, NODE_GROUP)
    result = _run("--nodes", nodes)
    heading, present, *rows = (line.split() for line in result.stdout.splitlines())

    assert ["STATE", "POOL", "TAINTS"] == heading[-3:]
    assert ["present", "-", TAINTED] == present[-3:]
    assert [
        f"- NVIDIA-H100-80GB-HBM3 - 13.0 9.0 81920Mi - - - may come NodePool/h100 {TAINTED}",
        "- Tesla-T4 - - 7.5 16384Mi - - - may come ResourceFlavor/t4 none",
        "- - - - - - - - - cannot come MachineDeployment/a100 none",
    ] == [" ".join(row) for row in rows]
    assert (0, "") == (result.exit_code, result.stderr)


def test_wide_adds_resources_and_labels_at_creation(tmp_path: Path) -> None:
    """Those of a pool without declared resources are unknown."""
    nodes = _list(tmp_path / "n.json", _node("a", A100), FLAVOR, NODE_GROUP)
    heading, *rows = _run("--nodes", nodes, "-o", "wide").stdout.splitlines()
    resources, labels = heading.index("RESOURCES"), heading.index("LABELS AT CREATION")

    assert [
        ("nvidia.com/gpu", "-"),
        ("-", "nvidia.com/gpu.product=Tesla-T4"),
        ("nvidia.com/gpu: 2", "pool=a100"),
    ] == [(row[resources:labels].strip(), row[labels:]) for row in rows]


def test_json_and_yaml_have_every_fact_of_a_pool(tmp_path: Path) -> None:
    """Unknown facts are null."""
    nodes = _list(tmp_path / "n.json", _node("a", A100), NODE_GROUP)
    document = _document("--nodes", nodes)
    facts = (
        "product",
        "driver",
        "cuda",
        "leastCuda",
        "driverSupport",
        "compute",
        "memoryMiB",
        "mig",
        "slices",
        "sharing",
        "mode",
        "runtime",
    )

    assert [
        {"kind": "MachineDeployment", "name": "a100"}
        | dict.fromkeys(facts)
        | {
            "state": "cannot come",
            "resources": {"nvidia.com/gpu": 2},
            "labelsAtCreation": {"pool": "a100"},
            "taints": [],
        }
    ] == document["pools"]
    assert document == yaml.safe_load(_run("--nodes", nodes, "-o", "yaml").stdout)


def test_kinds_of_nodes_of_a_pool_that_differ_in_no_column_are_one_row(tmp_path: Path) -> None:
    """Instance types of the same GPU, for example; JSON has each of them."""
    pool = deepcopy(NODE_POOL)
    pool["spec"]["template"]["spec"]["requirements"] = [  # type: ignore[index]
        {
            "key": "node.kubernetes.io/instance-type",
            "operator": "In",
            "values": ["g4dn.xlarge", "g4dn.2xlarge"],
        }
    ]
    nodes = _list(tmp_path / "n.json", _node("a", A100), pool)

    assert 1 == _run("--nodes", nodes).stdout.count("NodePool/h100")
    assert 2 == _run("--nodes", nodes, "-o", "wide").stdout.count("NodePool/h100")
    assert 2 == len(_document("--nodes", nodes)["pools"])


def test_pools_without_present_nodes_are_listed(tmp_path: Path) -> None:
    """A cluster may scale from zero."""
    result = _run("--nodes", _list(tmp_path / "n.json", NODE_POOL))

    assert (0, 2) == (result.exit_code, len(result.stdout.splitlines()))


def test_the_number_of_tainted_nodes_of_a_class_is_shown_if_not_all_are(tmp_path: Path) -> None:
    """JSON names them."""
    nodes = _list(tmp_path / "n.json", _node("a", A100), _node("b", A100, TAINT))
    (node_class,) = _document("--nodes", nodes)["classes"]

    assert f"1/2 {TAINTED}" in _run("--nodes", nodes).stdout
    assert (["b"], [TAINTED]) == (node_class["tainted"], node_class["taints"])


def test_an_autoscaler_whose_nodes_are_not_declared_is_told_in_one_line(tmp_path: Path) -> None:
    """By its status or its labels; a NodeProfile describes such nodes."""
    status = _list(tmp_path / "1.json", _node("a", A100), STATUS)
    labelled = _list(tmp_path / "2.json", _node("a", A100 | {"karpenter.sh/nodepool": "a"}))
    rules = _rules(tmp_path / "rules.yaml", node_profile())
    line = (
        "warning: an autoscaler may add nodes that are not declared ({}); describe them with a NodeProfile\n"
    )

    assert line.format("cluster-autoscaler-status") == _run("--nodes", status).stderr
    assert line.format("label karpenter.sh/nodepool") == _run("--nodes", labelled).stderr
    assert "" == _run("--nodes", status, "--rules", rules).stderr
    assert ["cluster-autoscaler-status"] == _document("--nodes", status)["undeclared"]


def test_what_cannot_be_read_in_a_pool_is_reported(tmp_path: Path) -> None:
    """Ten problems, and the number of the others; JSON lists all."""
    pools = [
        FLAVOR | {"metadata": {"name": f"t4-{number}"}, "spec": {"nodeLabels": {"a": "b"}, "nodeTaints": 5}}
        for number in range(12)
    ]
    nodes = _list(tmp_path / "n.json", _node("a", A100), *pools)
    result = _run("--nodes", nodes)
    first, *_, last = result.stderr.splitlines()

    assert "warning: ResourceFlavor t4-0: spec.nodeTaints: expected a list, found 5; ignored" == first
    assert "warning: 2 more problems in declared pools (use -o json to list all)" == last
    assert (0, 11) == (result.exit_code, len(result.stderr.splitlines()))
    assert 12 == len(_document("--nodes", nodes)["poolProblems"])


def test_pools_are_shown_in_chinese(tmp_path: Path) -> None:
    """Headings, states, warnings; names and kinds stay."""
    broken = FLAVOR | {"spec": {"nodeLabels": {"a": "b"}, "nodeTaints": 5}}
    result = _run(
        "--nodes", _list(tmp_path / "n.json", _node("a", A100, TAINT), broken, STATUS), "--lang", "zh"
    )

    assert ["状态", "节点池", "污点"] == result.stdout.splitlines()[0].split()[-3:]
    assert ["可能新增", "ResourceFlavor/t4", "无"] == result.stdout.splitlines()[-1].split()[-3:]
    assert [
        "警告：ResourceFlavor t4: spec.nodeTaints：应为列表，实际为 5；已忽略",
        "警告：自动扩缩器可能新增未声明的节点（cluster-autoscaler-status）；请用 NodeProfile 描述这些节点",
    ] == result.stderr.splitlines()


def test_the_pools_of_a_cluster_are_read(tmp_path: Path) -> None:
    """A kind that does not exist in the cluster, or may not be read, declares nothing."""
    pools, flavors = "/apis/karpenter.sh/v1/nodepools", "/apis/kueue.x-k8s.io/{}/resourceflavors"
    groups = "/apis/cluster.x-k8s.io/{}/{}"
    absent = dict.fromkeys(
        (
            groups.format(version, kind)
            for version in ("v1beta2", "v1beta1")
            for kind in ("machinedeployments", "machinepools", "machinesets")
        ),
        404,
    )
    forbidden = dict.fromkeys((flavors.format(version) for version in ("v1", "v1beta2", "v1beta1")), 403)
    fake = FakeApi(statuses=absent | forbidden)
    fake.put("/api/v1/nodes", _node("a", A100))
    fake.put(pools, {key: value for key, value in NODE_POOL.items() if key != "kind"})
    with running(fake):
        result = _run("--kubeconfig", fake.kubeconfig(tmp_path), "--context", "fake")

    assert (0, 1) == (result.exit_code, len(result.stderr.splitlines())), "that there are no rules"
    assert ["-", "NodePool/h100"] == [line.split()[-2] for line in result.stdout.splitlines()[1:]]


def test_devices_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """On stderr, and in JSON."""
    path = tmp_path / "cluster.yaml"
    documents = [bare_node("one"), device_class(expression="device.driver = 'x'")]
    path.write_text(yaml.safe_dump_all(documents), "utf-8")
    told = gpugate("nodes", "--nodes", path)
    facts = json.loads(gpugate("nodes", "--nodes", path, "-o", "json").stdout)

    assert "gpu.nvidia.com: spec.selectors cannot be read, so not all devices are known: " in told.stderr
    assert ["spec.selectors"] == [problem["key"] for problem in facts["deviceProblems"]]


def test_the_status_of_cluster_autoscaler_is_read_from_a_cluster(tmp_path: Path) -> None:
    """The API server lists ConfigMaps without their kind."""
    fake = FakeApi()
    fake.put("/api/v1/nodes", _node("a", A100))
    listed = {key: value for key, value in STATUS.items() if key == "metadata"}
    fake.put("/api/v1/namespaces/kube-system/configmaps", listed)
    with running(fake):
        result = gpugate("nodes", "--kubeconfig", fake.kubeconfig(tmp_path), "-o", "json")

    assert (0, ["cluster-autoscaler-status"]) == (
        result.exit_code,
        json.loads(result.stdout)["undeclared"],
    ), result.stderr
