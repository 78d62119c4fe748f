"""The inputs of CEL expressions from a container and its pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.cel.expression import Expression, Packed
from rules.cel.variables import CONDITION_VARIABLES, INPUTS
from rules.decision.injection_stage import ContainerInputs
from rules.kube.pod import Pod
from tests.support.builders import container, pod


def test_an_input_is_read_once_for_all_expressions_of_a_container() -> None:
    """Several validations read the variables of the same container."""
    document = pod(container({"a.com/x": "1"}, env=[{"name": "A", "value": "1"}]))
    read = Pod(document, document)
    inputs = ContainerInputs(read.containers[0], read, "team-a")

    read_once = []
    for source in ("'A' in container.env", "'B' in container.env"):
        Expression(source, CONDITION_VARIABLES).evaluate(inputs)
        read_once.append(inputs["container.env"])

    assert {"A": "1"} == dict(read_once[0].items())
    assert read_once[0] is read_once[1]


def test_a_quantity_is_given_as_written() -> None:
    """So that equal quantities share a cached result only if they are written alike."""
    document = pod(container({"a.com/x": "1"}))
    read = Pod(document, document)
    inputs, values = ContainerInputs(read.containers[0], read, "team-a"), []
    for quantity in ("1k", 3):
        inputs.set_value(quantity)
        values.append(inputs["value"])

    assert ["1k", 3] == values


def test_a_field_that_a_pod_does_not_set_has_a_value_of_its_type() -> None:
    """So that an expression of declared fields can be evaluated for every pod."""
    document = pod(container({}))
    read = Pod(document, document)
    read.namespace_labels = {}
    inputs = ContainerInputs(read.containers[0], read, "team-a")
    security = {"runAsUser": -1, "runAsGroup": -1, "runAsNonRoot": False}

    assert {
        "container.command": [],
        "container.args": [],
        "container.envNames": [],
        "container.cpu": 0,
        "container.memory": 0,
        "container.gpus": 0,
        "container.memoryMounts": [],
        "container.securityContext": security
        | {
            "privileged": False,
            "allowPrivilegeEscalation": True,
            "readOnlyRootFilesystem": False,
            "capabilities": {"add": [], "drop": []},
        },
        "pod.nodeName": "",
        "pod.nodeSelector": {},
        "pod.requiredNodeLabels": [],
        "pod.tolerations": [],
        "pod.priorityClassName": "",
        "pod.serviceAccountName": "default",
        "pod.schedulerName": "default-scheduler",
        "pod.runtimeClassName": "",
        "pod.hostNetwork": False,
        "pod.hostIPC": False,
        "pod.restartPolicy": "Always",
        "pod.activeDeadlineSeconds": 0,
        "pod.gpus": 0,
        "pod.securityContext": security | {"fsGroup": -1},
    } == {name: _plain(inputs[name]) for name in NEW_POD}
    for expression in (f"{name} == {name}" for name in INPUTS if name not in ("value", "pod.tolerations")):
        assert Expression(expression, CONDITION_VARIABLES).evaluate(inputs)


NEW_POD = (
    *("container.command", "container.args", "container.envNames", "container.cpu", "container.memory"),
    *("container.gpus", "container.memoryMounts", "container.securityContext", "pod.nodeName"),
    *("pod.nodeSelector", "pod.requiredNodeLabels", "pod.tolerations", "pod.gpus", "pod.restartPolicy"),
    *("pod.priorityClassName", "pod.serviceAccountName", "pod.schedulerName", "pod.runtimeClassName"),
    *("pod.hostNetwork", "pod.hostIPC", "pod.activeDeadlineSeconds", "pod.securityContext"),
)


@pytest.mark.parametrize(
    "expression",
    [
        "container.args.exists(a, a == '--tp') && container.command[0] == 'python'",
        "'A' in container.envNames && 'B' in container.envNames && !('B' in container.env)",
        "container.cpu == 1500 && container.memory == 1073741824",
        "container.securityContext.runAsUser == 7 && container.securityContext.runAsGroup == 8",
        "container.securityContext.capabilities.add == ['IPC_LOCK'] && !container.securityContext.privileged",
        "pod.tolerations.exists(t, t.key == 'gpu' && t.operator == 'Exists' && t.tolerationSeconds == -1)",
        "pod.nodeSelector['pool'] == 'a' && pod.priorityClassName == 'high' && pod.runtimeClassName == 'n'",
        "pod.serviceAccountName == 'sa' && pod.hostNetwork && pod.activeDeadlineSeconds == 60",
        "pod.securityContext.fsGroup == 0 && pod.securityContext.runAsUser == 6",
    ],
)
def test_an_expression_is_given_what_the_pod_sets(expression: str) -> None:
    """Users and groups of the pod apply to a container without its own."""
    main = container(
        {"cpu": "2", "memory": "1Gi"},
        env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec"}}}],
    )
    main["resources"]["requests"] = {"cpu": "1500m"}
    main |= {"command": ["python"], "args": ["--tp", "2"]}
    main["securityContext"] = {"runAsUser": 7, "capabilities": {"add": ["IPC_LOCK"]}}
    document = pod(main)
    document["spec"] |= {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": "a"},
        "priorityClassName": "high",
        "runtimeClassName": "n",
        "serviceAccountName": "sa",
        "hostNetwork": True,
        "activeDeadlineSeconds": 60,
        "securityContext": {"fsGroup": 0, "runAsUser": 6, "runAsGroup": 8},
    }
    read = Pod(document, document)
    inputs = ContainerInputs(read.containers[0], read, "team-a")

    assert Expression(expression, CONDITION_VARIABLES).evaluate(inputs)


def _plain(value: Any) -> Any:
    """Return an input; a list that containers share is packed."""
    return json.loads(value) if isinstance(value, Packed) else value


def _inputs(document: dict[str, Any], at: int = 0) -> ContainerInputs:
    read = Pod(document, document)
    return ContainerInputs(read.containers[at], read, "team-a")


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"nvidia.com/gpu": "4"}, 4),
        ({"nvidia.com/gpu": 0}, 0),
        ({"tencent.com/vcuda-core": "300", "tencent.com/vcuda-memory": "8"}, 3),  # hundredths
        ({"tencent.com/vcuda-core": "20"}, 1),
        ({"aliyun.com/gpu-mem": "16"}, 1),  # no number of devices
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "8000"}, 2),
        ({"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-2g.20gb": "3"}, 3),
        ({"rdma/hca": "8"}, 0),
        ({"nvidia.com/gpu": "many"}, 0),  # the resource's own rule reports it
    ],
)
def test_the_gpus_of_a_container_are_counted_as_devices(limits: dict[str, str], count: int) -> None:
    """A share counts as one; of several resources, the largest number counts."""
    assert count == _inputs(pod(container(limits)))["container.gpus"]


def test_the_gpus_of_a_pod_are_those_that_it_needs_at_one_time() -> None:
    """As for the scheduler: an init container runs with the sidecars before it, and before the others."""
    document = pod(container({"nvidia.com/gpu": "2"}), container({"nvidia.com/gpu": "1"}))
    document["spec"]["initContainers"] = [
        container({"nvidia.com/gpu": "1"}) | {"restartPolicy": "Always"},
        container({"nvidia.com/gpu": "3"}),
    ]

    assert 4 == _inputs(document)["pod.gpus"]

    document["spec"]["initContainers"].append(container({"nvidia.com/gpu": "7"}))

    assert 8 == _inputs(document)["pod.gpus"]


def test_mounts_in_memory_are_those_of_volumes_with_that_medium() -> None:
    """Their paths have no slash at the end."""
    main = container({"nvidia.com/gpu": "1"})
    main["volumeMounts"] = [
        {"name": "shm", "mountPath": "/dev/shm/"},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "absent", "mountPath": "/absent"},
        {"name": 5, "mountPath": "/five"},
        {"name": "shm"},
        "shm",
    ]
    document = pod(main)
    document["spec"]["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": 5, "emptyDir": {"medium": "Memory"}},
        "shm",
    ]

    assert ["/dev/shm"] == _inputs(document)["container.memoryMounts"]


@pytest.mark.parametrize(
    ("terms", "labels"),
    [
        ([[("a", "In", ["1"]), ("b", "Exists", [])]], ["a", "b", "pool"]),
        ([[("a", "In", ["1"]), ("b", "Exists", [])], [("b", "Gt", ["1"])]], ["b", "pool"]),
        ([[("a", "NotIn", ["1"])], [("b", "Exists", [])]], ["pool"]),
        ([[("a", "DoesNotExist", [])]], ["pool"]),
        ([[("a", "Exists", ["1"])], [("b", "Exists", [])]], ["b", "pool"]),  # the first term matches no node
        ([], ["pool"]),
    ],
)
def test_labels_of_the_node_are_those_that_every_term_requires(
    terms: list[list[tuple[str, str, list[str]]]], labels: list[str]
) -> None:
    """And those of the nodeSelector: a node matches one term and the whole selector."""
    document = pod(container({"nvidia.com/gpu": "1"}))
    required = [
        {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in term]}
        for term in terms
    ]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required}}
    document["spec"] |= {"nodeSelector": {"pool": "a"}, "affinity": {"nodeAffinity": affinity}}

    assert labels == _plain(_inputs(document)["pod.requiredNodeLabels"])


def test_what_is_read_of_a_pod_is_read_once_until_its_next_edit() -> None:
    """Of each container, the same tolerations would be read again."""
    document = pod(container({"a.com/x": "1"}), container({"a.com/x": "1"}))
    document["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    read = Pod(document, document)
    first, second = (
        ContainerInputs(container_document, read, "team-a") for container_document in read.containers
    )

    assert first["pod.tolerations"] is second["pod.tolerations"]

    read.append("spec", "tolerations", entry={"operator": "Exists"})

    assert 2 == len(_plain(ContainerInputs(read.containers[0], read, "team-a")["pod.tolerations"]))
