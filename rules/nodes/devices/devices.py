"""Kinds of devices: the attributes that ResourceSlices report, except those of a single device.

Source: `Device` of https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-slice-v1/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cache, lru_cache, partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules.cuda.tables import read_table
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.names import is_label_value
from rules.kube.quantity import QuantityError, parse_quantity
from rules.kube.tolerations import Taint
from rules.nodes.devices.capacity import RequestPolicy, read_policy
from rules.nodes.devices.semver import MAX_LENGTH, Semver, parse_semver

# Limits of the API, on attributes and capacities of a device, and on its taints.
MAX_ATTRIBUTES: Final = 64
_MAX_TAINTS: Final = 16
MAX_NAME: Final = 253  # of an object, a driver, a pool or a device
_MAX_QUALIFIED: Final = 63 + len("/") + 32
_INT64: Final = range(-(2**63), 2**63)
# Kinds of one driver in a cluster; further ones are treated as unknown, so that memory and time are bounded.
MAX_KINDS: Final = 256
# Numbers in the version of a driver are smaller; branches have three digits.
_DRIVER_LIMIT: Final = 10_000
_MIB: Final = 2**20

Scalar = str | int | bool | Semver
Value = Scalar | tuple[Scalar, ...]


class Problem(NamedTuple):
    """An unreadable value of an object; the fact that it reports is unknown."""

    source: str
    key: str
    value: str


class Attribute(NamedTuple):
    """An attribute of a device."""

    type: str  # the field of the API that holds it, such as `int` or `versions`
    value: Value


class DeviceKind(Struct, frozen=True, cache_hash=True):  # kinds are keys of many tables
    """Devices of one driver with equal stored attributes."""

    driver: str
    # By qualified name (`gpu.nvidia.com/type`), sorted.
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, int | Decimal], ...] = ()
    # Qualified names of attributes and capacities that are not stored or unreadable; None: all are unknown.
    hidden: tuple[str, ...] | None = ()
    taints: tuple[Taint, ...] = ()
    shared: bool = False  # several claims may use one device at a time (allowMultipleAllocations)
    # Of each capacity, by its name as it is written, sorted: which amounts a claim may have.
    policies: tuple[tuple[str, RequestPolicy | None], ...] = ()


class DeviceFacts(NamedTuple):
    """The facts that the attributes of a GPU report; None if one is missing or unreadable."""

    type: str | None = None  # gpu, mig or vfio
    has_cuda: bool = True  # false for devices that are passed through to virtual machines
    cuda: CudaVersion | None = None
    driver: str | None = None  # as nvidia-smi prints it (`580.65.06`)
    compute_capability: ComputeCapability | None = None
    product: str | None = None  # as in the labels of GPU Feature Discovery, with the profile of a MIG device
    brand: str | None = None
    architecture: str | None = None  # of the GPU, such as `Hopper`
    memory_mib: int | None = None  # MiB of the device


dra_table: Final = cache(partial(read_table, "dra"))


def gpu_drivers() -> Mapping[str, Mapping[str, Any]]:
    """Return the drivers whose devices are GPUs, with the attribute that reports each fact."""
    drivers: Mapping[str, Mapping[str, Any]] = dra_table()["drivers"]
    return drivers


def qualified(name: str, driver: str) -> str:
    """Return the qualified name of an attribute or a capacity; the default domain is the driver's."""
    return name if "/" in name else f"{driver}/{name}"


class KindPool:
    """Interns kinds of devices, at most MAX_KINDS of each driver, so that equal ones share memory.

    Not thread-safe.
    """

    __slots__ = ("_known", "_numbers")

    def __init__(self) -> None:
        self._known: dict[DeviceKind, DeviceKind] = {}
        self._numbers: Counter[str] = Counter()

    def interned(self, kind: DeviceKind) -> DeviceKind | None:
        """Return the interned kind that is equal to this one; None if its driver has too many kinds."""
        known = self._known.get(kind)
        if known is None and self._numbers[kind.driver] < MAX_KINDS:
            self._numbers[kind.driver] += 1
            known = self._known[kind] = kind
        return known

    def keep(self, kinds: Iterable[DeviceKind]) -> None:
        """Remove all other kinds, so that devices that are gone do not count."""
        self._known = {kind: kind for kind in kinds if kind.hidden is not None}
        self._numbers = Counter(kind.driver for kind in self._known)


