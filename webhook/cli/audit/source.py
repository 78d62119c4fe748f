"""The workloads that a command evaluates: of files, or of a cluster."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import chain
from typing import Any

from rules.text.yaml_document import SourceError
from webhook.cli.audit.workloads import Workload, workload_objects, workloads_in
from webhook.cli.inputs.objects import NO_OBJECT, InputError, ObjectSource, objects_in
from webhook.cli.inputs.session import Session
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import IGNORED_NAMESPACES, NOT_READ


def list_workloads(filenames: Iterable[str], session: Session, namespace: str | None) -> list[Workload]:
    """Return the workloads in files, or of the cluster if there are no files.

    namespace: return only its workloads; None for all. Raises BadInputError.
    """
    paths = list(filenames)
    workloads = _in_files(paths, session) if paths else _in_cluster(session, namespace)
    return [workload for workload in workloads if namespace in (None, workload.namespace)]


def _in_cluster(session: Session, namespace: str | None) -> list[Workload]:
    """Return the workloads of a cluster, except in ignored namespaces; add notes on what is left out."""
    cluster, language, kinds = session.cluster, session.language, session.policy.workloads
    listed = cluster.query(lambda api: api.workloads(kinds, namespace))
    gc.freeze()  # they live as long as the command: collections need not visit them
    for why in listed.unread:
        session.add_note(NOT_READ.having(why=why).in_language(language))
    ignored = set(cluster.query(lambda api: api.ignored_namespaces()))
    workloads = workloads_in(workload_objects(((None, document) for document in listed.objects), kinds))
    left_out = [
        workload
        for workload in workloads
        if workload.namespace in ignored and namespace in (None, workload.namespace)
    ]
    if left_out:
        names = ", ".join(sorted({workload.namespace for workload in left_out}))
        note = IGNORED_NAMESPACES.having(workloads=counted(len(left_out), "workload"), names=names)
        session.add_note(note.in_language(language))
    return [workload for workload in workloads if workload.namespace not in ignored]


def _in_files(filenames: Iterable[str], session: Session) -> list[Workload]:
    """Return the workloads in files; print errors in them, and use claims and quotas as existing."""
    documents: list[tuple[ObjectSource, dict[str, Any]]] = []
    for entry in chain.from_iterable(map(objects_in, filenames)):
        if isinstance(entry, SourceError):
            session.add_error(entry.text)
            continue
        source, value = entry
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            session.add_error(InputError(source, NO_OBJECT).text)
        else:
            documents.append((source, value))
    session.add_objects([value for _, value in documents], "default")
    return workloads_in(workload_objects(documents, session.policy.workloads))
