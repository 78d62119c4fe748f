"""Inputs of CEL expressions from several fields of a pod: GPUs, mounts in memory, labels of its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rules.kube.node_selector_term import EXPRESSIONS, parse_term, required_terms
from rules.kube.pod import Container, ContainerKind, Pod
from rules.model.rule import directory
from rules.nodes.gpu_resources import gpu_count

# A node without the label does not match these operators.
_REQUIRING: Final = frozenset({"In", "Exists", "Gt", "Lt"})
_MEMORY: Final = "Memory"  # the medium of an emptyDir whose files are in memory


def pod_gpus(pod: Pod) -> int:
    """Return the GPUs that a pod takes: those of its containers, or more if an init container needs more.

    Sidecars run with both. Source: https://kubernetes.io/docs/concepts/workloads/pods/init-containers/
    """
    total = sidecars = largest = 0
    for container in pod.containers:
        gpus = gpu_count(container)
        match container.kind:
            case ContainerKind.INIT:
                largest = max(largest, gpus + sidecars)
            case ContainerKind.SIDECAR:
                sidecars += gpus
            case _:
                total += gpus
    return max(total + sidecars, largest)


def memory_mounts(container: Container, pod: Pod) -> list[str]:
    """Return the paths at which a container mounts a volume in memory, `emptyDir: {medium: Memory}`."""
    mounts = container.volume_mounts
    volumes = pod.once("memoryVolumes", _memory_volumes) if mounts else frozenset()
    return [
        directory(mount["mountPath"])
        for mount in mounts
        if isinstance(mount, dict)
        and isinstance(mount.get("mountPath"), str)
        and isinstance(name := mount.get("name"), str)
        and name in volumes
    ]


def _memory_volumes(pod: Pod) -> frozenset[str]:
    return frozenset(
        name
        for volume in pod.entries("spec", "volumes")
        if isinstance(volume, dict)
        and isinstance(name := volume.get("name"), str)
        and isinstance(directory := volume.get("emptyDir"), dict)
        and directory.get("medium") == _MEMORY
    )


def required_node_labels(pod: Pod) -> list[str]:
    """Return the labels that every node of a pod has, by its nodeSelector and required node affinity.

    A label that only some of the terms name is none of them: a node matches one term.
    """
    spec = pod.spec
    selector = spec.get("nodeSelector")
    labels = {key for key in selector if isinstance(key, str)} if isinstance(selector, dict) else set()
    terms = [set(keys) for keys in _keys_of_terms(spec)]
    return sorted(labels.union(set.intersection(*terms) if terms else ()))


def _keys_of_terms(spec: Mapping[str, Any]) -> Iterator[Iterator[str]]:
    """Yield the labels that each term requires; a term that matches no node is left out."""
    terms = required_terms(spec)
    for raw in terms if isinstance(terms, list) else ():
        if term := parse_term(raw):
            yield (
                expression.key
                for expression in term
                if expression.section == EXPRESSIONS and expression.operator in _REQUIRING
            )
