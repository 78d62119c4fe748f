"""`gpugate audit`: output and exit status."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.support.builders import resource_rule
from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running
from tests.support.node_builders import A100, gfd, node

KEY = "vendor.com/device"
ONE_AT_MOST = [{"expression": "value <= 1", "messageEn": "one device at most"}]


def _pod(
    name: str, *, value: str = "1", node: str = "", phase: str = "Running", owner: str = ""
) -> dict[str, Any]:
    """Return a pod as the API server stores it."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
    if owner:
        metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    resources = {"limits": {KEY: value}, "requests": {KEY: value}}
    containers = [{"name": "main", "image": "busybox", "resources": resources}]
    spec = {"containers": containers, **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Return a rule that allows one device at most."""
    path = tmp_path / "rule.yaml"
    path.write_text(resource_rule(KEY, name="cf-crl-device", validations=ONE_AT_MOST), "utf-8")
    return path


def _blocks(result: Result) -> list[list[list[str]]]:
    """Return the words of the lines in each block of the output: heading, summary, owners."""
    return [[line.split() for line in block.splitlines()] for block in result.stdout.split("\n\n")]


def _audit(tmp_path: Path, pods: list[dict[str, Any]], *arguments: str | Path) -> Result:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods}), "utf-8")
    return gpugate("audit", "-f", path, *arguments)


def test_the_summary_by_rule_and_reason_comes_before_the_owners(rules: Path, tmp_path: Path) -> None:
    """Each once, with the number of pods; the exit status is 1."""
    pods = [_pod(f"web-{number}", value="2", owner="web") for number in range(3)]
    pods += [_pod("alone", value="2"), _pod("fine")]
    result = _audit(tmp_path, pods, "--rules", rules)
    heading, summary, owners = _blocks(result)

    assert (1, "3 workloads with 5 pods: 2 would be denied now (0 by facts, 2 by policy)") == (
        result.exit_code,
        " ".join(heading[0]),
    )
    assert [
        "ACTION WORKLOADS PODS RULE REASON",
        "deny 2 4 cf-crl-device found 2, expected one device at most",
    ] == [" ".join(line) for line in summary]
    assert [
        ["ACTION", "NAMESPACE", "WORKLOAD", "PODS", "RULE"],
        ["deny", "ml", "Pod/alone", "1", "cf-crl-device"],
        ["deny", "ml", "ReplicaSet/web", "3", "cf-crl-device"],
    ] == owners


def test_wide_output_has_the_message_of_each_finding(rules: Path, tmp_path: Path) -> None:
    """With container and path."""
    result = _audit(tmp_path, [_pod("web", value="2")], "--rules", rules, "-o", "wide")
    (head, row) = _blocks(result)[2]

    assert "FINDING" == head[-1]
    assert f"spec.containers[0].resources.limits[{KEY}]:" in row


def test_pods_are_counted_once_for_each_rule_and_reason(rules: Path, tmp_path: Path) -> None:
    """Also pods with several containers."""
    pod = _pod("two", value="2")
    pod["spec"]["containers"] *= 2
    pod["spec"]["containers"][1] = pod["spec"]["containers"][1] | {"name": "other"}
    facts = json.loads(_audit(tmp_path, [pod], "--rules", rules, "-o", "json").stdout)

    assert [("deny", 1, "cf-crl-device")] == [
        (row["action"], row["pods"], row["rule"]) for row in facts["summary"]
    ]


@pytest.fixture
def teams() -> list[dict[str, Any]]:
    """Return pods of three teams: by their own label, by that of their namespace, and of an unknown one."""
    own, elsewhere = _pod("own", value="2"), _pod("elsewhere")
    own["metadata"]["labels"] = {"team": "search"}
    elsewhere["metadata"]["namespace"] = "other"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    namespace["metadata"] |= {"labels": {"team": "chat"}}  # type: ignore[operator]
    return [own, *(_pod(f"web-{at}", value="2", owner="web") for at in range(3)), elsewhere, namespace]


def test_workloads_are_counted_by_a_label_of_theirs_or_of_their_namespace(
    rules: Path, tmp_path: Path, teams: list[dict[str, Any]]
) -> None:
    """The group with most denials first, in the table, as JSON and on the page."""
    arguments = ("--rules", rules, "--group-by", "team")
    blocks = _blocks(_audit(tmp_path, teams, *arguments))
    document = json.loads(_audit(tmp_path, teams, *arguments, "-o", "json").stdout)
    page = _audit(tmp_path, teams, *arguments, "-o", "html").stdout

    assert [
        ["GROUP", "WORKLOADS", "PODS", "DENIED", "WARNED"],
        ["chat", "1", "3", "1", "0"],
        ["search", "1", "1", "1", "0"],
        ["-", "1", "1", "0", "0"],
    ] in blocks
    numbers = {"workloads": 1, "pods": 3, "denied": 1, "warned": 0}
    assert {"group": "chat", **numbers} == document["groups"][0]
    assert ["chat", "search", None] == [group["group"] for group in document["groups"]]
    assert {"own": "search", "web": "chat", "elsewhere": None} == {
        workload["name"]: workload["group"] for workload in document["workloads"]
    }
    assert "<caption>Workloads by label team</caption>" in page
    assert '<th scope="row">chat</th>' in page


def test_the_label_of_a_namespace_of_the_cluster_is_that_of_its_workloads(
    rules: Path, tmp_path: Path
) -> None:
    """If the user may list namespaces."""
    fake = FakeApi()
    fake.put("/api/v1/pods", _pod("bad", value="2"))
    fake.put("/api/v1/namespaces", {"metadata": {"name": "ml", "labels": {"team": "chat"}}})
    fake.put("/api/v1/namespaces/kube-public/configmaps", yaml.safe_load(rules.read_text("utf-8")))
    with running(fake):
        arguments = ("--kubeconfig", fake.kubeconfig(tmp_path), "--group-by", "team", "-o", "json")
        result = gpugate("audit", *arguments)

    assert ["chat"] == [group["group"] for group in json.loads(result.stdout)["groups"]]


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_note_says_once_that_the_labels_of_namespaces_are_not_read(
    rules: Path, tmp_path: Path, output: str
) -> None:
    """Without the right to list namespaces, the labels of workloads group them; reports have the note."""
    fake = FakeApi(statuses={"/api/v1/namespaces": 403})
    fake.put("/api/v1/pods", _pod("bad", value="2"))
    fake.put("/api/v1/namespaces/kube-public/configmaps", yaml.safe_load(rules.read_text("utf-8")))
    grouped = _audit_cluster(fake, tmp_path, "--group-by", "team", "-o", output)
    other = _audit_cluster(fake, tmp_path, "-o", output)
    why = "cannot list Namespaces: 403 refused by the test; grouped only by labels of workloads"

    assert [f"note: {why}", ""] == [
        "".join(line for line in result.stderr.splitlines() if "amespaces" in line)
        for result in (grouped, other)
    ]
    assert output == "table" or [why] == json.loads(grouped.stdout)["notes"]


def test_without_a_label_nothing_is_grouped(rules: Path, tmp_path: Path, teams: list[dict[str, Any]]) -> None:
    """The output is as without the option."""
    document = json.loads(_audit(tmp_path, teams, "--rules", rules, "-o", "json").stdout)

    assert [] == document["groups"]
    assert "GROUP" not in _audit(tmp_path, teams, "--rules", rules).stdout


def test_the_workloads_without_the_label_are_the_last_of_equal_groups(rules: Path, tmp_path: Path) -> None:
    """The others in the order of their names."""
    pods = [_pod("none"), _pod("a"), _pod("b")]
    for pod in pods[1:]:
        pod["metadata"]["labels"] = {"team": pod["metadata"]["name"]}
    result = _audit(tmp_path, pods, "--rules", rules, "--group-by", "team", "-o", "json")

    assert ["a", "b", None] == [group["group"] for group in json.loads(result.stdout)["groups"]]


def test_a_deployment_belongs_to_the_group_of_its_template(rules: Path, tmp_path: Path) -> None:
    """If it has no label itself; pods inherit that of the template."""
    pod = _pod("web")
    pod["metadata"] = {"labels": {"team": "search"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ml"},
        "spec": {"template": pod},
    }
    result = _audit(tmp_path, [deployment], "--rules", rules, "--group-by", "team", "-o", "json")

    assert ["search"] == [group["group"] for group in json.loads(result.stdout)["groups"]]


def test_a_group_that_is_no_label_is_an_error(tmp_path: Path) -> None:
    """No workload could have it."""
    result = _audit(tmp_path, [], "--group-by", "my team")

    assert 2 == result.exit_code
    assert "--group-by: 'my team' is no name of a label such as team" in result.stderr


def test_a_violation_of_a_rule_that_warns_is_listed_once(tmp_path: Path) -> None:
    """Although the decision repeats it as a warning."""
    path = tmp_path / "rule.yaml"
    path.write_text(resource_rule(KEY, enforcementAction="warn", validations=ONE_AT_MOST), "utf-8")
    owners = _blocks(_audit(tmp_path, [_pod("web", value="2")], "--rules", path))[2]

    assert [["warn", "ml", "Pod/web", "1", "cf-crl-group-device"]] == owners[1:]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_warnings_are_counted_by_their_rule(language: str, tmp_path: Path) -> None:
    """Which is at the end of the message; the container, at its beginning, is no reason."""
    pod = _pod("web")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    nodes = tmp_path / "nodes.json"
    nodes.write_text(
        json.dumps({"kind": "NodeList", "items": [node("cpu", {}, **{"acme.com/npu": 1})]}), "utf-8"
    )
    words = ("--nodes", nodes, "-o", "json", "--lang", language)
    (row,) = json.loads(_audit(tmp_path, [pod], *words).stdout)["summary"]

    assert ("warn", 1, "compatibility-pgpu") == (row["action"], row["pods"], row["rule"])
    assert row["reason"].startswith(("compatibility not checked: ", "未检查兼容性"))
    assert "main" not in row["reason"]


def test_pods_that_have_ended_and_those_of_other_namespaces_are_skipped(rules: Path, tmp_path: Path) -> None:
    """Ended pods cannot be fixed; other namespaces are not selected."""
    ended = [_pod("done", value="2", phase="Succeeded"), _pod("broken", value="2", phase="Failed")]
    results = (
        _audit(tmp_path, ended, "--rules", rules),
        _audit(tmp_path, [_pod("here", value="2")], "--rules", rules, "-n", "web"),
    )

    assert [0, 0] == [result.exit_code for result in results]
    nothing = "0 workloads with 0 pods: 0 would be denied now (0 by facts, 0 by policy)\n"
    assert [nothing] * 2 == [result.stdout for result in results]


def test_a_pod_on_a_node_is_checked_against_that_node(tmp_path: Path) -> None:
    """Other nodes are not relevant."""
    pods = []
    for name, where in (("old", "t4"), ("new", "a100")):
        pod = _pod(name, node=where)
        pod["spec"]["containers"][0] |= {
            "env": [{"name": "CUDA_VERSION", "value": "12.4.1"}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        }
        pods.append(pod)
    nodes = tmp_path / "nodes.json"
    items = [node("t4", gfd("11.4")), node("a100", gfd("12.4", A100))]
    nodes.write_text(json.dumps({"kind": "NodeList", "items": items}), "utf-8")
    result = _audit(tmp_path, pods, "--rules", "rules/catalog/pgpu", "--nodes", nodes, "-o", "json")

    assert {"old": False, "new": True} == {
        workload["name"]: workload["allowed"] for workload in json.loads(result.stdout)["workloads"]
    }


def test_a_driver_that_is_downgraded_under_a_pod_is_found_in_spite_of_injected_affinity(
    tmp_path: Path,
) -> None:
    """The affinity of its admission no longer matches its node, and the pod stays there."""
    pod = _pod("train", node="b")
    pod["metadata"]["annotations"] = {"gpugate.dev/cuda-compat": "false"}
    pod["spec"]["containers"][0] |= {
        "image": "team/app:cuda13.0",
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
    }
    major = {"key": "nvidia.com/cuda.runtime-version.major", "operator": "Gt", "values": ["12"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [major]}]}
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    nodes = tmp_path / "nodes.json"
    items = [node("b", gfd("12.8")), node("t", gfd("12.2"))]
    nodes.write_text(json.dumps({"kind": "NodeList", "items": items}), "utf-8")
    result = _audit(tmp_path, [pod], "--rules", "rules/catalog/pgpu", "--nodes", nodes, "-o", "json")
    (workload,) = json.loads(result.stdout)["workloads"]

    assert [("deny", "fact", "certain")] == [
        (finding["action"], finding["basis"], finding["certainty"])
        for finding in workload["pods"][0]["findings"]
    ]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_equal_reasons_on_several_nodes_are_one_row(language: str, tmp_path: Path) -> None:
    """The name of the node is in the finding, as are those of pods and containers."""
    pods = [_pod(f"web-{number}", node=f"t4-{number}") for number in range(3)] + [_pod("unbound")]
    for number, document in enumerate(pods):
        document["spec"]["containers"][0] |= {
            "name": f"main-{number}",
            "env": [{"name": "CUDA_VERSION", "value": "12.4.1"}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        }
    nodes = tmp_path / "nodes.json"
    items = [node(f"t4-{number}", gfd("11.4")) for number in range(3)]
    nodes.write_text(json.dumps({"kind": "NodeList", "items": items}), "utf-8")
    words = ("--rules", "rules/catalog/pgpu", "--nodes", nodes, "-o", "json", "--lang", language)
    (row,) = json.loads(_audit(tmp_path, pods, *words).stdout)["summary"]

    assert ("deny", 4, 4) == (row["action"], row["workloads"], row["pods"])
    assert "12.4" in row["reason"]


def test_policy_reports_count_what_passes_and_fails_by_namespace(rules: Path, tmp_path: Path) -> None:
    """Each result names its pod and its rule."""
    result = _audit(tmp_path, [_pod("bad", value="2"), _pod("good")], "--rules", rules, "-o", "policyreport")
    report = yaml.safe_load(result.stdout)

    assert ("PolicyReport", "ml") == (report["kind"], report["metadata"]["namespace"])
    assert {"pass": 1, "fail": 1, "warn": 0, "error": 0, "skip": 0} == report["summary"]
    assert [("bad", "cf-crl-device", "fail"), ("good", "cf-crl-device", "pass")] == [
        (result["resources"][0]["name"], result["policy"], result["result"]) for result in report["results"]
    ]


def test_pods_rules_and_nodes_of_a_cluster_are_audited(tmp_path: Path, rules: Path) -> None:
    """In one call."""
    fake = FakeApi()
    fake.put("/api/v1/pods", _pod("bad", value="2"))
    fake.put("/api/v1/namespaces/kube-public/configmaps", yaml.safe_load(rules.read_text("utf-8")))
    with running(fake):
        result = gpugate("audit", "--kubeconfig", fake.kubeconfig(tmp_path))

    assert (1, "") == (result.exit_code, result.stderr)
    assert result.stdout.startswith(
        "1 workload with 1 pod: 1 would be denied now (0 by facts, 1 by policy)\n"
    )


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"status": None, "metadata": {}}, "Pod/"),
        ({"status": "Running", "metadata": {"name": "a", "namespace": None}}, "Pod/a"),
        ({"metadata": {"name": "a", "ownerReferences": [None, {"controller": True}]}}, "/"),
        ({"metadata": {"name": "a", "ownerReferences": "web"}}, "Pod/a"),
    ],
)
def test_a_pod_with_few_fields_is_evaluated(
    changes: dict[str, Any], output: str, rules: Path, tmp_path: Path
) -> None:
    """Without the defaults that an API server sets."""
    result = _audit(tmp_path, [_pod("a", value="2") | changes], "--rules", rules)

    assert (1, ["deny", "default", output, "1"]) == (result.exit_code, _blocks(result)[2][1][:4])


@pytest.mark.parametrize("missing", ["metadata", "spec"])
def test_an_invalid_pod_is_reported_and_others_are_still_evaluated(
    missing: str, rules: Path, tmp_path: Path
) -> None:
    """The exit status is 2."""
    result = _audit(tmp_path, [_pod("a") | {missing: None}, _pod("b", value="2")], "--rules", rules)

    assert (2, "Pod/b") == (result.exit_code, _blocks(result)[2][1][2])
    assert "invalid pod: metadata or spec is missing" in result.stderr


def test_what_is_not_checked_is_counted_by_reason(rules: Path, tmp_path: Path) -> None:
    """In JSON for each pod, with its path."""
    pods = [_pod(name) for name in ("a", "b")]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"]["limits"]["acme.com/npu"] = 1
    reason = "no enabled rule for resource acme.com/npu"
    path = "spec.containers[0].resources.limits[acme.com/npu]"
    table, facts = (_audit(tmp_path, pods, "--rules", rules, "-o", output) for output in ("table", "json"))

    assert f"– not checked: {reason} (2 workloads)" in table.stdout.splitlines()
    assert [[{"path": path, "reason": reason}]] * 2 == [
        workload["pods"][0]["notChecked"] for workload in json.loads(facts.stdout)["workloads"]
    ]


@pytest.mark.parametrize("nodes", [None, "kind: NodeList\nitems: []\n"])
def test_what_is_not_compared_with_nodes_passes_in_no_report(nodes: str | None, tmp_path: Path) -> None:
    """Without nodes, a rule about nodes has no result; what is not checked is skipped, with the reason."""
    pod = _pod("a")
    pod["spec"]["containers"][0] |= {
        "image": "nvidia/cuda:12.4.1-base-ubuntu22.04",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    (tmp_path / "nodes.yaml").write_text(nodes or "", "utf-8")
    given = ("--nodes", tmp_path / "nodes.yaml") if nodes else ()
    report = yaml.safe_load(_audit(tmp_path, [pod], *given, "-o", "policyreport").stdout)
    why = (
        "the cluster or file has no nodes" if nodes else "no nodes given (use --nodes FILE or --context NAME)"
    )

    assert [
        ("cf-crl-pgpu-gpu", "pass", None),
        ("gpugate", "skip", f"CUDA compatibility not checked: {why}"),
    ] == [(result["policy"], result["result"], result.get("message")) for result in report["results"]]


def _deployment(name: str, value: str, *, replicas: int = 0, kind: str = "Deployment") -> dict[str, Any]:
    """Return a workload of apps/v1 as the API server stores it."""
    spec = _pod(name, value=value)["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"},
        "spec": {"replicas": replicas, "template": {"metadata": {}, "spec": spec}},
    }


def test_a_deployment_without_pods_is_evaluated(rules: Path, tmp_path: Path) -> None:
    """It is denied when someone applies it again. Kinds without pods are skipped."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    result = _audit(tmp_path, [_deployment("web", "2"), service], "--rules", rules)
    heading, _, rows = _blocks(result)

    assert (1, "1 workload with 0 pods: 1 would be denied now (0 by facts, 1 by policy)") == (
        result.exit_code,
        " ".join(heading[0]),
    )
    assert [["deny", "ml", "Deployment/web", "0", "cf-crl-device"]] == rows[1:]


def test_the_pods_of_a_deployment_are_one_row(rules: Path, tmp_path: Path) -> None:
    """Over its ReplicaSet, whose template does not count by itself."""
    replica_set = _deployment("web-1", "2", kind="ReplicaSet")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    replica_set["metadata"]["ownerReferences"] = [owner]
    pods = [_pod(f"web-{number}", value="2" if number else "1", owner="web-1") for number in range(3)]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "apps/v1"
    documents = [*pods, replica_set, _deployment("web", "2")]
    document = json.loads(_audit(tmp_path, documents, "--rules", rules, "-o", "json").stdout)
    rows = _blocks(_audit(tmp_path, documents, "--rules", rules))[2]

    assert [["deny", "ml", "Deployment/web", "2", "cf-crl-device"]] == rows[1:], "those with findings"
    assert [("Deployment", "web", 3, False)] == [
        (workload["kind"], workload["name"], len(workload["pods"]), workload["object"]["allowed"])
        for workload in document["workloads"]
    ]
    assert [(1, 2)] == [(row["workloads"], row["pods"]) for row in document["summary"]]


def test_names_select_workloads_and_show_their_findings(rules: Path, tmp_path: Path) -> None:
    """In any case, and by glob; a name that is not there is an error."""
    documents = [_deployment("web", "2"), _deployment("batch", "2")]
    one = _audit(tmp_path, documents, "--rules", rules, "deployment/web")
    both = _audit(tmp_path, documents, "--rules", rules, "Deployment/*", "--filter", "workload=*/batch")
    none = _audit(tmp_path, documents, "--rules", rules, "deployment/wep")

    assert ["WORKLOAD", "FINDING"] == [_blocks(one)[2][0][at] for at in (2, -1)]
    assert [["Deployment/web"], ["Deployment/batch"]] == [
        [row[2] for row in _blocks(output)[2][1:]] for output in (one, both)
    ]
    assert (2, "error: no workload is named 'deployment/wep' – did you mean 'deployment/web'?\n") == (
        none.exit_code,
        none.stderr.partition("\n")[2] or none.stderr,
    )


def _audit_cluster(fake: FakeApi, tmp_path: Path, *arguments: str) -> Result:
    with running(fake):
        return gpugate("audit", "--kubeconfig", fake.kubeconfig(tmp_path), *arguments)


def test_the_workloads_that_a_cluster_serves_are_audited(rules: Path, tmp_path: Path) -> None:
    """With -n, only those of the namespace. A kind that may not be read is said to be unchecked."""
    fake = FakeApi()
    fake.serve("apps", "v1", Deployment="deployments", StatefulSet="statefulsets")
    fake.put("/apis/apps/v1/deployments", _deployment("web", "2"))
    fake.put("/apis/apps/v1/namespaces/ml/deployments", _deployment("web", "2"))
    fake.put("/api/v1/namespaces/kube-public/configmaps", yaml.safe_load(rules.read_text("utf-8")))
    fake.statuses["/apis/apps/v1/statefulsets"] = 403
    everywhere = _audit_cluster(fake, tmp_path, "-o", "json")
    requests = len(fake.requests)
    of_namespace = _audit_cluster(fake, tmp_path, "-o", "json", "-n", "ml")
    listed = [request.path for request in fake.requests[requests:]]

    assert [["web"], ["web"]] == [
        [workload["name"] for workload in json.loads(result.stdout)["workloads"]]
        for result in (everywhere, of_namespace)
    ]
    assert ("note: not checked: cannot list statefulsets: 403 refused by the test\n", "") == (
        everywhere.stderr,
        of_namespace.stderr,
    )
    why = "not checked: cannot list statefulsets: 403 refused by the test"
    assert [why] == json.loads(everywhere.stdout)["notes"]
    assert f"<p>{why}</p>" in _audit_cluster(fake, tmp_path, "-o", "html").stdout
    assert ("/api/v1/namespaces/ml/pods" in listed, "/api/v1/pods" in listed) == (True, False)


def test_requests_grow_with_pages_alone(rules: Path, tmp_path: Path) -> None:
    """Nothing is requested for each pod, workload or node; without a quota no pod is added up."""
    documents = yaml.safe_load(rules.read_text("utf-8"))
    counts = []
    for pods in (20, 120):
        fake = FakeApi(page=50)
        fake.put("/api/v1/namespaces/kube-public/configmaps", documents)
        for number in range(pods):
            fake.put("/api/v1/pods", _pod(f"pod-{number}", value="2"))
            fake.put("/api/v1/nodes", node(f"node-{number}", gfd("12.4", A100)))
        assert 1 == _audit_cluster(fake, tmp_path).exit_code
        counts.append(Counter(request.path for request in fake.requests))

    few, many = counts
    assert {"/api/v1/pods": 2, "/api/v1/nodes": 2} == many - few
    assert all(number <= 3 for number in many.values())


def test_namespaces_that_gpugate_ignores_are_said_to_be_unchecked(rules: Path, tmp_path: Path) -> None:
    """Nothing is denied there, so a finding would be wrong."""
    fake = FakeApi()
    fake.put("/api/v1/pods", _pod("bad", value="2"))
    fake.put("/api/v1/namespaces", {"metadata": {"name": "ml", "labels": {"gpugate.dev/ignore": "true"}}})
    fake.put("/api/v1/namespaces", {"metadata": {"name": "web", "labels": {}}})
    fake.put("/api/v1/namespaces/kube-public/configmaps", yaml.safe_load(rules.read_text("utf-8")))
    result = _audit_cluster(fake, tmp_path)

    assert (
        0,
        "note: not checked: 1 workload in namespaces with the label gpugate.dev/ignore=true: ml\n",
    ) == (result.exit_code, result.stderr)
