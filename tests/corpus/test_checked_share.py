"""Every published manifest is checked, or not checked with a reason.

`pytest -s tests/corpus/test_checked_share.py` prints the shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rules import AdmissionRequest, Decision, Snapshot, decide
from rules.kube.pod import Pod
from rules.model.decision import NO_NODES
from rules.model.workload_kinds import built_in_workloads
from rules.text.glob import Comparisons
from rules.text.yaml_document import SourceError
from tests.support.builders import NO_NODES as NO_INVENTORY
from tests.support.node_builders import shipped
from tests.support.paths import MANIFESTS, needs_manifests
from webhook.cli.inputs.objects import objects_in, request_of

pytestmark = needs_manifests

# Documents, of 475, whose containers were found by the 23 kinds that were known before.
BEFORE = 374


class Found(NamedTuple):
    """A document: its file, whether a container in it is known, and the decision on it."""

    name: str
    request: AdmissionRequest
    has_containers: bool
    decision: Decision


def documents() -> Iterator[Found]:
    """Yield all documents, decided by the built-in rules without nodes."""
    workloads = built_in_workloads()
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for entry in objects_in(str(path)):
            assert not isinstance(entry, SourceError)
            request, _ = request_of(*entry, "default")
            document = request.object or {}
            pods = workloads.pods_of(request.group, request.kind, document)
            known = any(Pod(document, raw, at, others).containers for at, (raw, others) in pods.items())
            yield Found(path.name, request, known, decide(Snapshot(shipped(), NO_INVENTORY), request, 0))


def reasons(decision: Decision) -> list[str]:
    """Return the reasons of what is not checked, except that no nodes are known."""
    return [reason.en for _, reason in decision.not_checked if reason != NO_NODES]


def test_every_manifest_is_checked_or_not_checked_with_a_reason() -> None:
    """None is passed over in silence."""
    manifests = list(documents())
    checked = sum(manifest.has_containers for manifest in manifests)
    rest: dict[str, list[str]] = {}
    for unchecked in manifests:
        if not unchecked.has_containers:
            rest.setdefault("; ".join(reasons(unchecked.decision)), []).append(unchecked.name)
    lines = [f"{len(manifests)} documents, checked: {BEFORE} before, {checked} now"]
    lines += [f"not checked, {len(names)}: {reason}" for reason, names in sorted(rest.items())]
    print("", *lines, sep="\n")  # noqa: T201

    assert "" not in rest
    assert checked / len(manifests) > 0.95


def test_every_accelerator_in_a_manifest_has_a_rule_or_is_not_checked() -> None:
    """Of containers that are known."""
    for manifest in documents():
        document: Any = manifest.request.object
        pods = built_in_workloads().pods_of(manifest.request.group, manifest.request.kind, document)
        users = [user for at, (raw, others) in pods.items() for user in Pod(document, raw, at, others).users]
        unmatched = {name for user in users for name, _ in shipped().not_checked(user.names, Comparisons())}
        told = " ".join(reasons(manifest.decision))

        assert [] == [name for name in unmatched if f"resource {name}" not in told], manifest.name
