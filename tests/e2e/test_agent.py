"""The node agent on a real API server: what it writes, what it keeps, and what it may not do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from certs.kubernetes_api import Conflict, KubernetesError
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from tests.e2e.manifests import MANIFESTS, ROOT, Object, commands, of_kind, render, run
from tests.e2e.serve_process import eventually
from tests.support.command import gpugate
from tests.support.nvml import library, recorded
from webhook.agent.labels import CUDA_LABELS, FACTS, GPUS_ANNOTATION, LABELS, is_own, metadata_of
from webhook.agent.node_writer import MANAGER, NodeWriter
from webhook.agent.nvml_probe import Gpu, Probe
from webhook.cluster.client import ClusterApi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import ControlPlane

AGENT = MANIFESTS / "agent"
NAMESPACE = "gpugate-agent"
COMPONENTS = ("mps", "mig", "nri", "host-driver", "toolkit")
T4 = Probe(
    DriverVersion.parse("535.129.03"),
    CudaVersion(12, 2),
    (Gpu("Tesla T4", "GPU-1", ComputeCapability(7, 5), 15360),),
)
NVIDIA = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}

Agent = Callable[[str], Path]


@pytest.fixture(scope="module")
def installed(empty_control_plane: ControlPlane) -> ControlPlane:
    """Return a cluster with the agent's manifests, and NVIDIA's runtime class."""
    objects = [*render(AGENT), NVIDIA]
    apply = ("apply", "--validate=strict", "-f", "-")
    for part in (of_kind(objects, "Namespace"), objects):
        empty_control_plane.kubectl(*apply, input=yaml.safe_dump_all(part))
    return empty_control_plane


@pytest.fixture
def node(installed: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of a new node with a label of another owner."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:50].strip("-")
    labels = {"kubernetes.io/hostname": name}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    installed.kubectl("create", "-f", "-", input=json.dumps(document))
    yield name
    installed.kubectl("delete", "node", name, "--wait=false")


@pytest.fixture
def agent(installed: ControlPlane, tmp_path: Path) -> Agent:
    """Return a function that creates the agent's pod of a node and returns its kubeconfig."""
    (daemon_set,) = of_kind(render(AGENT), "DaemonSet")

    def of(node: str) -> Path:
        pod = {"apiVersion": "v1", "kind": "Pod", **daemon_set["spec"]["template"]}
        pod["metadata"] |= {"name": node, "namespace": NAMESPACE}
        pod["spec"] |= {"nodeName": node}
        installed.kubectl("create", "-f", "-", input=json.dumps(pod))
        bound = ("--bound-object-kind", "Pod", "--bound-object-name", node)
        token = installed.kubectl("create", "token", NAMESPACE, "-n", NAMESPACE, *bound).stdout.strip()
        return _kubeconfig(installed, token, tmp_path / node)

    return of


