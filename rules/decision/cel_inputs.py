"""The inputs of CEL expressions from a container and its pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final

from rules.cel.expression import number
from rules.cel.variables import UNSET
from rules.kube.container_env import Literals
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity

# What the API server sets if a pod names no scheduler.
DEFAULT_SCHEDULER: Final = "default-scheduler"
# What the ServiceAccount admission plugin sets if a pod names no service account.
DEFAULT_SERVICE_ACCOUNT: Final = "default"
_MILLICORES: Final = 1000


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


def _text(pod: Pod, field: str) -> str:
    value = pod.get("spec", field)
    return value if isinstance(value, str) else ""


def _texts(pod: Pod, field: str) -> dict[str, str]:
    value = pod.get("spec", field)
    texts = value.items() if isinstance(value, dict) else ()
    return {key: text for key, text in texts if isinstance(text, str)}


def _tolerations(pod: Pod) -> list[dict[str, Any]]:
    """Return the pod's tolerations in full, with what the API server takes for an absent field."""
    return [
        {
            **{name: _of(entry, name, str, "") for name in ("key", "value", "effect")},
            "operator": _of(entry, "operator", str, "Equal") or "Equal",
            "tolerationSeconds": _of(entry, "tolerationSeconds", int, UNSET),
        }
        for entry in pod.entries("spec", "tolerations")
        if isinstance(entry, dict)
    ]


def _of(values: object, name: str, kind: type, default: Any) -> Any:
    """Return a member of a type; the default if there is none, as of what the API server refuses."""
    value = values.get(name) if isinstance(values, dict) else None
    return value if type(value) is kind else default


def _pod_security(pod: Pod) -> dict[str, Any]:
    context = pod.get("spec", "securityContext")
    ids = {name: _of(context, name, int, UNSET) for name in ("runAsUser", "runAsGroup", "fsGroup")}
    return {**ids, "runAsNonRoot": _of(context, "runAsNonRoot", bool, False)}


def _container_security(container: Container, pod: Pod) -> dict[str, Any]:
    """Return the security context in effect: users and groups of the pod unless the container has its own.

    Source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
    """
    own, of_pod = container.raw.get("securityContext"), _pod_security(pod)
    capabilities = own.get("capabilities") if isinstance(own, dict) else None
    return {
        **{name: _of(own, name, int, of_pod[name]) for name in ("runAsUser", "runAsGroup")},
        "runAsNonRoot": _of(own, "runAsNonRoot", bool, of_pod["runAsNonRoot"]),
        "privileged": _of(own, "privileged", bool, False),
        "allowPrivilegeEscalation": _of(own, "allowPrivilegeEscalation", bool, True),
        "readOnlyRootFilesystem": _of(own, "readOnlyRootFilesystem", bool, False),
        "capabilities": {
            name: [each for each in _of(capabilities, name, list, []) if isinstance(each, str)]
            for name in ("add", "drop")
        },
    }


def _requested(container: Container, key: str, unit: int) -> int:
    """Return what a container requests, by default its limit, rounded up. unit: the parts of one."""
    try:
        return ceil(parse_quantity(container.request(key)) * unit)
    except QuantityError:  # absent
        return 0


# How each input of `rules.cel.variables` is read from a container, its pod and its namespace.
READ: Final[Mapping[str, Callable[[Container, Pod, str], Any]]] = {
    "limits": lambda container, _pod, _namespace: container.limits,
    # as the API server will have them
    "requests": lambda container, _pod, _namespace: {**container.limits, **container.requests},
    "container.name": lambda container, _pod, _namespace: container.name,
    "container.image": lambda container, _pod, _namespace: container.image,
    "container.command": lambda container, _pod, _namespace: container.strings("command"),
    "container.args": lambda container, _pod, _namespace: container.strings("args"),
    "container.env": lambda container, _pod, _namespace: Literals(container.variables),
    "container.envNames": lambda container, _pod, _namespace: list(container.variables),
    "container.cpu": lambda container, _pod, _namespace: _requested(container, "cpu", _MILLICORES),
    "container.memory": lambda container, _pod, _namespace: _requested(container, "memory", 1),
    "container.securityContext": lambda container, pod, _namespace: _container_security(container, pod),
    "pod.labels": lambda _container, pod, _namespace: pod.labels,
    "pod.annotations": lambda _container, pod, _namespace: pod.annotations,
    "pod.namespace": lambda _container, _pod, namespace: namespace,
    "pod.nodeName": lambda _container, pod, _namespace: _chosen_node(pod),
    "pod.nodeSelector": lambda _container, pod, _namespace: _texts(pod, "nodeSelector"),
    "pod.tolerations": lambda _container, pod, _namespace: _tolerations(pod),
    "pod.priorityClassName": lambda _container, pod, _namespace: _text(pod, "priorityClassName"),
    "pod.serviceAccountName": lambda _container, pod, _namespace: (
        _text(pod, "serviceAccountName") or DEFAULT_SERVICE_ACCOUNT
    ),
    "pod.schedulerName": lambda _container, pod, _namespace: _scheduler(pod),
    "pod.runtimeClassName": lambda _container, pod, _namespace: _text(pod, "runtimeClassName"),
    "pod.hostNetwork": lambda _container, pod, _namespace: pod.get("spec", "hostNetwork") is True,
    "pod.hostIPC": lambda _container, pod, _namespace: pod.get("spec", "hostIPC") is True,
    "pod.activeDeadlineSeconds": lambda _container, pod, _namespace: _of(
        pod.spec, "activeDeadlineSeconds", int, 0
    ),
    "pod.securityContext": lambda _container, pod, _namespace: _pod_security(pod),
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
        found = self[name] = READ[name](self.container, self.pod, self.namespace)
        return found

    def set_value(self, quantity: object) -> None:
        """Set the quantity that is validated. Equal ones that are not written alike stay different."""
        self["value"] = quantity if isinstance(quantity, str) else number(quantity)
