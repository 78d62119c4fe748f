"""Verdicts on the same objects before and after a change of their manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from rules import Language
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import NEW, REMOVED, VERDICT_CHANGES


class Verdict(NamedTuple):
    """What a decision says of an object, in a line.

    severity: see Target. concerns_devices: whether there was something to check.
    """

    kind: str
    namespace: str
    name: str
    text: str
    allowed: bool
    severity: int
    concerns_devices: bool = True

    @property
    def title(self) -> str:
        """Kind, namespace and name of the object."""
        return f"{self.kind} {self.namespace}/{self.name}"

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {"allowed": self.allowed, "result": self.text}


class VerdictChange(NamedTuple):
    """An object whose verdict changes; before, after: None if there is no such object."""

    before: Verdict | None
    after: Verdict | None

    @property
    def subject(self) -> Verdict:
        """The verdict that names the object."""
        return self.after or self.before  # type: ignore[return-value]  # one of both

    def row(self, language: Language) -> dict[str, str]:
        """Return the cells of a table."""
        return {
            "workload": self.subject.title,
            "before": self.before.text if self.before else NEW.in_language(language),
            "after": self.after.text if self.after else REMOVED.in_language(language),
        }

    def document(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            "kind": self.subject.kind,
            "namespace": self.subject.namespace,
            "name": self.subject.name,
            "change": "changed" if self.before and self.after else "added" if self.after else "removed",
            "before": self.before and self.before.document(),
            "after": self.after and self.after.document(),
        }

    @property
    def order(self) -> tuple[bool, int, bool, str]:
        """The worst first; of equals, those that were not denied before; at the end what is removed."""
        denied_before = bool(self.before and not self.before.allowed)
        return not self.after, self.subject.severity, denied_before, self.subject.title


def verdict_changes(before: Iterable[Verdict], after: Iterable[Verdict]) -> list[VerdictChange]:
    """Return the objects whose verdict changes, the worst first.

    Objects are equal by kind, namespace and name; of several with the same, the first with the first.
    """
    old, new = _by_identity(before), _by_identity(after)
    pairs = (VerdictChange(old.get(identity), new.get(identity)) for identity in {**old, **new})
    changes = (
        pair
        for pair in pairs
        if (pair.before and pair.before.text) != (pair.after and pair.after.text)
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
    """Return how many objects have another verdict."""
    workloads = counted(len(list(changes)), "workload")
    return VERDICT_CHANGES.having(workloads=workloads).in_language(language)