def _kubeconfig(cluster: ControlPlane, token: str, path: Path) -> Path:
    """Write a kubeconfig of the cluster with a token."""
    config = json.loads(cluster.kubeconfig.read_text("utf-8"))
    config["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(config))
    return path


def api_of(kubeconfig: Path) -> ClusterApi:
    """Return a client with the user of a kubeconfig."""
    return ClusterApi.of_kubeconfig(str(kubeconfig))


def labels_of(cluster: ControlPlane, node: str) -> dict[str, str]:
    """Return a node's labels without the one from its creation."""
    labels: dict[str, str] = json.loads(cluster.kubectl("get", "node", node, "-o", "json").stdout)[
        "metadata"
    ]["labels"]
    assert node == labels.pop("kubernetes.io/hostname")
    return labels


def events_of(cluster: ControlPlane, node: str) -> list[str]:
    """Return the Events in `kubectl describe` of a node, without their age."""
    _, _, shown = cluster.kubectl("describe", "node", node).stdout.partition("\nEvents:")
    return [" ".join(line.split()) for line in shown.splitlines()]


def test_the_command_sets_all_labels_of_its_node(installed: ControlPlane, node: str, agent: Agent) -> None:
    """With the rights and field manager of the agent's pod; the second run does not write."""
    arguments = ["node", "label", "--kubeconfig", str(agent(node)), "--node-name", node]
    with library("a100-mig"):
        first = gpugate(*arguments)
        version = json.loads(installed.kubectl("get", "node", node, "-o", "json").stdout)["metadata"]
        second = gpugate(*arguments)
        check = gpugate("node", "check", *arguments[2:])
    written = json.loads(
        installed.kubectl("get", "node", node, "-o", "json", "--show-managed-fields").stdout
    )["metadata"]

    assert (0, 0) == (first.exit_code, second.exit_code), first.output + second.output
    assert (0, "") == (check.exit_code, check.stderr)
    assert recorded("a100-mig")["labels"] == labels_of(installed, node)
    assert version["resourceVersion"] == written["resourceVersion"]
    assert [MANAGER] == [
        entry["manager"] for entry in written["managedFields"] if entry["operation"] == "Apply"
    ]
    assert 7 == json.loads(written["annotations"][GPUS_ANNOTATION])[0]["mig"].count("1g.5gb")


# The agent of a node with a T4.
WATCH = """
import sys
from tests.support.nvml import library
from webhook.cli import main

with library("t4"):
    main(["node", "label", "--watch", "--interval", "1", *sys.argv[1:]])
"""


def test_a_watch_survives_an_outage_of_the_api_server(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """It corrects labels before and after, and ends by SIGTERM with status 0."""
    argv = [sys.executable, "-c", WATCH, "--kubeconfig", str(agent(node)), "--node-name", node]
    right: dict[str, str] = recorded("t4")["labels"]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stderr is not None
        try:
            eventually(lambda: labels_of(installed, node) == right)
            installed.kill_apiserver()
            said = next(line for line in watch.stderr if "does not answer" in line)
            installed.restart_apiserver()
            installed.kubectl("label", "--overwrite", "node", node, "gpugate.dev/gpu.count=8")
            eventually(lambda: labels_of(installed, node) == right)
        finally:
            watch.terminate()
        rest = watch.stderr.read()

    assert "WARNING" in said
    assert "recovered" in rest
    assert 0 == watch.returncode


# The agent of a node whose driver is gone.
WITHOUT = """
import sys
from tests.support.nvml import failing, library
from webhook.cli import main
from webhook.cli.commands import node

node.kernel_module = lambda: None
with library("t4", failing("nvmlInit", "NVML_ERROR_LIBRARY_NOT_FOUND")):
    main(["node", "label", *sys.argv[1:]])
"""


def test_without_a_driver_labels_are_removed_and_once_exits_while_a_watch_waits(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """With one log line; --once exits with status 2, and a watch serves its metrics until SIGTERM."""
    options = ["--kubeconfig", str(agent(node)), "--node-name", node]
    NodeWriter(api_of(Path(options[1])), node).publish(T4)
    argv = [sys.executable, "-c", WITHOUT, *options]
    once = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    left = labels_of(installed, node)
    with subprocess.Popen(
        [*argv, "--watch", "--metrics-port", "0"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stderr is not None
        try:
            (port,) = re.findall(r"serving metrics on port (\d+)", watch.stderr.readline())
            said = watch.stderr.readline()
            reason = {"reason": "NVML_ERROR_LIBRARY_NOT_FOUND"}
            eventually(lambda: (sample(port, "gpugate_agent_failures_total", reason) or 0) > 2)
            published = sample(port, "gpugate_agent_publish_timestamp_seconds", {})
        finally:
            watch.terminate()
        rest = watch.stderr.read()

    assert (2, "", {}) == (once.returncode, once.stdout, left)
    assert [True] == ["no NVIDIA driver" in line for line in once.stderr.splitlines()]
    assert "no NVIDIA driver" in said
    assert (0, "") == (watch.returncode, rest)
    assert time.time() - 60 < (published or 0)


def test_outdated_labels_are_removed_and_labels_of_others_stay(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """The driver is upgraded, MPS stops, and then the driver is removed."""
    installed.kubectl("label", "node", node, "accelerator=t4", "cuda-minor-version=2")
    publisher = NodeWriter(api_of(agent(node)), node)
    publisher.publish(replace(T4, mps=("/run/nvidia/mps/nvidia.com/gpu/pipe",)))
    with_mps = labels_of(installed, node)
    publisher.publish(T4)
    without = labels_of(installed, node)
    publisher.publish(None)

    assert with_mps == without | {"gpugate.dev/mps.daemon": "true"}
    assert {**metadata_of(T4).labels, "accelerator": "t4"} == without
    assert {"accelerator": "t4", "cuda-minor-version": "2"} == labels_of(installed, node)


def test_the_page_uninstalls_labels_too(installed: ControlPlane, node: str, agent: Agent) -> None:
    """All labels of the agent, and no others."""
    installed.kubectl("label", "node", node, "accelerator=t4")
    NodeWriter(api_of(agent(node)), node).publish(T4)
    _, let_go = commands("agent.md", "Uninstall")
    done = run(installed, let_go)

    assert 0 == done.returncode, done.stderr
    assert {"accelerator": "t4"} == labels_of(installed, node)


def test_a_changed_own_label_is_corrected_and_a_contested_one_causes_an_event(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """`kubectl describe node` shows it; --take-over overwrites."""
    publisher = NodeWriter(api_of(kubeconfig := agent(node)), node)
    publisher.publish(T4)
    installed.kubectl(
        "label", "--overwrite", "node", node, "cuda-major-version=11", "gpugate.dev/gpu.count=8"
    )
    publisher.publish(T4)
    left, said = labels_of(installed, node), events_of(installed, node)
    NodeWriter(api_of(kubeconfig), node, take_over=True).publish(T4)

    assert ["11", None] == [left.get(key) for key in CUDA_LABELS]
    assert "1" == left["gpugate.dev/gpu.count"]
    assert [True] == [
        "another owner has set cuda-major-version=11" in line
        for line in said
        if "CudaLabelsContested" in line
    ]
    assert metadata_of(T4).labels == labels_of(installed, node)


def test_a_contradiction_between_discovery_and_nvml_is_an_event_on_the_node(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """Once, even if the agent restarts."""
    installed.kubectl("label", "node", node, "nvidia.com/gpu.product=Tesla-V100-SXM2-16GB")
    kubeconfig = agent(node)
    for _ in range(2):
        NodeWriter(api_of(kubeconfig), node).publish(T4)
    (event,) = [line for line in events_of(installed, node) if "DiscoveryLabelsDiffer" in line]

    assert event.startswith("Warning DiscoveryLabelsDiffer")
    assert "have Tesla-V100-SXM2-16GB, NVML reports Tesla-T4" in event


def test_a_contradiction_is_in_the_metrics_while_it_lasts(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """By fact, together with consistent facts; it is 0 once GPU Feature Discovery is correct again."""
    discovered = "nvidia.com/gpu.product"
    installed.kubectl(
        "label", "node", node, f"{discovered}=Tesla-V100-SXM2-16GB", "nvidia.com/gpu.memory=15360"
    )
    options = ["--kubeconfig", str(agent(node)), "--node-name", node, "--metrics-port", "0"]
    watching = [sys.executable, "-c", WATCH, *options]
    with subprocess.Popen(watching, cwd=ROOT, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stderr is not None
        try:
            (port,) = re.findall(r"serving metrics on port (\d+)", watch.stderr.readline())
            eventually(lambda: scraped(port, "product") == 1)
            others = {fact: scraped(port, fact) for fact in FACTS if fact != "product"}
            right: dict[str, str] = recorded("t4")["labels"]
            corrected = f"{discovered}={right['gpugate.dev/gpu.product']}"
            installed.kubectl("label", "--overwrite", "node", node, corrected)
            eventually(lambda: scraped(port, "product") == 0)
        finally:
            watch.terminate()
        said = watch.stderr.read()

    assert {0} == set(others.values())
    assert 1 == said.count("have Tesla-V100-SXM2-16GB, NVML reports Tesla-T4")
    assert 0 == watch.returncode


def scraped(port: str, fact: str) -> float | None:
    """Return whether labels of GPU Feature Discovery contradict NVML in a fact; None if unknown."""
    return sample(port, "gpugate_agent_contradictions", {"reason": "DiscoveryLabelsDiffer", "fact": fact})


def sample(port: str, name: str, labels: dict[str, str]) -> float | None:
    """Return a value of an agent's metrics, or None."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    of_family = [of_name for family in families for of_name in family.samples if of_name.name == name]
    return next((of_name.value for of_name in of_family if of_name.labels == labels), None)


def test_a_node_that_changed_meanwhile_is_a_conflict(
    installed: ControlPlane, node: str, agent: Agent
) -> None:
    """Server-side apply with a resourceVersion is conditional, though it is forced."""
    api = api_of(agent(node))
    seen = api.get(f"/api/v1/nodes/{node}")["metadata"]["resourceVersion"]
    installed.kubectl("label", "node", node, "cuda-major-version=11")
    metadata = {"name": node, "resourceVersion": seen, "labels": {"cuda-major-version": "12"}}

    with pytest.raises(Conflict):
        api.apply(
            f"/api/v1/nodes/{node}", {"apiVersion": "v1", "kind": "Node", "metadata": metadata}, MANAGER
        )


def _change(api: ClusterApi, node: str, operation: Object) -> str:
    """Patch a node and return the error."""
    try:
        api.patch(f"/api/v1/nodes/{node}", [operation])
    except KubernetesError as error:
        return str(error)
    return ""


@pytest.fixture
def refused(installed: ControlPlane, node: str, agent: Agent) -> ClusterApi:
    """Return a client of a node's agent, once the policy is in force, which takes some moments."""
    api = api_of(agent(node))
    add: Object = {"op": "add", "path": "/metadata/labels/other", "value": "x"}
    eventually(lambda: _change(api, node, add) != "")
    installed.kubectl("label", "node", node, "other-", check=False)
    return api


def test_the_agent_may_change_only_its_labels_on_its_node(refused: ClusterApi, node: str) -> None:
    """The same applies to any program with its token."""
    hostname = "/metadata/labels/kubernetes.io~1hostname"
    taint = {"key": "a", "effect": "NoExecute"}
    operations: list[Object] = [
        {"op": "add", "path": "/metadata/labels/zone", "value": "b"},
        {"op": "add", "path": "/metadata/labels/gpugate.dev~1agent", "value": "true"},
        {"op": "replace", "path": hostname, "value": "x"},
        {"op": "remove", "path": hostname},
        {"op": "add", "path": "/metadata/annotations", "value": {"other": "x"}},
        {"op": "add", "path": "/spec/unschedulable", "value": True},
        {"op": "add", "path": "/spec/taints", "value": [taint]},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]},
    ]
    said = [_change(refused, node, operation).rpartition("denied request: ")[2] for operation in operations]

    assert [
        *["the agent may change only its own labels"] * 4,
        "the agent may change only its own annotation",
        *["the agent may change only labels and annotations of a node"] * 3,
    ] == said


def test_the_agent_may_not_change_another_node(
    refused: ClusterApi, installed: ControlPlane, node: str, tmp_path: Path
) -> None:
    """A token that names no node may not change any."""
    own: Object = {"op": "add", "path": "/metadata/labels/gpugate.dev~1gpu.count", "value": "1"}
    other = f"{node}-other"
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": other, "labels": {"a": "b"}}}
    installed.kubectl("create", "-f", "-", input=json.dumps(document))
    loose = installed.kubectl("create", "token", NAMESPACE, "-n", NAMESPACE).stdout.strip()
    of_nobody = api_of(_kubeconfig(installed, loose, tmp_path / "loose"))
    said = [_change(refused, node, own), _change(refused, other, own), _change(of_nobody, node, own)]
    installed.kubectl("delete", "node", other, "--wait=false")

    assert "" == said[0]
    assert said[1].endswith(f"the agent of node '{node}' may not change node '{other}'")
    assert said[2].endswith(f"the agent of node '' may not change node '{node}'")


@pytest.mark.parametrize(
    "command",
    [
        "list nodes",
        "delete nodes",
        "update nodes/status",
        "get secrets",
        "get pods",
        "create pods",
        "list events",
    ],
)
def test_the_agent_may_do_nothing_else(installed: ControlPlane, command: str) -> None:
    """Its service account has only the rights that it needs."""
    user = f"--as=system:serviceaccount:{NAMESPACE}:{NAMESPACE}"
    verb, resource = command.split()

    assert "no" == installed.kubectl("auth", "can-i", verb, resource, user, "-A", check=False).stdout.strip()


def test_the_policy_names_the_labels_that_the_agent_sets() -> None:
    """All of them and no others."""
    (policy,) = of_kind(render(AGENT), "ValidatingAdmissionPolicy")
    variables = {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}
    profile = re.compile(json.loads(variables["profile"]))

    assert {key for key in LABELS if "*" not in key} == set(json.loads(variables["own"]))
    assert all(is_own(key) and profile.fullmatch(key) for key in ("gpugate.dev/mig-1g.5gb.me.count",))
    assert not profile.fullmatch("gpugate.dev/agent")


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_variant_renders_and_is_accepted(
    installed: ControlPlane, component: str, tmp_path: Path
) -> None:
    """The API server knows every field, and the profile of the namespace admits the pod."""
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [_relative(AGENT, tmp_path)],
        "components": [_relative(AGENT / "components" / component, tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    objects = render(tmp_path)
    dry = ("apply", "--validate=strict", "--dry-run=server", "-f", "-")
    taken = installed.kubectl(*dry, input=yaml.safe_dump_all(objects)).stdout.splitlines()
    (namespace,), (daemon_set,) = of_kind(objects, "Namespace"), of_kind(objects, "DaemonSet")
    pod: dict[str, Any] = daemon_set["spec"]["template"]["spec"]

    assert len(objects) == len(taken)
    (container,) = pod["containers"]
    profile = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert ("restricted" if component == "nri" else "privileged") == profile
    assert (component in {"mps", "mig", "toolkit"}) is ("runtimeClassName" in pod)
    assert (component in {"mig", "host-driver"}) is ("privileged" in container["securityContext"])


def _relative(path: Path, folder: Path) -> str:
    """Return a path relative to the overlay, as kustomize requires."""
    return str(Path(*[".."] * (len(folder.parts) - 1)) / path.relative_to("/"))
