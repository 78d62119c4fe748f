"""`gpugate whatif`: what a change does to workloads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from rules import AdmissionRequest, Inventory, Policy, Snapshot, compile_policy, decide
from rules.nodes.inventory_document import inventory_of
from tests.support.builders import resource_rule
from tests.support.command import gpugate
from tests.support.cpu_time import loops
from tests.support.fake_api import FakeApi, running
from tests.support.paths import ROOT
from tests.support.what_if_clusters import Made, nodes, pod_of, workloads
from webhook.cli.inputs.session import Session

Whatif = Callable[..., Result]


@cache
def _policy() -> Policy:
    return compile_policy(Session().rules)


def _allowed(inventory: Inventory, made: Made) -> bool:
    """Return whether the pod of a workload is admitted, by the decision itself."""
    pod = pod_of(made)
    request = AdmissionRequest("CREATE", "", "Pod", pod["metadata"]["namespace"], pod)
    return decide(Snapshot(_policy(), inventory), request).allowed


def _write(path: Path, items: Sequence[Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}), "utf-8")
    return path


@pytest.fixture
def whatif(tmp_path: Path) -> Whatif:
    """Return a call of the command on workloads and nodes."""

    def run(items: Sequence[Any], cluster_nodes: Sequence[Any], *arguments: str) -> Result:
        files = [
            str(_write(tmp_path / "workloads.json", items)),
            "--nodes",
            str(_write(tmp_path / "n.json", cluster_nodes)),
        ]
        return gpugate("whatif", "-f", *files, *arguments)

    return run


def _names(result: Result, effect: str) -> set[str]:
    assert result.exit_code in (0, 1), result.output
    report = json.loads(result.stdout)["workloads"]
    return {row["workload"] for row in report if row["effect"] == effect}


@pytest.mark.parametrize(
    ("pool", "branch", "number"),
    [
        ("v100", "595", 174),
        pytest.param("t4", "595", 57, marks=pytest.mark.slow),
        pytest.param("t4", "545", 114, marks=pytest.mark.slow),
        pytest.param("v100", "580", 0, marks=pytest.mark.slow),
    ],
)
def test_exactly_the_workloads_that_no_node_of_the_pool_runs_after_the_change_break(
    whatif: Whatif, pool: str, branch: str, number: int
) -> None:
    """300 nodes, 2,000 workloads; compared with two decisions on each pod, and with how each was made."""
    made = workloads()
    before, after = inventory_of(nodes()), inventory_of(nodes({pool: branch}))
    admitted_before = {workload.name for workload in made if _allowed(before, workload)}
    by_hand = {
        workload.name
        for workload in made
        if workload.name in admitted_before and not _allowed(after, workload)
    }
    expected = {workload.name for workload in made if workload.breaks(pool, branch)}
    documents = [workload.document for workload in made]
    result = whatif(documents, nodes(), "--driver", f"{pool}={branch}", "-o", "json")
    assert (expected, number) == (by_hand, len(expected))
    assert expected == _names(result, "breaks")
    assert (1 if expected else 0) == result.exit_code


def test_2000_workloads_on_300_nodes_take_seconds(whatif: Whatif) -> None:
    """The bound is 10 s in units of a loop of a hundredth of a second, so that slow machines keep it."""
    documents = [workload.document for workload in workloads()]
    assert loops(lambda: whatif(documents, nodes(), "--driver", "v100=595")) < 1000


def test_nothing_breaks_if_the_drivers_stay_what_they_are(whatif: Whatif) -> None:
    """The same driver, by its version: no workload changes at all."""
    documents = [workload.document for workload in workloads(140)]
    result = whatif(documents, nodes(per_pool=2), "--driver", "v100=535.104.05", "-o", "json")
    assert ([], 0) == (json.loads(result.stdout)["workloads"], result.exit_code)


def test_what_breaks_is_freed_by_the_reverse_change(whatif: Whatif) -> None:
    """The nodes after the change are those before the reverse one."""
    documents = [workload.document for workload in workloads(140)]
    there = whatif(documents, nodes(per_pool=2), "--driver", "v100=595", "-o", "json")
    back = whatif(documents, nodes({"v100": "595"}, per_pool=2), "--driver", "v100=535", "-o", "json")
    broken = _names(there, "breaks")
    assert (True, broken) == (bool(broken), _names(back, "freed"))


def test_a_running_pod_counts_against_its_node_as_it_will_be(whatif: Whatif) -> None:
    """A pod of its own breaks; pods of a Deployment, which may run elsewhere, have to move."""
    made = next(
        workload
        for workload in workloads(140)
        if workload.shape == "any node" and "Deployment" in workload.name
    )
    pod = pod_of(made)
    running = [
        {
            **pod,
            "metadata": {
                **pod["metadata"],
                "name": f"{pod['metadata']['name']}-{at}",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "controller": True,
                        "name": pod["metadata"]["name"],
                    }
                ],
            },
            "spec": {**pod["spec"], "nodeName": node},
            "status": {"phase": "Running"},
        }
        for at, node in enumerate(("v100-0", "v100-1", "t4-0"))
    ]
    alone = {**running[0], "metadata": {"name": "alone", "namespace": "team-0"}}
    result = whatif([made.document, *running, alone], nodes(per_pool=2), "--driver", "v100=595", "-o", "json")
    effects = {
        workload["workload"]: (workload["effect"], workload["podsToMove"])
        for workload in json.loads(result.stdout)["workloads"]
    }
    assert {"Pod/alone": ("breaks", 0), made.name: ("fewer nodes", 2)} == effects


@pytest.mark.parametrize(("branch", "effects"), [("580", []), ("595", ["breaks"])])
def test_affinity_of_a_running_pod_does_not_count_against_new_labels(
    whatif: Whatif, branch: str, effects: list[str]
) -> None:
    """It stays where it is, as far as its driver allows."""
    made = next(
        workload for workload in workloads(140) if workload.shape == "plain" and workload.pools == ("v100",)
    )
    pod = pod_of(made)
    old = [{"key": "nvidia.com/cuda.driver-version.major", "operator": "In", "values": ["535"]}]
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": old}]}
    }
    spec = {**pod["spec"], "affinity": {"nodeAffinity": terms}, "nodeName": "v100-0"}
    running = {**pod, "spec": spec, "status": {"phase": "Running"}}
    result = whatif([running], nodes(per_pool=2), "--driver", f"v100={branch}", "-o", "json")
    assert effects == [
        workload["effect"]
        for workload in json.loads(result.stdout)["workloads"]
        if workload["effect"] != "warns"
    ]


def test_workloads_that_select_a_removed_pool_break_and_others_have_fewer_nodes(whatif: Whatif) -> None:
    """Also those that were not denied: no node is left that they select."""
    documents = [workload.document for workload in workloads(140)]
    result = whatif(documents, nodes(per_pool=2), "--remove-pool", "a100", "-o", "json")
    made = [workload for workload in workloads(140) if "a100" in workload.pools]
    assert {workload.name for workload in made if workload.pools == ("a100",)} == _names(result, "breaks")
    assert {workload.name for workload in made if len(workload.pools) > 1} == _names(result, "fewer nodes")


def test_added_nodes_free_workloads_that_no_node_is_compatible_with(whatif: Whatif, tmp_path: Path) -> None:
    """A pool is known by its label; here that of workloads that select a pool which is not there yet."""
    documents = [workload.document for workload in workloads(35)]
    without = [node for node in nodes(per_pool=2) if not node["metadata"]["name"].startswith("l4")]
    added = _write(tmp_path / "l4.json", [node for node in nodes(per_pool=2) if node not in without])
    result = whatif(documents, without, "--add-nodes", str(added), "-o", "json")
    of_pool = [workload for workload in workloads(35) if workload.pools == ("l4",)]
    # It is unknown whether programs of CUDA 13 run with driver 550.
    expected = {workload.name for workload in of_pool if workload.shape != "cuda 13"}
    assert (expected, 0) == (_names(result, "freed"), result.exit_code)


DOCS = ("docs/whatif/workloads.yaml", "docs/whatif/nodes.yaml")


def _example(*arguments: str) -> Result:
    """Return the result for the example of the page."""
    workloads_path, nodes_path = (str(ROOT / doc) for doc in DOCS)
    return gpugate("whatif", "-f", workloads_path, "--nodes", nodes_path, *arguments)


def test_images_of_a_known_cuda_version_are_judged_with_another_one() -> None:
    """An image without known libraries breaks on older drivers, one of nvidia/cuda may; unknown ones stay."""
    result = _example("--image-cuda", "13", "-o", "json")
    effects = {
        workload["workload"]: workload["effect"] for workload in json.loads(result.stdout)["workloads"]
    }
    assert {"Deployment/train": "breaks", "Deployment/embed": "unknown"} == effects


def test_yaml_is_the_document_of_json() -> None:
    """The certainty of a state, too."""
    as_yaml, as_json = (_example("--driver", "gpu-v100=595", "-o", output) for output in ("yaml", "json"))

    assert (1, 1) == (as_yaml.exit_code, as_json.exit_code)
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)


def test_another_image_is_judged_instead_of_the_old_one() -> None:
    """A reference for a reference; the others do not change."""
    change = "nvidia/cuda:11.8.0-base-ubuntu22.04=nvidia/cuda:13.0.0-base-ubuntu24.04"
    rows = json.loads(_example("--image", change, "-o", "json").stdout)["workloads"]
    assert [("Deployment/embed", "unknown")] == [(row["workload"], row["effect"]) for row in rows]


def test_rules_after_the_change_are_compared_with_those_before(tmp_path: Path) -> None:
    """What the new rules deny breaks; what they no longer deny is freed."""
    rule = tmp_path / "rule.yaml"
    validations = [{"expression": "value <= 2", "messageEn": "two at most"}]
    rule.write_text(resource_rule("nvidia.com/gpu", name="cf-crl-two", validations=validations), "utf-8")
    new = _example("--rules", str(rule), "-o", "json")
    old = _example("--current-rules", str(rule), "--rules", "builtin", "-o", "json")
    assert ({"Deployment/train"}, {"Deployment/train"}) == (_names(new, "breaks"), _names(old, "freed"))


def test_the_summary_comes_first_and_then_reasons_and_workloads() -> None:
    """A workload is unknown if the change may concern it; the reason says why."""
    result = _example("--driver", "gpu-v100=595")
    first, _, _, *_ = result.stdout.splitlines()
    assert "3 workloads: 1 break, 0 freed, 1 unknown, 1 on fewer nodes, 0 with new warnings" == first
    assert "driver branch 595 does not support the V100 (Volta)" in result.stdout
    chinese = _example("--driver", "gpu-v100=595", "--lang", "zh")
    assert (
        "3 个工作负载：1 个中断，0 个恢复可用，1 个未知，1 个节点减少，0 个新增警告"
        == chinese.stdout.splitlines()[0]
    )
    assert "兼容节点" in chinese.stdout


def test_the_report_is_one_html_file_with_all_workloads_that_change() -> None:
    """Without scripts and requests."""
    result = _example("--driver", "gpu-v100=595", "-o", "html")
    assert (1, True) == (result.exit_code, result.stdout.startswith("<!DOCTYPE html>"))
    assert ["Deployment/train", "CronJob/index", "Deployment/embed"] == [
        name for name in ("Deployment/train", "CronJob/index", "Deployment/embed") if name in result.stdout
    ]
    assert "<script" not in result.stdout


@pytest.mark.parametrize(
    ("driver", "change"),
    [
        ("620", "driver 620.70.06 (CUDA 13.5) on 2 nodes of gpu-v100"),
        ("700", "driver 700 (unknown branch: at least CUDA 13.5, by 620) on 2 nodes of gpu-v100"),
    ],
)
def test_a_newer_driver_than_all_known_ones_is_no_error(driver: str, change: str) -> None:
    """What it has at least follows from the newest known one."""
    result = _example("--driver", f"gpu-v100={driver}")

    assert 1 == result.exit_code
    assert f"change: {change}" == result.stdout.splitlines()[1]


@pytest.mark.parametrize(
    ("cuda", "effect"), [("13.4", "0 break, 0 freed, 0 unknown"), ("14.0", "0 break, 0 freed, 1 unknown")]
)
def test_a_newer_driver_breaks_nothing_by_what_is_unknown_of_it(
    cuda: str, effect: str, tmp_path: Path
) -> None:
    """It may have a newer CUDA than the newest known driver."""
    labels = {"cuda-major-version": "14", "cuda-minor-version": "0", "nvidia.com/gpu.product": "NVIDIA-L4"}
    node = {"kind": "Node", "metadata": {"name": "a", "labels": labels}}
    node |= {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "annotations": {"gpugate.dev/cuda-version": cuda}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    for name, document in (("node.json", node), ("pod.json", pod)):
        (tmp_path / name).write_text(json.dumps(document), "utf-8")
    files = ("-f", str(tmp_path / "pod.json"), "--nodes", str(tmp_path / "node.json"))

    result = gpugate("whatif", *files, "--driver", "700")

    assert f"1 workload: {effect}" == result.stdout.partition(", 0 on")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no change given"),
        (("--driver", "gpu-v10=595"), "no pool or GPU is named 'gpu-v10' – did you mean 'gpu-v100'?"),
        (("--driver", "gpu-v100=596"), "unknown driver branch 596"),
        (("--remove-pool", "x"), "no pool is named 'x'"),
        (("--image", "nvidia/cudaa=x"), "no workload uses image nvidia/cudaa – did you mean 'nvidia/cuda'?"),
        (("--image", "x"), "expected OLD=NEW"),
        (("--image-cuda", "x"), "expected a CUDA version"),
        (("--add-profile", "docs/whatif/nodes.yaml"), "no rules found"),
        (("--add-nodes", "missing.yaml"), "missing.yaml: No such file or directory"),
    ],
)
def test_a_change_that_cannot_be_applied_is_bad_input(arguments: tuple[str, ...], message: str) -> None:
    """The exit status is 2, whatever would break."""
    result = _example(*arguments)
    assert (2, True) == (result.exit_code, message in result.stderr), result.stderr


def test_a_pool_that_may_come_frees_what_it_is_compatible_with(tmp_path: Path) -> None:
    """A profile is no node yet: the workload has none now."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "new"},
        "spec": {
            "nodeSelector": {"karpenter.sh/nodepool": "gpu-h100"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": "nvidia/cuda:13.0.0-base-ubuntu24.04",
                    "resources": {"limits": {"nvidia.com/gpu": "8"}},
                }
            ],
        },
    }
    path = _write(tmp_path / "pod.json", [pod])
    nodes_path, profile = (
        str(ROOT / "docs" / page) for page in (DOCS[1][5:], "compatibility/profile-h100.yaml")
    )
    arguments = ["whatif", "-f", str(path), "--nodes", nodes_path, "--add-profile", profile, "-o", "json"]
    rows = json.loads(gpugate(*arguments).stdout)["workloads"]
    assert [("freed", ["profile-h100"])] == [(row["effect"], row["after"]["pools"]) for row in rows]


