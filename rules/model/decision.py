"""The answer to a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rules.kube.json_patch import Operation
from rules.model.rule import Action


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a rule does not let pass.

    path: as Kubernetes prints it. message: one line with container, path, found, wanted and what to do.
    """

    rule: str
    action: Action
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer: a verdict, and the edits where it is to allow.

    message: the whole refusal, empty where allowed. patch: RFC 6902 operations, none for what is denied or
    not to be changed. warnings: a line each. audit: annotations of the audit event, names without prefix.
    rules: names of those that matched. cuda_sources: what told each judged container's CUDA, or `unknown`.
    """

    allowed: bool = True
    message: str = ""
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[Operation, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()


ALLOWED = Decision()
