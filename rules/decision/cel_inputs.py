"""The inputs of CEL expressions from a container and its pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rules.cel.expression import number
from rules.kube.container_env import Literals
from rules.kube.pod import Container, Pod

# What the API server sets if a pod names no scheduler.
DEFAULT_SCHEDULER: Final = "default-scheduler"


def _chosen_node(pod: Pod) -> str:
    """Return the node that a new pod names itself; empty for one that a scheduler has bound.

    The status of a pod that has been on its way to a node has conditions; that of a new one has none.
    """
    node, conditions = pod.get("spec", "nodeName"), pod.get("status", "conditions")
    return node if isinstance(node, str) and not conditions else ""


def _scheduler(pod: Pod) -> str:
    """Return the name of the pod's scheduler as the API server will have it."""
    name = pod.get("spec", "schedulerName")
    return name if isinstance(name, str) and name else DEFAULT_SCHEDULER


# How each input is read from a container, its pod and its namespace.
_READ: Final[Mapping[str, Callable[[Container, Pod, str], Any]]] = {
    "limits": lambda container, _pod, _namespace: container.limits,
    # as the API server will have them
    "requests": lambda container, _pod, _namespace: {**container.limits, **container.requests},
    "container.name": lambda container, _pod, _namespace: container.name,
    "container.image": lambda container, _pod, _namespace: container.image,
    "container.env": lambda container, _pod, _namespace: Literals(container.env, container.variables),
    "pod.labels": lambda _container, pod, _namespace: pod.labels,
    "pod.annotations": lambda _container, pod, _namespace: pod.annotations,
    "pod.namespace": lambda _container, _pod, namespace: namespace,
    "pod.hostIPC": lambda _container, pod, _namespace: pod.get("spec", "hostIPC") is True,
    "pod.nodeName": lambda _container, pod, _namespace: _chosen_node(pod),
    "pod.schedulerName": lambda _container, pod, _namespace: _scheduler(pod),
}


def condition_inputs(container: Container, pod: Pod, namespace: str) -> Callable[[str], Any]:
    """Return the inputs of a condition of a match, by name; see `Expression`.

    Each is read once, so the pod must not be edited in between.
    """
    known: dict[str, Any] = {}

    def value_of(name: str) -> Any:
        if name not in known:
            known[name] = _READ[name](container, pod, namespace)
        return known[name]

    return value_of


def validation_inputs(others: Callable[[str], Any], quantity: object) -> Callable[[str], Any]:
    """Return the inputs of a validation of a quantity, by name. others: those of a condition."""

    def value_of(name: str) -> Any:
        if name == "value":
            return quantity if isinstance(quantity, str) else number(quantity)
        return others(name)

    return value_of
