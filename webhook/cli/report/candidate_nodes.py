"""The nodes that the scheduler may choose for the pods of an object, by labels, taints and amounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from difflib import unified_diff
from itertools import islice
from math import ceil
from typing import Any, Final

from rules import AdmissionRequest, Decision, Inventory, Snapshot
from rules.kube.resource_quota import Amount, usage_of
from rules.nodes.fleet import classes_of
from rules.nodes.label_families import LabelNames
from rules.nodes.node_selector import candidates
from rules.text.i18n import Message
from rules.text.paths import field_path
from webhook.yaml_output import dump_yaml

_MAX_TEMPLATES: Final = 8  # pod templates of one object that are shown
_MAX_NAMES: Final = 20  # of nodes in one row
_MAX_PRODUCTS: Final = 4  # in one line
_REQUESTS: Final = "requests."
_SOME: Final = Message("{count} of {of} that the scheduler may choose: {products}")
_SOME_IF: Final = Message(
    "{count} of {of} that the scheduler may choose, if it has as many GPUs as requested: {products}"
)
_NONE: Final = Message("none of {of}: the labels, taints or amounts of each exclude it")
_NOT_OFFERED: Final = Message("none of {of}: none of them offers {resources}")
_MORE: Final = Message("{products} and {count} more")


def admitted(request: AdmissionRequest, decision: Decision) -> dict[str, Any]:
    """Return an object as it is admitted, with templates as their pods will be."""
    import jsonpatch

    document = deepcopy(dict(request.object or {}))
    patch = [*decision.patch, *decision.pods_patch]
    patched: dict[str, Any] = jsonpatch.apply_patch(document, patch, in_place=True)
    return patched


def change_lines(request: AdmissionRequest, decision: Decision) -> Iterator[str]:
    """Yield the lines of a diff of an object, and of its templates and their pods."""
    if decision.patch or decision.pods_patch:
        before, after = dump_yaml(request.object), dump_yaml(admitted(request, decision))
        names = ("template", "pods") if decision.pods_patch else ("before", "after")
        yield from unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=2)


def candidate_nodes(
    snapshot: Snapshot, request: AdmissionRequest, decision: Decision
) -> list[dict[str, Any]]:
    """Return the nodes that each pod or pod template of an object may run on, with its path.

    Pods that request no devices are left out. Amounts are compared with what is allocatable, not with what is
    free.
    """
    if not (decision.allowed and len(snapshot.inventory)):
        return []
    results, inventory = [], snapshot.inventory
    labels = snapshot.policy.rules.label_names
    of = request.group, request.kind, admitted(request, decision)
    templates = snapshot.policy.workloads.templates_of(*of)
    for path, raw in islice(templates.items(), _MAX_TEMPLATES):
        if not (amounts := _amounts(spec := raw.get("spec", raw))):
            continue
        result = {
            "path": field_path(path),
            **_facts(inventory, labels, _candidates(inventory, spec, amounts)),
        }
        if not result["count"] and not any(map(inventory.nodes_offering, amounts)):
            result["notOffered"] = list(amounts)[:_MAX_NAMES]
        # A preset has any number of GPUs.
        several = inventory.presets and max(amounts.values()) > 1
        results.append(result | {"amountsChecked": False} if several else result)
    return results


def candidate_lines(nodes: Iterable[dict[str, Any]]) -> Iterator[Message]:
    """Yield a line for each of the results of `candidate_nodes`."""
    for result in nodes:
        products = [*dict.fromkeys(row["product"] or "GPU ?" for row in result["classes"])]
        text: Message | str = ", ".join(products[:_MAX_PRODUCTS])
        if (more := len(products) - _MAX_PRODUCTS) > 0:
            text = _MORE.having(products=text, count=more)
        if missing := result.get("notOffered"):
            line = _NOT_OFFERED.having(resources=", ".join(missing))
        else:
            line = _NONE if not result["count"] else _SOME if result.get("amountsChecked", True) else _SOME_IF
        yield line.having(count=result["count"], of=result["of"], products=text)


def _amounts(spec: Mapping[str, Any]) -> dict[str, Amount]:
    """Return how many devices a pod's spec requests, by resource."""
    return {
        name.removeprefix(_REQUESTS): amount
        for name, amount in usage_of(spec).amounts.items()
        if name.startswith(_REQUESTS) and "/" in name
    }


def _candidates(inventory: Inventory, spec: Mapping[str, Any], amounts: Mapping[str, Amount]) -> int:
    """Return the nodes for a pod's spec as a bit set. amounts: of the devices that it requests."""
    nodes = candidates(inventory, spec)
    if not spec.get("nodeName"):
        nodes &= inventory.tolerated(spec.get("tolerations"))
    offered = {name: amount for name, amount in amounts.items() if inventory.nodes_offering(name)}
    # As in a decision: a resource that no node offers may belong to a scheduler, unless there is no other.
    for name, amount in (offered or amounts).items():
        nodes &= inventory.nodes_offering(name, ceil(amount))
    return nodes


def _facts(inventory: Inventory, labels: Sequence[LabelNames], nodes: int) -> dict[str, Any]:
    from webhook.cli.matrix.matrix import dotted, sort_key

    classes = classes_of(inventory, nodes, labels) if nodes else ()
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
