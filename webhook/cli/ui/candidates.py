"""The nodes that the scheduler may choose for an object, by labels, taints and amounts of resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import islice
from math import ceil
from time import time
from typing import Any, Final

import jsonpatch

from rules import AdmissionRequest, Inventory, Policy, Snapshot, decide
from rules.kube.resource_quota import usage_of
from rules.nodes.label_families import LabelNames
from rules.nodes.node_selector import candidates
from webhook.cli.matrix.matrix import dotted, sort_key

_MAX_TEMPLATES: Final = 8  # pod templates of one object that are shown
_MAX_NAMES: Final = 20  # of nodes in one row
_REQUESTS: Final = "requests."


def candidate_nodes(
    snapshot: Snapshot, labels: LabelNames, request: AdmissionRequest
) -> list[dict[str, Any]]:
    """Return the nodes that each pod or pod template of an object may run on.

    Pods that are denied or request no devices are left out. Amounts are compared with what is allocatable,
    not with what is free.
    """
    results, inventory = [], snapshot.inventory
    for pod in islice(_pods(snapshot.policy, request), _MAX_TEMPLATES):
        decision = decide(snapshot, pod, time())
        if not decision.allowed:
            continue
        admitted = jsonpatch.apply_patch(
            deepcopy(dict(pod.object or {})), list(decision.patch), in_place=True
        )
        nodes = _candidates(inventory, admitted["spec"])
        if nodes is not None:
            results.append(_facts(inventory, labels, nodes))
    return results


def _pods(policy: Policy, request: AdmissionRequest) -> Iterator[AdmissionRequest]:
    """Yield the request for each pod that is created from an object."""
    if request.kind == "Pod" and not request.group:
        yield request
        return
    templates = policy.workloads.templates_of(request.group, request.kind, request.object or {})
    for raw in templates.values():
        spec = raw.get("spec", raw)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": raw.get("metadata") or {}, "spec": spec}
        yield AdmissionRequest("CREATE", "", "Pod", request.namespace, pod)


def _candidates(inventory: Inventory, spec: Mapping[str, Any]) -> int | None:
    """Return the nodes for a pod's spec as a bit set; None if it requests no devices."""
    amounts = {
        name.removeprefix(_REQUESTS): amount
        for name, amount in usage_of(spec).amounts.items()
        if name.startswith(_REQUESTS) and "/" in name
    }
    if not amounts or not len(inventory):
        return None
    nodes = candidates(inventory, spec)
    if not spec.get("nodeName"):
        nodes &= inventory.tolerated(spec.get("tolerations"))
    offered = {name: amount for name, amount in amounts.items() if inventory.nodes_offering(name)}
    # As in a decision: a resource that no node offers may belong to a scheduler, unless there is no other.
    for name, amount in (offered or amounts).items():
        nodes &= inventory.nodes_offering(name, ceil(amount))
    return nodes


def _facts(inventory: Inventory, labels: LabelNames, nodes: int) -> dict[str, Any]:
    classes = inventory.classes(nodes, labels) if nodes else ()
    rows = []
    for node_class in sorted(classes, key=lambda node_class: sort_key(node_class.capabilities)):
        capabilities = node_class.capabilities
        rows.append(
            {
                "count": node_class.members.bit_count(),
                "product": capabilities.product,
                "driver": capabilities.driver,
                "cuda": dotted(capabilities.cuda),
                "compute": dotted(capabilities.gpu_capability),
                "names": sorted(inventory.names(node_class.members))[:_MAX_NAMES],
            }
        )
    return {"count": nodes.bit_count(), "of": len(inventory), "classes": rows}
