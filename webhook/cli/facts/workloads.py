"""Workloads whose verdict changes with the facts, by the comparison of `gpugate whatif`."""

from __future__ import annotations

from time import time
from typing import Final

from msgspec.structs import replace

from rules import ObjectError, Snapshot, compile_policy, inventory_of
from rules.model.rule import FactRelease
from rules.text.i18n import Message, located
from webhook.cli.audit.source import list_workloads
from webhook.cli.inputs.node_changes import Change
from webhook.cli.inputs.session import Session
from webhook.cli.terminal.console import progress
from webhook.cli.terminal.vocabulary import EVALUATING_WORKLOADS, READING_WORKLOADS
from webhook.cli.whatif.compare import ClusterState, WhatIf, WorkloadRequest, compare, subjects_of

_FACTS: Final = Message("facts of {date}")


def changed_workloads(
    session: Session, after: FactRelease, filenames: tuple[str, ...], namespace: str | None
) -> WhatIf:
    """Return what other facts do to workloads in files, or in the cluster of a session.

    session: has the facts before. Raises BadInputError.
    """
    session.load_all()
    with progress(READING_WORKLOADS):
        workloads = list_workloads(filenames, session, namespace)
    rules = replace(session.policy.rules, releases=(after,))
    policy, now = compile_policy(rules, session.language, session.workloads), time()
    inventory = inventory_of(session.node_objects, policy.facts)
    snapshot = Snapshot(policy, inventory, session.inventory.dra.claims, session.snapshot.namespaces)

    def on_error(subject: WorkloadRequest, error: ObjectError) -> None:
        session.add_error(located(f"{subject.namespace}/{subject.owner}", error.text))

    with progress(EVALUATING_WORKLOADS):
        return compare(
            list(subjects_of(workloads)),
            ClusterState(session.snapshot, now),
            ClusterState(snapshot, now),
            [Change(_FACTS.having(date=after.facts.date))],
            on_error=on_error,
        )
