"""An admission request, as far as a decision depends on it, and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from rules.kube.json_patch import Operation
from rules.model.finding import Finding, audit_list
from rules.model.rule import Exemption
from rules.text.i18n import Message, Text

if TYPE_CHECKING:
    from rules.cuda.versions import CudaVersion

# The audit annotation of all answers under the cap of `--enforcement-action`.
CAP_ANNOTATION: Final = "enforcement-action"
# Characters of the place in a malformed object: with four bytes each, a warning of the API server holds them.
_MAX_DETAIL: Final = 1000
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
_NONE: Final = Message()


class Effect(StrEnum):
    """What a decision does to a request, if it is not simply admitted."""

    DENY = "deny"
    PATCH = "patch"


class NotChecked(NamedTuple):
    """A part of an object that was not checked. path: as Kubernetes prints it, empty for the whole object."""

    path: str
    reason: Message


# The reason of what is checked on nodes, if none is known.
NO_NODES: Final = Message(
    "CUDA compatibility not checked: no nodes given (use --nodes FILE or --context NAME)"
)
# The reason of an image of which nothing says what it needs.
UNKNOWN_CUDA: Final = Message(
    "the CUDA version of this image is unknown; set annotation gpugate.dev/cuda-version, or use an "
    "ImageCatalog"
)


# The CUDA version that a container needs, and its source, as in CudaRequirement.
NeededCuda: TypeAlias = "tuple[CudaVersion | None, str]"
UNKNOWN_VERSION: Final[NeededCuda] = (None, "unknown")


class Decision(NamedTuple):
    """The answer to a request.

    denial: its message, else empty. patch: RFC 6902 operations, empty for what is denied or never changed.
    pods_patch: of a workload, the operations that its pods get when they are created, on its templates.
    notices: the warnings that are no violations. warning_lines: those, and the violations that only warn, a
    line each. audit: annotations of the audit event, names without prefix. rules: names of those that match.
    cuda_versions: the CUDA version that each container needs. notes: why the containers run on
    the best of the nodes, if that is not plain. declared: the annotations and variables of the pod that
    replace what is known of an image. not_checked: what nothing is known of. withheld: the effect without the
    cap of `--enforcement-action`, if there would be one. code: the HTTP status of a denial. exempted: the
    names of rules that have no effect on a pod, each with the exemption.
    """

    allowed: bool = True
    denial: Message = _NONE
    violations: tuple[Finding, ...] = ()
    notices: tuple[Finding, ...] = ()
    warning_lines: tuple[Message, ...] = ()
    patch: tuple[Operation, ...] = ()
    audit: Mapping[str, str] = _NO_ANNOTATIONS
    rules: tuple[str, ...] = ()
    cuda_versions: tuple[NeededCuda, ...] = ()
    notes: tuple[Message, ...] = ()
    declared: tuple[str, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    pods_patch: tuple[Operation, ...] = ()
    withheld: Effect | None = None
    code: int = 403
    exempted: tuple[tuple[str, Exemption], ...] = ()

    @classmethod
    def deny(cls, message: Message, violations: tuple[Finding, ...] = (), **facts: Any) -> Decision:
        """Return a denial; facts: other fields. The audit event has its violations."""
        audit = facts.pop("audit", {})
        if violations and "violations" not in audit:
            audit = {**audit, "violations": audit_list(violations)}
        return cls(False, message, violations, audit=audit, **facts)

    @classmethod
    def allow(cls, violations: tuple[Finding, ...] = (), **facts: Any) -> Decision:
        """Return an admission. violations: of rules that do not deny; facts: other fields, as a patch."""
        return cls(True, _NONE, violations, **facts)

    @classmethod
    def errored(cls, code: int, problem: str, detail: str, *, allowed: bool) -> Decision:
        """Return the answer to an object that cannot be checked. problem: what is wrong; detail: where."""
        done = "allowed" if allowed else "denied"
        reason = f"{problem}, {done} without checks: {detail[:_MAX_DETAIL]}"
        audit = {"error": reason}
        if allowed:
            return cls.allow(warning_lines=(Text(f"gpugate: {reason}"),), audit=audit)
        return cls.deny(Text(f"gpugate: {reason}"), audit=audit, code=code)


ALLOWED = Decision.allow()


class AdmissionRequest(Struct, frozen=True):
    """The part of an admission request that a decision depends on.

    object, old_object: the raw JSON, read only. group: the kind's API group, empty for the core. mutating: a
    patch may be answered; otherwise the object is checked as it is.
    """

    operation: str
    group: str
    kind: str
    namespace: str
    object: Mapping[str, Any] | None
    old_object: Mapping[str, Any] | None = None
    subresource: str = ""
    mutating: bool = True
