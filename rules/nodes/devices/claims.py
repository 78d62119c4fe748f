"""Claims of a pod: the requests of its ResourceClaims and ResourceClaimTemplates, and the devices that match.

The versions v1, v1beta2 and v1beta1 are read. Constraints between devices are not evaluated: they only reduce
the number of matching devices. All devices are compared as if they were unused.
Source: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-claim-v1/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from rules.kube.resource_quota import quantity_text
from rules.kube.tolerations import untolerated
from rules.nodes.devices.capacity import CapacityRequest, gives, most, read_requests, taken
from rules.nodes.devices.device_classes import DeviceClasses, Selectors, match_all, read_selectors
from rules.nodes.devices.device_configs import DeviceConfig, read_configs
from rules.nodes.devices.devices import MAX_NAME, DeviceKind, gpu_drivers, qualified
from rules.nodes.devices.slices import DeviceInventory
from rules.text.i18n import Message
from rules.text.paths import object_at

# Limits of the API on requests of one claim, alternatives of one request, and allocated devices.
_MAX_REQUESTS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_RESULTS: Final = 32
_MAX_TOLERATIONS: Final = 16
# Maximum evaluated claims of one pod, and characters of all their selectors; they bound a decision's time.
_MAX_CLAIMS: Final = 32
_MAX_CHARACTERS: Final = 32 * 1024
TOO_MANY: Final = Message("too many requests or selectors to evaluate")
_UNREADABLE: Final = Message("the claim has a request that is not readable")

_NO_OBJECT: Final = Message("the pod's claim names no object")
_OTHER_OBJECT: Final = Message("the pod's claim names its object by {field}, which gpugate does not read")
_INCOMPLETE: Final = Message("not all ResourceSlices of its pool are there")
_AMOUNT_UNKNOWN: Final = Message("it is unknown whether they give the requested capacity")
_NO_CAPACITY: Final = Message("the claim requests the capacity {name}, which devices of {driver} do not have")
_TOO_LITTLE: Final = Message(
    "the claim requests {requested} of the capacity {name}; a device of {driver} gives {limit} at most"
)
_TAINTED: Final = Message("devices of {driver} have the taint {taint}, which the claim does not tolerate")

# Returns a ResourceClaim or a ResourceClaimTemplate of the pod's namespace by kind and name, or None.
Find = Callable[[str, str], object]


class DeviceRequest(NamedTuple):
    """A request for devices of one class."""

    name: str  # of an alternative; otherwise empty
    device_class: str
    selectors: Selectors = ()
    number: int = 1  # of devices; 0: all that match
    tolerations: tuple[Any, ...] = ()
    capacity: tuple[CapacityRequest, ...] = ()  # of each device


class AllocatedDevice(NamedTuple):
    """A device that is allocated to a claim."""

    driver: str
    pool: str
    device: str


class ClaimRequest(NamedTuple):
    """One request of a claim."""

    name: str
    alternatives: tuple[DeviceRequest, ...] = ()  # the first that can be met is used
    admin: bool = False  # administrative access, which allocates nothing and is not evaluated
    allocated: tuple[AllocatedDevice, ...] | None = None  # None: the claim is not allocated
    unknown: Message | None = None  # why the requested devices are unknown


class PodClaim(NamedTuple):
    """One claim of a pod."""

    name: str  # in the pod
    requests: tuple[ClaimRequest, ...] = ()
    unknown: Message | None = None  # why the requests are unknown
    source: tuple[str, str] = ("", "")  # kind and name of the object that it is read from
    configs: tuple[DeviceConfig, ...] = ()


class Candidate(NamedTuple):
    """Devices of one kind that may be allocated to a request."""

    kind: DeviceKind
    nodes: Mapping[str, int] | None  # the number of devices by node; None: their nodes are unknown
    certain: bool = True  # they are known to match
    alternative: str = ""  # the name of the alternative, or empty
    memory: int | Decimal | None = None  # bytes that the claim has of a shared device; None: all, or unknown


class FailedSelector(NamedTuple):
    """Devices of one kind for which a selector fails."""

    kind: DeviceKind
    nodes: Mapping[str, int] | None  # as in Candidate
    reason: str  # the error


class ExcludedDevice(NamedTuple):
    """Devices of one kind that the selectors match, but that are never allocated to the request."""

    kind: DeviceKind
    nodes: Mapping[str, int] | None  # as in Candidate
    reason: Message


class Candidates(NamedTuple):
    """All devices that may be allocated to a request."""

    devices: tuple[Candidate, ...] = ()
    unknown: tuple[Message, ...] = ()  # why there may be others
    failed: tuple[FailedSelector, ...] = ()  # devices that end the scheduler's allocation with an error
    excluded: tuple[ExcludedDevice, ...] = ()


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
    named = object_at(container, "resources").get("claims")
    wanted: dict[str, set[str | None]] = {}
    for entry in named if isinstance(named, list) else ():
        request = entry.get("request") if isinstance(entry, Mapping) else None
        wanted.setdefault(_name(entry), set()).add(request if isinstance(request, str) and request else None)
    return tuple(_narrowed(claim, wanted[claim.name]) for claim in claims if claim.name in wanted)


def candidates(request: ClaimRequest, classes: DeviceClasses, devices: DeviceInventory) -> Candidates:
    """Return the devices that may be, or are, allocated to a request."""
    search = _Search(classes, devices)
    search.unknown |= dict.fromkeys([request.unknown] if request.unknown else [])
    if request.allocated is not None:
        matching = list(search.allocated(request.allocated))
    else:
        matching = [device for alternative in request.alternatives for device in search.matching(alternative)]
    return Candidates(tuple(matching), tuple(search.unknown), tuple(search.failed), tuple(search.excluded))


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
            return _read_claim(name, kind, document, reader)
    fields = sorted(set(entry) - {"name"}) if isinstance(entry, Mapping) else []
    return PodClaim(name, unknown=_OTHER_OBJECT.having(field=fields[0][:MAX_NAME]) if fields else _NO_OBJECT)


def claim_of(kind: str, document: Mapping[str, Any]) -> PodClaim:
    """Return a ResourceClaim or ResourceClaimTemplate as the claim of a pod that has no name for it."""
    return _read_claim("", kind, document, _Reader())


def _read_claim(name: str, kind: str, document: object, reader: _Reader) -> PodClaim:
    claim = document if kind == "ResourceClaim" else object_at(document, "spec")
    configs = read_configs(object_at(claim, "spec", "devices").get("config"))
    source = kind, _name(object_at(document, "metadata"))
    return PodClaim(name, tuple(reader.requests(claim)), source=source, configs=configs)


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
        given = object_at(claim, "spec", "devices").get("requests")
        entries = given if isinstance(given, list) else [None] * (given is not None)
        allocation = object_at(claim, "status", "allocation")
        results = object_at(allocation, "devices").get("results") if allocation else None
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
            alternatives = [self._devices(raw, _name(raw)) for raw in several[:_MAX_ALTERNATIVES]]
            readable = tuple(filter(None, alternatives))
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
        tolerations, capacity = raw.get("tolerations"), read_requests(raw.get("capacity"))
        if capacity is None:
            return None
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
            capacity,
        )

    def _affordable(self, selectors: Selectors) -> Iterator[str | None]:
        for selector in selectors:
            self._left -= len(selector or "")
            yield selector if self._left >= 0 else None


def _with_allocation(request: ClaimRequest, results: object) -> ClaimRequest:
    """Return a request with its allocated devices. results: of the claim's allocation, as JSON."""
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