def test_the_matrix_is_that_after_changes_of_nodes() -> None:
    """Changes need nodes."""
    arguments = ["matrix", "--nodes", str(ROOT / DOCS[1]), "--driver", "gpu-v100=580", "-o", "json"]
    classes = json.loads(gpugate(*arguments).stdout)["classes"]
    assert {("V100", "580.95.05"), ("A100", "550.54.15")} == {
        (node_class["product"], node_class["driver"]) for node_class in classes
    }
    assert 2 == gpugate("matrix", "--driver", "580").exit_code


def test_the_workloads_and_nodes_of_a_cluster_are_those_that_change(tmp_path: Path) -> None:
    """Pods count for their controller; it has no rules, so the built-in ones decide."""
    fake = FakeApi()
    for node in nodes(per_pool=1):
        fake.put("/api/v1/nodes", node)
    pod = pod_of(
        next(
            workload
            for workload in workloads(140)
            if workload.shape == "plain" and workload.pools == ("v100",)
        )
    )
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train", "controller": True}
    metadata = {"name": "train-0", "namespace": "research", "ownerReferences": [owner]}
    spec = {**pod["spec"], "nodeName": "v100-0"}
    fake.put("/api/v1/pods", {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    with running(fake):
        where = ("--kubeconfig", fake.kubeconfig(tmp_path))
        result = gpugate("whatif", *where, "--driver", "595", "-o", "json")
    rows = json.loads(result.stdout)["workloads"]
    assert [("breaks", "research", "StatefulSet/train", 1)] == [
        (row["effect"], row["namespace"], row["workload"], row["podsToMove"]) for row in rows
    ]


def test_without_nodes_it_says_how_to_name_them() -> None:
    """A change of drivers needs nodes with a GPU."""
    result = gpugate("whatif", "-f", ROOT / "docs/whatif/workloads.yaml", "--driver", "595")

    assert result.exit_code == 2
    assert result.stderr == "error: no node has a GPU; name nodes with --nodes FILE or --context NAME\n"
