"""Claims of a pod: what its ResourceClaims and ResourceClaimTemplates request, and which devices match.

The versions v1, v1beta2 and v1beta1 are read. Constraints between devices and requests of a part of the
capacity are not evaluated: they only leave fewer devices.
Source: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-claim-v1/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rules.kube.tolerations import tolerates
from rules.nodes.devices.device_classes import DeviceClasses, Selectors, match_all, read_selectors
from rules.nodes.devices.devices import MAX_NAME, DeviceKind, member
from rules.nodes.devices.slices import DeviceInventory
from rules.text.i18n import Message

# Limits of the API on requests of one claim, alternatives of one request, and allocated devices.
_MAX_REQUESTS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_RESULTS: Final = 32
_MAX_TOLERATIONS: Final = 16
# Claims of one pod that are judged, and characters of all their selectors: they bound the time of a decision.
_MAX_CLAIMS: Final = 32
_MAX_CHARACTERS: Final = 32 * 1024
TOO_MANY: Final = Message("too many requests or selectors to evaluate")
_UNREADABLE: Final = Message("the claim has a request that is not readable")

# Returns a ResourceClaim or a ResourceClaimTemplate of the pod's namespace by kind and name, or None.
Find = Callable[[str, str], object]


class DeviceRequest(NamedTuple):
    """Devices of one class that are requested together.

    name: of an alternative; otherwise empty. number: of devices; 0 for all that match.
    """

    name: str
    device_class: str
    selectors: Selectors = ()
    number: int = 1
    tolerations: tuple[Any, ...] = ()


class AllocatedDevice(NamedTuple):
    """A device that a claim already has."""

    driver: str
    pool: str
    device: str


class ClaimRequest(NamedTuple):
    """One request of a claim.

    alternatives: any one of them is enough; the first that can be met is used. admin: whether it is
    administrative access, which allocates nothing: there is nothing to judge. allocated: None unless the
    claim has its devices. unknown: why it is not known what is requested.
    """

    name: str
    alternatives: tuple[DeviceRequest, ...] = ()
    admin: bool = False
    allocated: tuple[AllocatedDevice, ...] | None = None
    unknown: Message | None = None


class PodClaim(NamedTuple):
    """One claim of a pod. name: in the pod. unknown: why it is not known what is requested."""

    name: str
    requests: tuple[ClaimRequest, ...] = ()
    unknown: Message | None = None


class Candidate(NamedTuple):
    """Devices of one kind that a request may be given.

    nodes: the number of such devices on each node; None: which nodes have them is unknown. certain: false if
    it is unknown whether they match. alternative: the name of the alternative, or empty.
    """

    kind: DeviceKind
    nodes: Mapping[str, int] | None
    certain: bool = True
    alternative: str = ""


class FailedSelector(NamedTuple):
    """Devices of one kind for which a selector fails. nodes: as in Candidate. reason: the error."""

    kind: DeviceKind
    nodes: Mapping[str, int] | None
    reason: str


class Candidates(NamedTuple):
    """All devices that a request may be given.

    unknown: why there may be others. failed: devices at which the scheduler ends the allocation with an error
    if it reaches them.
    """

    found: tuple[Candidate, ...] = ()
    unknown: tuple[Message, ...] = ()
    failed: tuple[FailedSelector, ...] = ()


def pod_claims(spec: Mapping[str, Any], find: Find) -> tuple[PodClaim, ...]:
    """Return the claims of a pod. spec: of the pod, as JSON."""
    given = spec.get("resourceClaims")
    entries = given if isinstance(given, list) else []
    reader = _Reader()
    claims = [_pod_claim(entry, find, reader) for entry in entries[:_MAX_CLAIMS]]
    claims += [PodClaim(_name(entry), unknown=TOO_MANY) for entry in entries[_MAX_CLAIMS:]]
    return tuple(claims)


def used_claims(container: Mapping[str, Any], claims: Sequence[PodClaim]) -> tuple[PodClaim, ...]:
    """Return the claims that a container uses, each with the requests that it uses."""
    named = member(container, "resources").get("claims")
    wanted: dict[str, set[str | None]] = {}
    for entry in named if isinstance(named, list) else ():
        request = entry.get("request") if isinstance(entry, Mapping) else None
        wanted.setdefault(_name(entry), set()).add(request if isinstance(request, str) and request else None)
    return tuple(_narrowed(claim, wanted[claim.name]) for claim in claims if claim.name in wanted)


def candidates(request: ClaimRequest, classes: DeviceClasses, devices: DeviceInventory) -> Candidates:
    """Return the devices that a request may be given, or has been given."""
    unknown = dict.fromkeys([request.unknown] if request.unknown else [])
    failed: list[FailedSelector] = []
    if request.allocated is not None:
        found = list(_allocated(request.allocated, devices, unknown))
    else:
        found = [
            candidate
            for alternative in request.alternatives
            for candidate in _matching(alternative, classes, devices, unknown, failed)
        ]
    return Candidates(tuple(found), tuple(unknown), tuple(failed))


def _pod_claim(entry: object, find: Find, reader: _Reader) -> PodClaim:
    name = _name(entry)
    for key, kind in (
        ("resourceClaimName", "ResourceClaim"),
        ("resourceClaimTemplateName", "ResourceClaimTemplate"),
    ):
        object_name = entry.get(key) if isinstance(entry, Mapping) else None
        if isinstance(object_name, str) and object_name:
            document = find(kind, object_name)
            if document is None:
                shown = object_name[:MAX_NAME]
                return PodClaim(name, unknown=Message("{kind} {shown} is not known", kind=kind, shown=shown))
            claim = document if kind == "ResourceClaim" else member(document, "spec")
            return PodClaim(name, tuple(reader.requests(claim)))
    return PodClaim(name, unknown=Message("the pod's claim names no object"))


def _narrowed(claim: PodClaim, wanted: set[str | None]) -> PodClaim:
    """Return a claim with the requests of these names; None stands for all."""
    if None in wanted or claim.unknown:
        return claim
    requests = tuple(request for request in claim.requests if request.name in wanted)
    return claim._replace(requests=requests, unknown=None if len(requests) >= len(wanted) else _UNREADABLE)


class _Reader:
    """Reads the requests of the claims of one pod; selectors beyond _MAX_CHARACTERS are unknown."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MAX_CHARACTERS

    def requests(self, claim: object) -> Iterator[ClaimRequest]:
        """Yield the requests of a claim, as JSON."""
        given = member(member(claim, "spec"), "devices").get("requests")
        entries = given if isinstance(given, list) else [None] * (given is not None)
        allocation = member(member(claim, "status"), "allocation")
        results = member(allocation, "devices").get("results") if allocation else None
        for entry in entries[:_MAX_REQUESTS]:
            request = self._request(entry)
            if allocation and not request.admin:
                request = _with_allocation(request, results)
            yield request
        if len(entries) > _MAX_REQUESTS:
            yield ClaimRequest("", unknown=TOO_MANY)

    def _request(self, entry: object) -> ClaimRequest:
        name = _name(entry)
        if not isinstance(entry, Mapping):
            return ClaimRequest(name, unknown=_UNREADABLE)
        several = entry.get("firstAvailable")
        if isinstance(several, list) and several:
            alternatives = [self._devices(each, _name(each)) for each in several[:_MAX_ALTERNATIVES]]
            readable = tuple(each for each in alternatives if each is not None)
            complete = len(readable) == len(several)
            return ClaimRequest(name, readable, unknown=None if complete else _UNREADABLE)
        exactly = entry.get("exactly")
        exact = (
            exactly if isinstance(exactly, Mapping) else entry
        )  # in v1beta1, the fields are of the request
        devices = self._devices(exact, "")
        if devices is None:
            return ClaimRequest(name, unknown=_UNREADABLE)
        return ClaimRequest(name, (devices,), exact.get("adminAccess") is True)

    def _devices(self, raw: object, name: str) -> DeviceRequest | None:
        if not isinstance(raw, Mapping):
            return None
        device_class, mode, count = raw.get("deviceClassName"), raw.get("allocationMode"), raw.get("count")
        tolerations = raw.get("tolerations")
        if not isinstance(device_class, str) or not 0 < len(device_class) <= MAX_NAME:
            return None
        if mode not in (None, "", "ExactCount", "All"):
            return None
        number = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
        return DeviceRequest(
            name,
            device_class,
            tuple(self._affordable(read_selectors(raw.get("selectors")))),
            0 if mode == "All" else number,
            tuple(tolerations[:_MAX_TOLERATIONS]) if isinstance(tolerations, list) else (),
        )

    def _affordable(self, selectors: Selectors) -> Iterator[str | None]:
        for selector in selectors:
            self._left -= len(selector or "")
            yield selector if self._left >= 0 else None