class _Search:
    """Finds the devices of one request.

    unknown: why other devices may match.
    failed: the devices for which a selector fails.
    excluded: the devices without the capacity, or with a taint that is not tolerated.
    """

    def __init__(self, classes: DeviceClasses, devices: DeviceInventory) -> None:
        self._classes = classes
        self._devices = devices
        self.unknown: dict[Message, None] = {}
        self.failed: list[FailedSelector] = []
        self.excluded: list[ExcludedDevice] = []

    def allocated(self, allocated: Sequence[AllocatedDevice]) -> Iterator[Candidate]:
        """Yield allocated devices."""
        for device in allocated:
            located = self._devices.device(*device)
            if located is None:
                text = f"{device.driver} {device.pool}/{device.device}"
                self.unknown[Message("the allocated device {text} is not known", text=text)] = None
            else:
                kind, node = located
                yield Candidate(kind, {node: 1} if node else None)

    def matching(self, request: DeviceRequest) -> Iterator[Candidate]:
        """Yield the devices that match one alternative, by the checks of the scheduler in its order."""
        by = self._classes.by_name.get(request.device_class)
        if by is None:
            name = request.device_class
            self.unknown[Message("DeviceClass {name} is not known", name=name)] = None
            return
        tolerations = list(request.tolerations)
        places: list[tuple[DeviceKind, Mapping[str, int] | None]] = [*self._devices.by_kind.items()]
        places += [(kind, None) for kind in self._devices.elsewhere]
        for kind, nodes in places:
            match = match_all((*by.selectors, *request.selectors), kind)
            if match.matches is False:
                if match.failed:
                    self.failed.append(FailedSelector(kind, nodes, match.reason))
                continue
            certain, lack = _capacity(request.capacity, kind)
            if taint := untolerated(tolerations, kind.taints):
                lack = lack or _TAINTED.having(driver=kind.driver, taint=str(taint))
            if lack:
                self.excluded.append(ExcludedDevice(kind, nodes, lack))
            elif match.matches is None or not certain or kind.hidden is None:
                why = match.reason or (_INCOMPLETE if kind.hidden is None else _AMOUNT_UNKNOWN)
                may = Message("devices of {driver} may match: {why}", driver=kind.driver, why=why)
                self.unknown[may] = None
                yield Candidate(kind, nodes, certain=False, alternative=request.name)
            else:
                yield Candidate(kind, nodes, True, request.name, _memory(request.capacity, kind))


