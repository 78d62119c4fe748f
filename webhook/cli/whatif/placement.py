"""A decision with the nodes that its pods fit on."""

from __future__ import annotations

import math

from msgspec import Struct

from rules.compatibility.evaluate import FittingNodes, fitting_nodes
from rules.decision.pipeline import Snapshot, decide
from rules.decision.recorder import Observer, Record
from rules.model.decision import AdmissionRequest, Decision


class Placement(Struct, frozen=True):
    """A decision, and the nodes that the pods of the object fit on."""

    decision: Decision
    # One entry for each pod that rules select nodes for. Devices of claims select the nodes of their pods.
    nodes: tuple[FittingNodes, ...]


class _Fitting(Observer):
    """The nodes that each completed pod fits on, by its own node affinity."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.nodes: list[FittingNodes] = []

    def complete(self, record: Record) -> None:
        """Add the nodes of a pod, if a rule selects nodes for it."""
        policy, inventory = self._snapshot.policy, self._snapshot.inventory
        if fitting := fitting_nodes(record.requirements, record.pod, inventory, policy.prospects):
            self.nodes.append(fitting)


def place(snapshot: Snapshot, request: AdmissionRequest, now: float = math.inf) -> Placement:
    """Return the decision on a request and the nodes of its pods; arguments and errors as of `decide`."""
    fitting = _Fitting(snapshot)
    return Placement(decide(snapshot, request, now, fitting), tuple(fitting.nodes))