def _with_allocation(request: ClaimRequest, results: object) -> ClaimRequest:
    """Return a request with the devices that it has been given. results: those of the claim, as JSON."""
    allocated: list[AllocatedDevice] = []
    for result in results[:_MAX_RESULTS] if isinstance(results, list) else ():
        of_request = result.get("request") if isinstance(result, Mapping) else None
        if not isinstance(of_request, str) or of_request.partition("/")[0] != request.name:
            continue
        fields = [result.get(field) for field in AllocatedDevice._fields]
        if not all(isinstance(field, str) for field in fields):
            return request._replace(allocated=(), unknown=_UNREADABLE)
        allocated.append(AllocatedDevice(*fields))
    return request._replace(allocated=tuple(allocated), unknown=None if allocated else _UNREADABLE)


def _allocated(
    allocated: Sequence[AllocatedDevice], devices: DeviceInventory, unknown: dict[Message, None]
) -> Iterator[Candidate]:
    for each in allocated:
        found = devices.device(*each)
        if found is None:
            text = f"{each.driver} {each.pool}/{each.device}"
            unknown[Message("the allocated device {text} is not known", text=text)] = None
        else:
            kind, node = found
            yield Candidate(kind, {node: 1} if node else None)


def _matching(
    request: DeviceRequest,
    classes: DeviceClasses,
    devices: DeviceInventory,
    unknown: dict[Message, None],
    failed: list[FailedSelector],
) -> Iterator[Candidate]:
    """Yield the devices that match one alternative.

    Why others may match is added to unknown, and those for which a selector fails to failed.
    """
    by = classes.by_name.get(request.device_class)
    if by is None:
        name = request.device_class
        unknown[Message("DeviceClass {name} is not known", name=name)] = None
        return
    tolerations = list(request.tolerations)
    places: list[tuple[DeviceKind, Mapping[str, int] | None]] = [*devices.by_kind.items()]
    places += [(kind, None) for kind in devices.elsewhere]
    for kind, nodes in places:
        if not tolerates(tolerations, kind.taints):
            continue
        found = match_all((*by.selectors, *request.selectors), kind)
        if found.matches is None or (found.matches and kind.hidden is None):
            why = found.reason or "not all ResourceSlices of its pool are there"
            unknown[_not_evaluated(kind.driver, why)] = None
            yield Candidate(kind, nodes, certain=False, alternative=request.name)
        elif found.matches:
            yield Candidate(kind, nodes, alternative=request.name)
        elif found.failed:
            failed.append(FailedSelector(kind, nodes, found.reason))


def _not_evaluated(driver: str, why: str) -> Message:
    return Message("devices of {driver} may match: {why}", driver=driver, why=why)


def _name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name[:MAX_NAME] if isinstance(name, str) else ""
