"""The inputs of CEL expressions from a container and its pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rules.cel.expression import number
from rules.kube.pod import Container, Pod


def validation_inputs(container: Container, quantity: object) -> Callable[[str], Any]:
    """Return the inputs of a validation of a quantity, by name; see `Expression`."""

    def value_of(name: str) -> Any:
        if name == "value":
            return quantity if isinstance(quantity, str) else number(quantity)
        return _of_container(container, name)

    return value_of


def condition_inputs(container: Container, pod: Pod, namespace: str) -> Callable[[str], Any]:
    """Return the inputs of a condition of a match, by name; see `Expression`."""

    def value_of(name: str) -> Any:
        match name:
            case "pod.labels":
                return pod.labels
            case "pod.annotations":
                return pod.annotations
            case "pod.namespace":
                return namespace
            case "pod.hostIPC":
                return pod.get("spec", "hostIPC") is True
        return _of_container(container, name)

    return value_of


def _of_container(container: Container, name: str) -> Any:
    match name:
        case "limits":
            return container.limits
        case "requests":  # as the API server will have them
            return {**container.limits, **container.requests}
        case "container.name":
            return container.name
    return container.image
