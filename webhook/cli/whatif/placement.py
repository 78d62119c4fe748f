"""A decision with the nodes that its pods fit on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rules.compatibility.evaluate import FittingNodes, fitting_nodes
from rules.compatibility.result import RuleRequirement
from rules.decision.pipeline import Snapshot, decide
from rules.decision.recorder import DecisionRecorder
from rules.kube.pod import Container, Pod
from rules.model.decision import AdmissionRequest, Decision
from rules.text.i18n import Message

__all__ = ["FittingNodes", "Placement", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """A decision, and for each pod of the object that rules select nodes for, the nodes that it fits on.

    Pods whose GPUs are devices of claims have none: their nodes are selected by the devices.
    """

    decision: Decision
    nodes: tuple[FittingNodes, ...]


class _FittingRecorder(DecisionRecorder):
    """The record of one pod with the nodes that it fits on; the decision itself is the same."""

    __slots__ = ("_pod", "_required", "_snapshot", "fitting")

    def __init__(self, pod: Pod, snapshot: Snapshot) -> None:
        super().__init__(pod)
        self._pod, self._snapshot = pod, snapshot
        self._required: list[tuple[Container, RuleRequirement]] = []
        self.fitting: FittingNodes | None = None

    def record_requirements(self, container: Container, required: RuleRequirement) -> None:
        """Record what a container requires of a node."""
        super().record_requirements(container, required)
        self._required.append((container, required))

    def record_notes(self, notes: tuple[Message, ...]) -> None:
        """Record the nodes: here the pod is completed, but its node affinity is still that of its author."""
        super().record_notes(notes)
        policy, inventory, _ = self._snapshot
        self.fitting = fitting_nodes(self._required, self._pod, inventory, policy.prospects)


def place(snapshot: Snapshot, request: AdmissionRequest, now: float = math.inf) -> Placement:
    """Return the decision on a request and the nodes of its pods; arguments and errors as of `decide`."""
    recorders: list[_FittingRecorder] = []

    def recorder(pod: Pod) -> DecisionRecorder:
        recorders.append(_FittingRecorder(pod, snapshot))
        return recorders[-1]

    decision = decide(snapshot, request, now, recorder)
    return Placement(decision, tuple(each.fitting for each in recorders if each.fitting))
