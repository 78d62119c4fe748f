"""The guardrails on a real API server, each switched on alone: docs/guardrails.md."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from rules import load_rules
from tests.e2e.installed import TEAM
from tests.e2e.manifests import MANIFESTS, ROOT, Object, of_kind, render
from tests.e2e.serve_process import eventually
from webhook.cli.export.policies import export

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import ControlPlane
    from tests.e2e.installed import Installed

PREFIX: Final = "cf-crl-guardrail-"
SETS: Final = ("baseline", "namespaces", "placement", "training")
ENABLED: Final = "features.cpaas.io/enabled"
SET: Final = "gpugate.dev/guardrails"
# A pod that satisfies all of them.
MAIN: Final[Object] = {
    "name": "main",
    "image": "example.com/train:1",
    "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
    "resources": {
        "limits": {"nvidia.com/gpu": "2", "memory": "8Gi", "cpu": "4"},
        "requests": {"nvidia.com/gpu": "2", "memory": "8Gi", "cpu": "4"},
    },
    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
}
SPEC: Final[Object] = {
    "restartPolicy": "Never",
    "activeDeadlineSeconds": 3600,
    "runtimeClassName": "nvidia",
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    "containers": [MAIN],
}
RUNTIME_CLASS: Final = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


def pod(**changes: Any) -> str:
    """Return the pod as JSON, with changed fields of the spec; main: of the container; None: without it."""
    spec = deepcopy(SPEC)
    main = spec["containers"][0] | changes.pop("main", {})
    spec |= changes | {"containers": [{key: value for key, value in main.items() if value is not None}]}
    spec = {key: value for key, value in spec.items() if value is not None}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec})


def resources(**requests: str) -> Object:
    """Return the container with eight GiB of memory and two GPUs, and other requests."""
    limits = {"nvidia.com/gpu": "2", "memory": "8Gi"}
    return {"resources": {"limits": limits, "requests": limits | requests}}


NINE: Final = {"nvidia.com/gpu": "9", "memory": "8Gi", "cpu": "4"}
# By policy: the rule, a pod that lacks what it demands, and the message.
GATEKEEPER: Final = {
    "K8sNoUnsupportedGpu": ("gpu-image", pod(main={"env": None}), "NVIDIA_DRIVER_CAPABILITIES in env"),
    "K8sGpuResourceLimits": (
        "container-gpus",
        pod(main={"resources": {"limits": NINE}}),
        "found nvidia.com/gpu: 9, expected at most 8 GPUs in a container",
    ),
    "K8sRequiredGpuToleration": (
        "toleration",
        pod(tolerations=None),
        "a toleration of the taint nvidia.com/gpu",
    ),
    "K8sGpuActiveDeadline": ("active-deadline", pod(activeDeadlineSeconds=None), "activeDeadlineSeconds"),
    "K8sGpuSharedMemory": (
        "shared-memory",
        pod(volumes=[{"name": "shm", "emptyDir": {}}]),
        "a volume in memory mounted at /dev/shm",
    ),
    "K8sRequiredGpuRuntimeClass": ("runtime-class", pod(runtimeClassName=None), "runtimeClassName nvidia"),
    "K8sGpuNodeTargeting": ("node-labels", pod(nodeSelector=None), "a label nvidia.com/gpu.*"),
    "K8sGpuWorkloadResources": (
        "workload-resources",
        pod(main=resources(memory="4Gi", cpu="4")),
        "a limit of memory, and a request equal to it",
    ),
}
AICR: Final = {
    "requests and limits of memory match": GATEKEEPER["K8sGpuWorkloadResources"],
    "requests of CPU": ("workload-resources", pod(main=resources()), "a request of CPU"),
    "memory-backed shared memory": GATEKEEPER["K8sGpuSharedMemory"],
    "at most so many GPUs in a container": GATEKEEPER["K8sGpuResourceLimits"],
}
CASES: Final = [pytest.param(*case, id=name) for name, case in (GATEKEEPER | AICR).items()]


@pytest.fixture(scope="module")
def guarded(installed: Installed) -> Installed:
    """Return an installation with a runtime class and a labelled node."""
    installed.cluster.kubectl("create", "-f", "-", input=json.dumps(RUNTIME_CLASS))
    installed.cluster.kubectl("label", "node", "fits", "nvidia.com/gpu.present=true")
    return installed


@pytest.fixture
def switched_on(guarded: Installed, rule: str) -> Iterator[Installed]:
    """Switch a rule on for a test."""
    label = ("label", "-n", "kube-public", "--overwrite", "configmap", PREFIX + rule)
    guarded.cluster.kubectl(*label, f"{ENABLED}=true")
    yield guarded
    guarded.cluster.kubectl(*label, f"{ENABLED}=false")


@pytest.mark.parametrize(("rule", "lacking", "message"), CASES)
def test_mission_7_each_policy_is_one_rule(
    switched_on: Installed, rule: str, lacking: str, message: str
) -> None:
    """A pod that lacks what it demands is created before; then it is denied, and one that has it is not."""
    eventually(lambda: f"[rule {PREFIX}{rule}]" in switched_on.refusal(lacking))

    assert message in switched_on.refusal(lacking)
    assert "" == switched_on.refusal(pod())


@pytest.mark.parametrize("rule", ["namespace-label"])
def test_mission_6_a_label_of_the_namespace_allows_gpus(switched_on: Installed) -> None:
    """As the policy gpuResourceRestriction of Deckhouse; a change of the label is in force at once."""
    eventually(lambda: "the label gpugate.dev/gpus=allowed on the namespace" in switched_on.refusal(pod()))
    label = ("label", "namespace", TEAM)
    switched_on.cluster.kubectl(*label, "gpugate.dev/gpus=allowed")
    eventually(lambda: not switched_on.refusal(pod()))
    switched_on.cluster.kubectl(*label, "gpugate.dev/gpus-")

    eventually(lambda: "[rule cf-crl-guardrail-namespace-label]" in switched_on.refusal(pod()))


def test_mission_7_a_request_of_gpus_equals_the_limit_without_a_guardrail(guarded: Installed) -> None:
    """By the rule of the resource, which is on."""
    differs = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}

    assert "a request equal to the limit" in guarded.refusal(pod(main={"resources": differs}))


@pytest.mark.needs_kubernetes("1.36")  # as docs/export.md says
def test_exported_as_policies_they_deny_the_same_pods(empty_control_plane: ControlPlane) -> None:
    """Without gpugate, except what policies cannot read: variables, CPU and the GPUs of the pod."""
    paths = sorted((ROOT / "rules/catalog/guardrails").glob("[!gk]*.yaml"))
    texts = [path.read_text("utf-8").replace('enabled: "false"', 'enabled: "true"') for path in paths]
    exported = export(load_rules(zip(map(str, paths), texts, strict=True)).rules.resources)
    kubectl = empty_control_plane.kubectl
    kubectl("apply", "-f", "-", input=yaml.safe_dump_all([*exported.objects, RUNTIME_CLASS]))
    kubectl("create", "namespace", TEAM)

    def refusal(document: str) -> str:
        create = ("create", "-n", TEAM, "--dry-run=server", "-f", "-")
        return kubectl(*create, input=document, check=False).stderr

    eventually(lambda: "[cf-crl-guardrail-namespace-label]" in refusal(pod()))
    kubectl("label", "namespace", TEAM, "gpugate.dev/gpus=allowed")
    eventually(lambda: not refusal(pod()))

    def denies(policy: str) -> bool:
        rule, lacking, _ = GATEKEEPER[policy]
        return f"[{PREFIX}{rule}]" in refusal(lacking)

    # The API server takes policies up one by one, a second or so later.
    for policy in GATEKEEPER.keys() - {"K8sNoUnsupportedGpu"}:
        eventually(partial(denies, policy))
    assert not denies("K8sNoUnsupportedGpu")


def test_what_lacks_everything_is_created_as_long_as_all_are_off(guarded: Installed) -> None:
    """They are off as installed."""
    resources = {"limits": {"nvidia.com/gpu": "2"}}
    main = MAIN | {"env": [], "volumeMounts": [], "resources": resources}
    bare = {"restartPolicy": "Never", "containers": [main]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": bare}

    eventually(lambda: not guarded.refusal(json.dumps(document)))


@pytest.mark.parametrize("name", SETS)
def test_a_component_switches_a_set_on(tmp_path: Path, name: str) -> None:
    """And nothing else."""
    at = {
        kind: [os.path.relpath(MANIFESTS / path, tmp_path)]
        for kind, path in (("resources", "base"), ("components", f"components/guardrails/{name}"))
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(at))
    before = {
        document["metadata"]["name"]: document
        for document in of_kind(render(MANIFESTS / "base"), "ConfigMap")
    }
    after = {document["metadata"]["name"]: document for document in of_kind(render(tmp_path), "ConfigMap")}
    changed = {
        key: document["metadata"]["labels"] for key, document in after.items() if document != before[key]
    }

    assert {
        key for key, document in after.items() if document["metadata"]["labels"].get(SET) == name
    } == changed.keys()
    assert {"true"} == {labels[ENABLED] for labels in changed.values()}
