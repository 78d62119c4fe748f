"""What a cluster has of Dynamic Resource Allocation: devices, device classes and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from rules.nodes.devices.device_classes import IMPLICIT_PREFIX, DeviceClasses, match_all, read_device_class
from rules.nodes.devices.devices import KindPool, Problem, facts_of
from rules.nodes.devices.slices import DeviceInventory, read_slice

SLICE: Final = "ResourceSlice"
DEVICE_CLASS: Final = "DeviceClass"
CLAIM: Final = "ResourceClaim"
TEMPLATE: Final = "ResourceClaimTemplate"
GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
# The kinds of objects, each with its plural.
DRA_KINDS: Final = {
    SLICE: "resourceslices",
    DEVICE_CLASS: "deviceclasses",
    CLAIM: "resourceclaims",
    TEMPLATE: "resourceclaimtemplates",
}

# Kind, namespace and name.
ClaimKey = tuple[str, str, str]


class Claims(Protocol):
    """ResourceClaims and ResourceClaimTemplates, as JSON."""

    def get(self, key: ClaimKey, /) -> Any:
        """Return the object, or None."""


class _Layered(NamedTuple):
    """Claims, and others behind them."""

    first: Claims
    then: Claims

    def get(self, key: ClaimKey, /) -> Any:
        found = self.first.get(key)
        return self.then.get(key) if found is None else found


class DraState:
    """The devices, device classes and claims of a cluster. Immutable.

    gpu_resources: extended resources by which devices may be given that are GPUs. problems: what cannot be
    read.
    """

    __slots__ = ("claims", "classes", "devices", "gpu_resources", "problems")

    def __init__(
        self,
        devices: DeviceInventory | None = None,
        classes: DeviceClasses | None = None,
        claims: Claims | None = None,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        self.problems = problems
        self.devices = devices or DeviceInventory()
        self.classes = classes or DeviceClasses()
        self.claims: Claims = {} if claims is None else claims
        gpus = [kind for kind in (*self.devices.by_kind, *self.devices.elsewhere) if facts_of(kind)]
        self.gpu_resources = frozenset(
            name
            for name, by in self.classes.by_resource.items()
            if any(match_all(by.selectors, kind).matches is not False for kind in gpus)
        )

    def with_claims_in(self, documents: Iterable[object], namespace: str) -> DraState:
        """Return the state with the claims and templates among documents besides its own."""
        found = {
            claim_key(each["kind"], each, namespace): each
            for each in documents
            if isinstance(each, Mapping) and each.get("kind") in (CLAIM, TEMPLATE)
        }
        return self.with_claims(_Layered(found, self.claims)) if found else self

    def with_claims(self, claims: Claims) -> DraState:
        """Return the state with other claims."""
        after = DraState.__new__(DraState)
        after.devices, after.classes, after.gpu_resources = self.devices, self.classes, self.gpu_resources
        after.claims, after.problems = claims, self.problems
        return after

    def gpus_among(self, resources: Iterable[str]) -> tuple[str, ...]:
        """Return the resources that may stand for a GPU; one that is not of a DeviceClass may."""
        gpus = self.gpu_resources
        return tuple([name for name in resources if not name.startswith(IMPLICIT_PREFIX) or name in gpus])


def dra_state(objects: Mapping[str, Iterable[Mapping[str, Any]]]) -> DraState:
    """Return the state of objects by their kinds, as JSON."""
    pool, problems = KindPool(), list[Problem]()
    slices, classes = [], []
    for each in objects.get(SLICE, ()):
        found, unreadable = read_slice(each, pool)
        slices += [found] if found else []
        problems += unreadable
    for each in objects.get(DEVICE_CLASS, ()):
        read, unreadable = read_device_class(each)
        classes += [read] if read else []
        problems += unreadable
    claims = {claim_key(kind, each): each for kind in (CLAIM, TEMPLATE) for each in objects.get(kind, ())}
    return DraState(DeviceInventory(slices), DeviceClasses(classes), claims, tuple(problems))


def claim_key(kind: str, document: Mapping[str, Any], namespace: str = "default") -> ClaimKey:
    """Return the key of a claim or template. namespace: of one that does not say its own."""
    metadata = document.get("metadata")
    found = metadata if isinstance(metadata, Mapping) else {}
    return kind, str(found.get("namespace") or namespace), str(found.get("name") or "")


NO_DRA: Final = DraState()
