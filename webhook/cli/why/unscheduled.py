"""Why the scheduler found no node for a pod: resources and taints of the nodes.

The scheduler's message has numbers of nodes and names of resources. It does not say whether any node offers a
resource, nor which taints the pod does not tolerate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from math import ceil
from typing import Any, Final, NamedTuple

from rules.kube.resource_quota import usage_of
from rules.kube.tolerations import tolerates
from rules.nodes.inventory import Inventory
from rules.nodes.node_selector import candidates
from rules.text.i18n import Message

# The scheduler's words: https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/scheduler/framework/types.go
_NAME: Final = r"[a-z0-9.-]{1,100}/[A-Za-z0-9._-]{0,99}[A-Za-z0-9]"
_SHORT: Final = re.compile(rf"(\d{{1,9}}) Insufficient ({_NAME})")
_SIMILAR: Final = 0.8  # as for resources that no rule matches
_MOST_NAMED: Final = 8  # resources or taints in one line

_NOT_OFFERED: Final = Message("no node offers {name}")
_NOT_OFFERED_MEANT: Final = Message("no node offers {name} – did you mean {meant}?")
_NOT_OFFERED_OTHERS: Final = Message("no node offers {name}; some offer {others}")
_WRITE: Final = Message("write {meant}")
_INSTALL: Final = Message(
    "request a resource that a node offers, or install what provides {name}: a device plugin or a scheduler"
)
_AWAY: Final = Message(
    "the nodes with {name} do not offer it now: they are not ready, or their device plugin does not run"
)
_CHECK: Final = Message("check the nodes {nodes}")
_TOO_MANY: Final = Message("the pod requests {amount} {name}, and the largest node has {most}")
_FEWER: Final = Message("request {most} or fewer, or add larger nodes")


class Unscheduled(NamedTuple):
    """A pod that the scheduler found no node for, and the nodes of its cluster."""

    inventory: Inventory  # may be empty; then nothing is added to the scheduler's message
    spec: Mapping[str, Any]  # of the pod, as JSON

    def shortest(self, statement: str) -> str:
        """Return an extended resource in a statement that no node offers, or else is short on most, or ""."""
        counts = {name: int(count) for count, name in _SHORT.findall(statement)}
        offered = self.inventory.resources if len(self.inventory) else counts.keys()
        return max(counts, key=lambda name: (name not in offered, counts[name]), default="")

    def shortage(self, name: str) -> tuple[Message, Message] | None:
        """Return cause and fix if waiting does not help; None if nodes may have enough or are unknown."""
        inventory = self.inventory
        if not len(inventory):
            return None
        if not inventory.nodes_offering(name):
            if away := inventory.nodes_recovering(name):
                nodes = ", ".join(inventory.names(away)[:_MOST_NAMED])
                return _AWAY.having(name=name), _CHECK.having(nodes=nodes)
            return self._not_offered(name)
        amount, largest = (
            usage_of(self.spec).amounts.get(f"requests.{name}", 0),
            inventory.largest_amount(name),
        )
        if largest and amount > largest:
            facts = {"name": name, "amount": ceil(amount), "most": largest}
            return _TOO_MANY.having(**facts), _FEWER.having(**facts)
        return None

    def _not_offered(self, name: str) -> tuple[Message, Message]:
        offered = sorted(self.inventory.resources)
        if similar := next(iter(get_close_matches(name, offered, 1, _SIMILAR)), ""):
            facts = {"name": name, "meant": similar}
            return _NOT_OFFERED_MEANT.having(**facts), _WRITE.having(**facts)
        domain = name.partition("/")[0]
        others = ", ".join([other for other in offered if other.startswith(f"{domain}/")][:_MOST_NAMED])
        cause = _NOT_OFFERED_OTHERS if others else _NOT_OFFERED
        return cause.having(name=name, others=others), _INSTALL.having(name=name)

    def taints(self) -> str:
        """Return the taints that keep the pod from the nodes that it selects, as kubectl writes them."""
        nodes, tolerations = candidates(self.inventory, self.spec), self.spec.get("tolerations")
        untolerated = [
            str(taint) for taint in self.inventory.taints(nodes) if not tolerates(tolerations, [taint])
        ]
        return ", ".join(untolerated[:_MOST_NAMED])
