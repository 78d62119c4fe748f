"""What containers need of driver and GPU: the notes of a decision for which no nodes are known."""

from __future__ import annotations

from rules.compatibility.suitable_gpus import needs_of
from rules.cuda.tables import Facts
from rules.decision.recorder import Observer, Record
from rules.text.i18n import Message


class Needs(Observer):
    """Collects a note for each container whose CUDA compatibility would be checked.

    notes: each once, in the order of the containers. facts: those of the policy.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.notes: dict[Message, None] = {}

    def complete(self, record: Record) -> None:
        """Take the record of a pod."""
        by_container = dict(reversed(record.requirements))
        for container in record.pod.users:
            if required := by_container.get(container):
                self.notes[needs_of(container, required, self._facts)] = None