class DeviceReader:
    """Reads devices of one slice; unreadable values are hidden and added to `problems`.

    source: the name of the slice, for problems.
    """

    __slots__ = ("_driver", "_full", "_individual", "_pool", "_source", "problems")

    def __init__(self, source: str, driver: str, pool: KindPool) -> None:
        self._source = source
        self._driver = driver
        self._pool = pool
        self._full = False
        self._individual = frozenset(qualified(name, driver) for name in dra_table()["individual"])
        self.problems: list[Problem] = []

    def kind(self, device: Mapping[str, Any]) -> DeviceKind:
        """Return the kind of a device of any version of the API, as JSON."""
        basic = device.get("basic")  # in v1beta1
        raw = basic if isinstance(basic, Mapping) else device
        hidden: list[str] = []
        attributes = self._values(raw, "attributes", self._attribute, hidden)
        capacity = self._values(raw, "capacity", self._quantity, hidden)
        kind = DeviceKind(
            self._driver,
            attributes,
            capacity,
            tuple(sorted(set(hidden))),
            tuple(self._taints(raw)),
            raw.get("allowMultipleAllocations") is True,
            tuple(sorted(_policies(raw.get("capacity")), key=itemgetter(0))),
        )
        pooled = self._pool.interned(kind)
        if pooled is None:
            if not self._full:
                self.report("devices", f"more than {MAX_KINDS} kinds of devices of {self._driver}")
            self._full = True
            return DeviceKind(self._driver, hidden=None, taints=kind.taints)
        if pooled is kind:  # once for each kind: the devices of a cluster repeat the problem
            self.problems += [Problem(self._source, key, value) for key, value in _facts(kind)[1]]
        return pooled

    def report(self, key: object, value: object) -> None:
        """Add a problem."""
        self.problems.append(Problem(self._source, _short(key), _short(value)))

    def _values(
        self, raw: Mapping[str, Any], section: str, read: Callable[[object], Any], hidden: list[str]
    ) -> tuple[tuple[str, Any], ...]:
        given = raw.get(section)
        if not isinstance(given, Mapping):
            if given is not None:
                self.report(section, given)
            return ()
        if len(given) > MAX_ATTRIBUTES:
            self.report(section, f"{len(given)} > {MAX_ATTRIBUTES}")
        values: dict[str, Any] = {}
        for name, entry in list(given.items())[:MAX_ATTRIBUTES]:
            if not isinstance(name, str) or len(name) > _MAX_QUALIFIED:
                self.report(section, name)
                continue
            full = qualified(name, self._driver)
            value = None if full in self._individual else read(entry)
            if value is not None:
                values[full] = value
                continue
            hidden.append(full)
            if full not in self._individual:
                self.report(name, entry)
        hidden += [
            qualified(str(name)[:_MAX_QUALIFIED], self._driver) for name in list(given)[MAX_ATTRIBUTES:]
        ]
        return tuple(sorted(values.items(), key=lambda item: item[0]))

    @staticmethod
    def _attribute(entry: object) -> Attribute | None:
        given = [item for item in entry.items() if item[1] is not None] if isinstance(entry, Mapping) else []
        if len(given) != 1 or not isinstance(given[0][0], str):
            return None
        kind, raw = given[0]
        if kind in _SCALARS:
            scalar = _SCALARS[kind](raw)
            return None if scalar is None else Attribute(kind, scalar)
        read = _SCALARS.get(kind.removesuffix("s"))
        if read is None or not isinstance(raw, list) or len(raw) > MAX_ATTRIBUTES:
            return None
        values = [read(item) for item in raw]
        return None if None in values else Attribute(kind, tuple(values))

    @staticmethod
    def _quantity(entry: object) -> int | Decimal | None:
        try:
            return parse_quantity(entry["value"] if isinstance(entry, Mapping) else None)
        except (KeyError, QuantityError):
            return None

    def _taints(self, raw: Mapping[str, Any]) -> Iterator[Taint]:
        given = raw.get("taints")
        for taint in given[:_MAX_TAINTS] if isinstance(given, list) else ():
            fields = [taint.get(key) or "" for key in Taint._fields] if isinstance(taint, Mapping) else [None]
            if all(isinstance(field, str) for field in fields):
                yield Taint(*fields)
            else:
                self.report("taints", taint)


def _policies(capacity: object) -> Iterator[tuple[str, RequestPolicy | None]]:
    entries = list(capacity.items())[:MAX_ATTRIBUTES] if isinstance(capacity, Mapping) else []
    for name, entry in entries:
        if isinstance(name, str) and len(name) <= _MAX_QUALIFIED:
            yield name, read_policy(entry)