def _capacity(requests: Sequence[CapacityRequest], kind: DeviceKind) -> tuple[bool, Message | None]:
    """Return whether it is known what an unused device of a kind gives, and what it does not give."""
    if not requests or kind.hidden is None:
        return not requests, None
    policies, totals = dict(kind.policies), dict(kind.capacity)
    certain = True
    for name, amount in requests:
        if name not in policies:
            return True, _NO_CAPACITY.having(driver=kind.driver, name=name[:MAX_NAME])
        policy, total = policies[name], totals.get(qualified(name, kind.driver))
        enough = None if amount is None or total is None else gives(amount, policy, total)
        if enough is False and amount is not None and total is not None:
            requested, limit = quantity_text(amount), quantity_text(most(policy, total))
            return True, _TOO_LITTLE.having(driver=kind.driver, name=name, requested=requested, limit=limit)
        certain = certain and enough is not None
    return certain, None


def _memory(requests: Sequence[CapacityRequest], kind: DeviceKind) -> int | Decimal | None:
    """Return how many bytes of a shared GPU a request has; None: all, or unknown."""
    capacity = gpu_drivers().get(kind.driver, {}).get("memory")
    if not kind.shared or capacity is None:
        return None
    amounts = dict[str, int | Decimal | None](requests)
    for name, policy in kind.policies:
        if qualified(name, kind.driver) == qualified(capacity, kind.driver):
            amount = amounts.get(name)
            return (policy.default if policy else None) if amount is None else taken(amount, policy)
    return None


def _name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name[:MAX_NAME] if isinstance(name, str) else ""
