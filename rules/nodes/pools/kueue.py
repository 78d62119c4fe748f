"""ResourceFlavors of Kueue.

Source: https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/
"""

from __future__ import annotations

from rules.kube.tolerations import tolerates
from rules.nodes.node_pool import NodePool
from rules.nodes.pools.document import PoolDocument


def read_resource_flavor(document: PoolDocument) -> list[NodePool]:
    """Return the node pool of a ResourceFlavor; none if it selects no nodes by their labels.

    A flavor also describes present nodes, and does not show whether nodes can be added; they may be, for
    example by a ProvisioningRequest. Kueue adds the tolerations of the flavor to the pods that it admits, so
    taints that these tolerate keep no pod away.
    """
    labels = document.labels("spec", "nodeLabels")
    if not labels and not document.problems:
        return []
    tolerations = [dict(toleration) for _, toleration in document.objects("spec", "tolerations")]
    taints = tuple(
        taint for taint in document.taints("spec", "nodeTaints") if not tolerates(tolerations, [taint])
    )
    return [document.pool(labels, taints, can_scale=not document.deleted)]
