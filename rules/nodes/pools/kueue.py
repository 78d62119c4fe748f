"""ResourceFlavors of Kueue.

Source: https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/
"""

from __future__ import annotations

from rules.kube.tolerations import tolerates
from rules.nodes.node_pool import NodePool
from rules.nodes.pools.document import PoolDocument


def read_resource_flavor(document: PoolDocument) -> list[NodePool]:
    """Return the nodes of a ResourceFlavor; none if it selects no nodes by their labels.

    A flavor describes nodes that are there, too, and does not tell whether some can be added: some may come,
    for example by a ProvisioningRequest. Kueue adds the tolerations of the flavor to the pods that it admits,
    so taints that these tolerate keep no pod away.
    """
    labels = document.labels("spec", "nodeLabels")
    if not labels and not document.problems:
        return []
    tolerations = [dict(each) for _, each in document.objects("spec", "tolerations")]
    taints = tuple(
        each for each in document.taints("spec", "nodeTaints") if not tolerates(tolerations, [each])
    )
    return [document.pool(labels, taints, can_scale=not document.deleted)]
