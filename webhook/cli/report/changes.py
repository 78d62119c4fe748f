"""Verdicts on the same objects, and patches of them, before and after a change of their manifests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rules import Language
from rules.kube.json_patch import Operation, value_at
from rules.text.i18n import Joined
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import NEW, OTHER_PATCH, PATCH_CHANGES, REMOVED, VERDICT_CHANGES


class Verdict(NamedTuple):
    """What a decision says of an object, in a line.

    severity: see Target. concerns_devices: whether there was something to check. adds: see `added`.
    """

    kind: str
    namespace: str
    name: str
    text: str
    allowed: bool
    severity: int
    concerns_devices: bool = True
    adds: frozenset[tuple[str, str]] = frozenset()

    @property
    def title(self) -> str:
        """Kind, namespace and name of the object."""
        return f"{self.kind} {self.namespace}/{self.name}"

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {"allowed": self.allowed, "result": self.text}


def added(document: Mapping[str, Any], patch: Iterable[Operation]) -> frozenset[tuple[str, str]]:
    """Return what a patch adds to an object: each value, as JSON, with its path.

    Without what the object has there: node selector terms of a patch repeat those of the author.
    """
    parts = set[tuple[str, str]]()
    for operation in patch:
        path = operation["path"]
        parts |= {*_parts(path, operation["value"])} - {*_parts(path, value_at(document, path))}
    return frozenset(parts)


def _parts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the innermost objects of a value with their paths, and what is in none; without indexes."""
    members: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        members = [*value.items()]
    elif isinstance(value, list):
        members = [("-", item) for item in value]
    if any(_has_object(member) for _, member in members):
        for name, member in members:
            yield from _parts(f"{path}/{name}", member)
    else:
        yield path, json.dumps(value, sort_keys=True)


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_object, value)))


class VerdictChange(NamedTuple):
    """An object whose verdict or patch changes; before, after: None if there is no such object."""

    before: Verdict | None
    after: Verdict | None

    @property
    def subject(self) -> Verdict:
        """The verdict that names the object."""
        return self.after or self.before  # type: ignore[return-value]  # one of both

    @property
    def of_patch(self) -> bool:
        """Whether only the patch changes."""
        return self.before is not None and self.after is not None and self.before.text == self.after.text

    def row(self, language: Language) -> dict[str, str]:
        """Return the cells of a table."""
        after = self.after.text if self.after else REMOVED.in_language(language)
        return {
            "workload": self.subject.title,
            "before": self.before.text if self.before else NEW.in_language(language),
            "after": OTHER_PATCH.having(result=after).in_language(language) if self.of_patch else after,
        }

    def document(self) -> dict[str, Any]:
        """Return the change as JSON."""
        changed = "patch" if self.of_patch else "changed"
        return {
            "kind": self.subject.kind,
            "namespace": self.subject.namespace,
            "name": self.subject.name,
            "change": changed if self.before and self.after else "added" if self.after else "removed",
            "before": self.before and self.before.document(),
            "after": self.after and self.after.document(),
        }

    @property
    def order(self) -> tuple[bool, int, bool, str]:
        """The worst first; of equals, those that were not denied before; at the end what is removed."""
        denied_before = bool(self.before and not self.before.allowed)
        return not self.after, self.subject.severity, denied_before, self.subject.title


def verdict_changes(before: Iterable[Verdict], after: Iterable[Verdict]) -> list[VerdictChange]:
    """Return the objects whose verdict or patch changes, the worst first.

    Objects are equal by kind, namespace and name; of several with the same, the first with the first.
    """
    old, new = _by_identity(before), _by_identity(after)
    pairs = (VerdictChange(old.get(identity), new.get(identity)) for identity in {**old, **new})
    changes = (
        pair
        for pair in pairs
        if (pair.before and (pair.before.text, pair.before.adds))
        != (pair.after and (pair.after.text, pair.after.adds))
        and any(verdict and verdict.concerns_devices for verdict in pair)
    )
    return sorted(changes, key=lambda change: change.order)


def _by_identity(verdicts: Iterable[Verdict]) -> dict[tuple[str, int], Verdict]:
    counts, result = Counter[str](), dict[tuple[str, int], Verdict]()
    for verdict in verdicts:
        result[verdict.title, counts[verdict.title]] = verdict
        counts[verdict.title] += 1
    return result


def changes_line(changes: Iterable[VerdictChange], language: Language) -> str:
    """Return how many objects have another verdict, and how many only another patch."""
    kinds = Counter(change.of_patch for change in changes)
    lines = [VERDICT_CHANGES.having(workloads=counted(kinds[False], "workload"))]
    if kinds[True]:
        lines.append(PATCH_CHANGES.having(workloads=counted(kinds[True], "workload")))
    return Joined("; ", lines).in_language(language)
