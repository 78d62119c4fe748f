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
    "container.env": lambda container, _pod, _namespace: Literals(container.variables),
    "pod.labels": lambda _container, pod, _namespace: pod.labels,
    "pod.annotations": lambda _container, pod, _namespace: pod.annotations,
    "pod.namespace": lambda _container, _pod, namespace: namespace,
    "pod.hostIPC": lambda _container, pod, _namespace: pod.get("spec", "hostIPC") is True,
    "pod.nodeName": lambda _container, pod, _namespace: _chosen_node(pod),
    "pod.schedulerName": lambda _container, pod, _namespace: _scheduler(pod),
}


class ContainerInputs(dict[str, Any]):
    """The inputs of expressions about a container, by name; see `Expression`. Look them up by `[]`.

    Each is read once, so the pod must not be edited in between. `value`, which only validations name, is that
    of the last `set_value`.
    """

    __slots__ = ("container", "namespace", "pod")

    def __init__(self, container: Container, pod: Pod, namespace: str) -> None:
        super().__init__()
        self.container = container
        self.pod = pod
        self.namespace = namespace

    def __missing__(self, name: str) -> Any:
        found = self[name] = _READ[name](self.container, self.pod, self.namespace)
        return found

    def set_value(self, quantity: object) -> None:
        """Set the quantity that is validated. Equal ones that are not written alike stay different."""
        self["value"] = quantity if isinstance(quantity, str) else number(quantity)
