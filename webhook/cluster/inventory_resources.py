"""The objects of a cluster that declare nodes which autoscalers may add."""

from __future__ import annotations

from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS
from webhook.cluster.resource import Resource, config_maps


def declaring_resources() -> dict[str, Resource]:
    """Return what is read besides nodes, by its kind; AUTOSCALER_STATUS goes by its name."""
    found = {
        each.kind: Resource(
            each.plural,
            f"/apis/{each.group}/{each.versions[0]}/{each.plural}",
            others=tuple(f"/apis/{each.group}/{version}/{each.plural}" for version in each.versions[1:]),
        )
        for each in POOL_KINDS
    }
    status = AUTOSCALER_STATUS
    found[status.name] = Resource(
        status.name, config_maps(status.namespace), fields=f"metadata.name={status.name}"
    )
    return found
