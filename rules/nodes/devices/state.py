"""The objects of Dynamic Resource Allocation in a cluster: devices, device classes and claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from rules.nodes.devices.device_classes import IMPLICIT_PREFIX, DeviceClasses, match_all, read_device_class
from rules.nodes.devices.devices import KindPool, Problem, dra_table, facts_of
from rules.nodes.devices.slices import DeviceInventory, TaintRules, read_slice, read_taint_rule
from rules.nodes.gpu_resources import cached_by_names
from rules.text.paths import object_at

SLICE: Final = "ResourceSlice"
TAINT_RULE: Final = "DeviceTaintRule"
DEVICE_CLASS: Final = "DeviceClass"
CLAIM: Final = "ResourceClaim"
TEMPLATE: Final = "ResourceClaimTemplate"
GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
# The kinds of objects, each with its plural.
DRA_KINDS: Final = {
    SLICE: "resourceslices",
    TAINT_RULE: "devicetaintrules",
    DEVICE_CLASS: "deviceclasses",
    CLAIM: "resourceclaims",
    TEMPLATE: "resourceclaimtemplates",
}

# The kinds that may have configurations of devices.
CONFIGURED: Final = frozenset({DEVICE_CLASS, CLAIM, TEMPLATE})

# Kind, namespace and name.
ClaimKey = tuple[str, str, str]


class Claims(Protocol):
    """ResourceClaims and ResourceClaimTemplates, as JSON."""

    def get(self, key: ClaimKey, /) -> Any:
        """Return the object, or None."""


class _Layered(NamedTuple):
    """Claims of two sources; the first takes precedence."""

    first: Claims
    then: Claims

    def get(self, key: ClaimKey, /) -> Any:
        claim = self.first.get(key)
        return self.then.get(key) if claim is None else claim


class DraState:
    """The devices, device classes and claims of a cluster. Immutable.

    gpu_resources: extended resources whose devices may be GPUs.
    gpus_among: the extended resources, of some, that may stand for a GPU, including those of no DeviceClass.
    problems: unreadable values.
    """

    __slots__ = ("claims", "classes", "devices", "gpu_resources", "gpus_among", "problems")

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
        self.gpus_among = cached_by_names(partial(_gpus_among, self.gpu_resources))

    def with_claims_in(self, documents: Iterable[object], namespace: str) -> DraState:
        """Return the state with the claims and templates among documents, which take precedence.

        Also with the templates that controllers of custom resources among them create.
        """
        claims: dict[ClaimKey, Any] = {}
        for document in documents:
            if not isinstance(document, Mapping):
                continue
            if document.get("kind") in (CLAIM, TEMPLATE):
                claims[claim_key(document["kind"], document, namespace)] = document
            elif template := _created_template(document):
                claims.setdefault(claim_key(TEMPLATE, template, namespace), template)
        return self.with_claims(_Layered(claims, self.claims)) if claims else self

    def with_claims(self, claims: Claims) -> DraState:
        """Return the state with other claims."""
        after = DraState.__new__(DraState)
        after.devices, after.classes, after.gpu_resources = self.devices, self.classes, self.gpu_resources
        after.gpus_among = self.gpus_among
        after.claims, after.problems = claims, self.problems
        return after


def _gpus_among(gpus: Collection[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the extended resources among names that may stand for a GPU. gpus: those of DeviceClasses."""
    return tuple(
        name for name in names if "/" in name and (not name.startswith(IMPLICIT_PREFIX) or name in gpus)
    )


def dra_state(objects: Mapping[str, Iterable[Mapping[str, Any]]]) -> DraState:
    """Return the state of objects by their kinds, as JSON."""
    pool, problems = KindPool(), list[Problem]()
    slices, classes = [], []
    for document in objects.get(SLICE, ()):
        resource_slice, unreadable = read_slice(document, pool)
        slices += [resource_slice] if resource_slice else []
        problems += unreadable
    for document in objects.get(DEVICE_CLASS, ()):
        read, unreadable = read_device_class(document)
        classes += [read] if read else []
        problems += unreadable
    claims = {
        claim_key(kind, document): document
        for kind in (CLAIM, TEMPLATE)
        for document in objects.get(kind, ())
    }
    taint_rules = TaintRules(filter(None, map(read_taint_rule, objects.get(TAINT_RULE, ()))))
    devices = DeviceInventory(map(taint_rules.applied, slices))
    return DraState(devices, DeviceClasses(classes), claims, tuple(problems))


def claim_key(kind: str, document: Mapping[str, Any], namespace: str = "default") -> ClaimKey:
    """Return the key of a claim or template. namespace: the default if the object has none."""
    metadata = object_at(document, "metadata")
    return kind, str(metadata.get("namespace") or namespace), str(metadata.get("name") or "")


def _created_template(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the ResourceClaimTemplate that the controller of a custom resource creates, or None."""
    group, _, _ = str(document.get("apiVersion")).partition("/")
    for row in dra_table()["claimTemplates"]:
        if (group, document.get("kind")) == (row["group"], row["kind"]):
            *path, last = row["name"]
            name = object_at(document, *path).get(last)
            namespace = object_at(document, "metadata").get("namespace")
            requests = [{"exactly": {"deviceClassName": row["class"]}}]
            spec = {"spec": {"devices": {"requests": requests}}}
            return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return None


NO_DRA: Final = DraState()
