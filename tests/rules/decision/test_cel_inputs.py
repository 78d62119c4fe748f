"""The inputs of CEL expressions from a container and its pod."""

from __future__ import annotations

import pytest

from rules.cel.expression import Expression
from rules.cel.variables import CONDITION_VARIABLES, INPUTS
from rules.decision.injection_stage import ContainerInputs
from rules.kube.pod import Pod
from tests.support.builders import container, pod


def test_an_input_is_read_once_for_all_expressions_of_a_container() -> None:
    """Several validations read the variables of the same container."""
    document = pod(container({"a.com/x": "1"}, env=[{"name": "A", "value": "1"}]))
    read = Pod(document, document)
    inputs = ContainerInputs(read.containers[0], read, "team-a")

    assert {"A": "1"} == dict(inputs["container.env"].items())
    assert inputs["container.env"] is inputs["container.env"]


def test_a_quantity_is_given_as_written() -> None:
    """So that equal quantities share a cached result only if they are written alike."""
    document = pod(container({"a.com/x": "1"}))
    read = Pod(document, document)
    inputs, found = ContainerInputs(read.containers[0], read, "team-a"), []
    for quantity in ("1k", 3):
        inputs.set_value(quantity)
        found.append(inputs["value"])

    assert ["1k", 3] == found


def test_a_field_that_a_pod_does_not_set_has_a_value_of_its_type() -> None:
    """So that an expression of declared fields can be evaluated for every pod."""
    document = pod(container({}))
    read = Pod(document, document)
    inputs = ContainerInputs(read.containers[0], read, "team-a")
    security = {"runAsUser": -1, "runAsGroup": -1, "runAsNonRoot": False}

    assert {
        "container.command": [],
        "container.args": [],
        "container.envNames": [],
        "container.cpu": 0,
        "container.memory": 0,
        "container.securityContext": security
        | {
            "privileged": False,
            "allowPrivilegeEscalation": True,
            "readOnlyRootFilesystem": False,
            "capabilities": {"add": [], "drop": []},
        },
        "pod.nodeName": "",
        "pod.nodeSelector": {},
        "pod.tolerations": [],
        "pod.priorityClassName": "",
        "pod.serviceAccountName": "default",
        "pod.schedulerName": "default-scheduler",
        "pod.runtimeClassName": "",
        "pod.hostNetwork": False,
        "pod.hostIPC": False,
        "pod.activeDeadlineSeconds": 0,
        "pod.securityContext": security | {"fsGroup": -1},
    } == {name: inputs[name] for name in NEW_POD}
    for expression in (f"{name} == {name}" for name in INPUTS if name not in ("value", "pod.tolerations")):
        assert Expression(expression, CONDITION_VARIABLES)(inputs)


NEW_POD = (
    *("container.command", "container.args", "container.envNames", "container.cpu", "container.memory"),
    *("container.securityContext", "pod.nodeName", "pod.nodeSelector", "pod.tolerations"),
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

    assert Expression(expression, CONDITION_VARIABLES)(inputs)
