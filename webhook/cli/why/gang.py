"""The gang of a pod that is not scheduled: members that do not exist or find no node, for which it waits.

kube-scheduler writes neither a condition nor an event to the pods of a gang that is not complete:
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/scheduler/framework/plugins/gangscheduling/gangscheduling.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from rules.cuda.tables import read_table
from rules.model.decision import ALLOWED
from rules.model.finding import Certainty
from rules.nodes.inventory import Inventory
from rules.text.i18n import Message
from webhook.cli.audit.source import list_workloads
from webhook.cli.inputs.session import Session
from webhook.cli.terminal.console import BadInputError, counted
from webhook.cli.why.denied_workload import WorkloadFacts
from webhook.cli.why.failures import Cause, causes
from webhook.cli.why.pod_source import PodFacts
from webhook.cli.why.unscheduled import Unscheduled

# Rows of the table of failures, and names of causes, which say only that the pod waits for its gang.
WAITS: Final = "gang-waits"
_INCOMPLETE: Final = Message(
    "gang {gang} has {present} of the {minimum} pods that it requires, which wait for the others"
)
_FIND: Final = Message("find out why its controller does not create them: `gpugate why KIND/NAME` of it")
_WAIT_FOR_POD: Final = Message("gang {gang} ({pods}) waits for pod {pod}: {cause}")
_WAIT_FOR_OWNER: Final = Message("gang {gang} ({pods}) waits for the pods of {owner}: {cause}")


class Gang(Struct, frozen=True):
    """A gang with an unscheduled pod."""

    name: str
    pods: Sequence[PodFacts]  # that exist and have not ended, the unscheduled pod included
    minimum: int | None = None  # pods that must be schedulable together; None if unknown
    workloads: Sequence[WorkloadFacts] = ()  # the controllers of the pods, with their events

    def causes(self, pod: PodFacts, inventory: Inventory, own: Sequence[Cause]) -> list[Cause]:
        """Return why the pods of the gang wait. own: the causes of the pod itself.

        Certain only if the minimum is known. A member without a node counts only if the pod has no cause of
        its own: each waits for all others.
        """
        is_short = self.minimum is not None and len(self.pods) < self.minimum
        if is_short or self.minimum is None:
            certainty = Certainty.CERTAIN if is_short else Certainty.LIKELY
            if denied := [*self._denied(certainty)]:
                return denied
        if is_short:
            facts = {"gang": self.name, "present": len(self.pods), "minimum": self.minimum}
            return [Cause("gang-incomplete", Certainty.CERTAIN, _INCOMPLETE.having(**facts), _FIND)]
        others = [other for other in self.pods if other.name != pod.name and not other.scheduled]
        if any(cause.name != WAITS for cause in own):
            return []
        return next(([cause] for other in others for cause in self._unscheduled(other, inventory)), [])

    def _denied(self, certainty: Certainty) -> Iterator[Cause]:
        """Yield a cause for each workload of which a controller could not create its last pod."""
        for workload in self.workloads:
            for cause in causes(ALLOWED, workload.statements()):
                key = workload.object.key
                facts = {
                    "pods": counted(len(self.pods), "pod"),
                    "gang": self.name,
                    "owner": f"{key.kind}/{key.name}",
                }
                text = _WAIT_FOR_OWNER.having(**facts, cause=cause.text)
                yield Cause(cause.name, certainty, text, cause.fix, cause.evidence)

    def _unscheduled(self, other: PodFacts, inventory: Inventory) -> Iterator[Cause]:
        """Yield the cause for which another pod of the gang has no node."""
        for cause in causes(ALLOWED, other.statements(), Unscheduled(inventory, other.spec)):
            if cause.name != WAITS:
                facts = {"pods": counted(len(self.pods) - 1, "pod"), "gang": self.name, "pod": other.name}
                text = _WAIT_FOR_POD.having(**facts, cause=cause.text)
                yield Cause(cause.name, cause.certainty, text, cause.fix, cause.evidence)
                return


def with_gang(pod: PodFacts, session: Session, own: Sequence[Cause]) -> list[Cause]:
    """Return the causes of an unscheduled pod of the cluster with those of its gang, certain ones first.

    own: the causes of the pod itself. Adds a note to the pod for what could not be read.
    """
    gang = _gang_of(pod, session)
    of_gang = gang.causes(pod, session.inventory, own) if gang else []
    all_causes = [*(cause for cause in own if not (of_gang and cause.name == WAITS)), *of_gang]
    return sorted(all_causes, key=lambda cause: cause.certainty is not Certainty.CERTAIN)


def _gang_of(pod: PodFacts, session: Session) -> Gang | None:
    """Return the gang of a pod of the cluster; None if it has none, or its pods may not be listed."""
    row, name = _named(pod.pod)
    if row is None:
        return None
    namespace, query, minimum = pod.object.key.namespace, session.cluster.query, None
    try:
        group = query(lambda api: api.pod_group(row["group"], namespace, name))
        minimum = _at(group, row["minimum"])
        if not isinstance(minimum, int):
            return None
    except BadInputError as error:
        pod.notes.append(error.text.in_language(session.language))
    try:
        workloads = list_workloads((), session, namespace)
        events = query(lambda api: api.failed_creations(namespace))
    except BadInputError as error:
        pod.notes.append(error.text.in_language(session.language))
        return None
    members, controllers = list[PodFacts](), list[WorkloadFacts]()
    for workload in workloads:
        pods = [PodFacts(member.document) for member in workload.pods]
        of_gang = [other for other in pods if _named(other.pod) == (row, name)]
        members += of_gang
        if of_gang and workload.object and not workload.object.is_pod:
            controller = WorkloadFacts.of(workload.object, workload.children)
            controller.add_events([event for event in events if not _is_over(event, pods)])
            controllers.append(controller)
    return Gang(name, members, minimum, controllers)


def _named(pod: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return the row of the table by which a pod names its gang, and the name."""
    for row in read_table("gangs"):
        name = _at(pod, row["pod"])
        if isinstance(name, str) and name:
            return row, name
    return None, ""


def _at(value: Any, path: Sequence[str]) -> Any:
    """Return the value at a path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_over(event: Mapping[str, Any], pods: Sequence[PodFacts]) -> bool:
    """Return whether the controller that an event is about has created a pod since."""
    controller, time = _at(event, ("involvedObject", "uid")), str(event.get("lastTimestamp") or "")
    return any(
        _at(owner, ("uid",)) == controller and pod.created > time
        for pod in pods
        for owner in pod.object.metadata.get("ownerReferences") or ()
    )