def _string(raw: object) -> str | None:
    return raw if isinstance(raw, str) and len(raw) <= MAX_LENGTH and raw.isprintable() else None


def _int(raw: object) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw in _INT64 else None


def _bool(raw: object) -> bool | None:
    return raw if isinstance(raw, bool) else None


def _version(raw: object) -> Semver | None:
    return parse_semver(raw) if isinstance(raw, str) else None


_SCALARS: Final[Mapping[str, Callable[[object], Any]]] = {
    "string": _string,
    "int": _int,
    "bool": _bool,
    "version": _version,
}


def common_facts(kinds: Iterable[DeviceKind]) -> DeviceFacts | None:
    """Return the common facts of all GPUs among these devices; None if there is no GPU."""
    of_gpus = [facts for facts in map(facts_of, kinds) if facts is not None]
    if not of_gpus:
        return None
    columns: list[tuple[Any, ...]] = list(zip(*of_gpus, strict=True))
    same: list[Any] = [values[0] if len(set(values)) == 1 else None for values in columns]
    return DeviceFacts(*same)._replace(has_cuda=any(facts.has_cuda for facts in of_gpus))


def facts_of(kind: DeviceKind) -> DeviceFacts | None:
    """Return the facts that a device reports; None if the driver's devices are not GPUs."""
    return _facts(kind)[0]


@lru_cache(maxsize=4096)
def _facts(kind: DeviceKind) -> tuple[DeviceFacts | None, tuple[tuple[str, str], ...]]:
    """Return the facts, and the attributes with impossible values."""
    names = gpu_drivers().get(kind.driver)
    if names is None:
        return None, ()
    reader = _FactReader(kind, names)
    of_type = reader.text("type")
    product = reader.text("product", _label)
    profile = reader.text("profile", _profile)
    facts = DeviceFacts(
        type=of_type,
        has_cuda=of_type not in names["withoutCuda"],
        cuda=reader.version("cuda", _cuda),
        driver=reader.version("driver", _driver),
        compute_capability=reader.version("computeCapability", _capability),
        product=f"{product}-MIG-{profile}" if product and profile else product,
        brand=reader.text("brand"),
        architecture=reader.text("architecture"),
        memory_mib=reader.memory(),
    )
    return facts, tuple(reader.problems)


class _FactReader:
    """Reads facts from the attributes of a kind. names: the attribute that reports each fact."""

    def __init__(self, kind: DeviceKind, names: Mapping[str, Any]) -> None:
        self._kind = kind
        self._names = names
        self._attributes = dict(kind.attributes)
        self.problems: list[tuple[str, str]] = []

    def text(self, fact: str, read: Callable[[str], str | None] = lambda text: text or None) -> str | None:
        value: str | None = self._read(fact, "string", read)
        return value

    def version(self, fact: str, read: Callable[[Semver], Any]) -> Any:
        return self._read(fact, "version", read)

    def memory(self) -> int | None:
        amount = dict(self._kind.capacity).get(qualified(self._names["memory"], self._kind.driver))
        if amount is None or amount >= _MIB:
            return None if amount is None else int(amount) // _MIB
        self.problems.append((self._names["memory"], str(amount)))
        return None

    def _read(self, fact: str, of_type: str, read: Callable[[Any], Any]) -> Any:
        name = self._names[fact]
        attribute = self._attributes.get(qualified(name, self._kind.driver))
        if attribute is None:
            return None
        value = read(attribute.value) if attribute.type == of_type else None
        if value is None:
            self.problems.append((name, str(attribute.value)))
        return value


def _label(text: str) -> str | None:
    label = text.replace(" ", "-")
    return label if label and is_label_value(label) else None


def _profile(text: str) -> str | None:
    return _label(text.replace("+", "."))


def _cuda(version: Semver) -> CudaVersion | None:
    return CudaVersion.parse(f"{version.major}.{version.minor}")


def _capability(version: Semver) -> ComputeCapability | None:
    return ComputeCapability.parse(f"{version.major}.{version.minor}")


def _driver(version: Semver) -> str | None:
    """Return the version of a driver as nvidia-smi prints it: 580.65.06 for 580.65.6."""
    if max(version[:3]) >= _DRIVER_LIMIT:
        return None
    return f"{version.major}.{version.minor}" + (f".{version.patch:02}" if version.patch else "")


def _short(value: object) -> str:
    """Return the beginning of a value, for a message."""
    return str(value)[:MAX_LENGTH]
