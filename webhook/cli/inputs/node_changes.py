"""Changes of nodes: of the objects of an inventory, the pools that it declares, and node profiles.

All functions are pure: they return new objects and change none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from rules import Facts, RuleSet, inventory_of
from rules.cuda.tables import BUILT_IN, certain_branches, gpu_model, least_cuda, newest_release
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.model.rule import NodeProfile
from rules.nodes.cloud_labels import cloud_capabilities
from rules.nodes.driver_lifecycle import DriverSupport
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import (
    LabelFamily,
    LabelNames,
    gpu_labels,
    gpu_resource_domains,
    pool_labels,
)
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader, without_slice
from rules.nodes.node_row import NODE, objects_of
from rules.nodes.pools import POOL_KINDS, NodePool
from rules.schema.errors import suggestion
from rules.text.i18n import Message, MessageError

_POOL_KINDS: Final = frozenset(kind.kind for kind in POOL_KINDS)
_SLICE: Final = "ResourceSlice"
# Attributes of GPUs in ResourceSlices, see facts/dra.yaml; a name without a domain is of the driver's.
_DRA_DRIVER: Final = "driverVersion"
_DRA_CUDA: Final = "cudaDriverVersion"
_NO_NODES: Final = Message(
    "no pool or GPU is named {name!r}{hint} (known: {known}); write LABEL=VALUE for nodes with another label"
)
_NO_LABEL: Final = Message("no node has label {name}{hint}")
_NO_POOL: Final = Message(
    "no pool is named {name!r}{hint} (known: {known}); write LABEL=VALUE for nodes with another label"
)
_SHOWN: Final = 10  # names in a message
_AMBIGUOUS: Final = Message(
    "{name!r} is the name of a pool and of a GPU, on different nodes; write {pool}={name} for the pool, or "
    "{gpu}={product} for the GPU"
)
_NO_GPUS: Final = Message("no node has a GPU; name nodes with --nodes FILE or --context NAME")


class DriverChange(NamedTuple):
    """Another driver on some nodes."""

    selector: str  # name of a pool or GPU, or LABEL=VALUE; empty for all nodes
    driver: Driver


class EditableInventory(Struct, frozen=True):
    """Present nodes and node pools, in a form that changes can edit.

    Attributes:
        objects: nodes, ResourceSlices, and objects that declare pools.
        rules: their node profiles are pools as well.
        pools: the pools that `objects` declare.
    """

    objects: tuple[Mapping[str, Any], ...]
    rules: RuleSet
    pools: tuple[NodePool, ...] = field(default=())

    @classmethod
    def of(cls, objects: Iterable[object], rules: RuleSet) -> EditableInventory:
        """Return the state of these objects and rules. Raises InventoryError."""
        flat = tuple(manifest for document in objects for manifest, _ in objects_of(document, "document"))
        return cls(flat, rules, inventory_of(list(flat), rules.facts or BUILT_IN).node_pools.pools)

    @property
    def facts(self) -> Facts:
        """What is known of GPUs and drivers."""
        return self.rules.facts or BUILT_IN

    def inventory(self) -> Inventory:
        """Return the inventory of the objects, with `pools` as the declared pools."""
        inventory = inventory_of(list(self.objects), self.facts)
        return inventory.with_pools(inventory.node_pools._replace(pools=self.pools))

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The objects that are nodes."""
        return [node for node in self.objects if _kind(node) == NODE]

    @property
    def pool_names(self) -> set[str]:
        """The names of all pools, and the values of pool labels."""
        label_sets = [_labels(node) for node in self.nodes] + [dict(pool.labels) for pool in self.all_pools]
        names = {labels[key] for labels in label_sets for key in pool_labels() if key in labels}
        return names | {pool.name for pool in self.all_pools}

    @property
    def all_pools(self) -> list[NodePool]:
        """The declared pools, and a pool for each enabled node profile."""
        return [*self.pools, *(_pool_of(profile) for profile in self.rules.profiles if profile.enabled)]


class Affected(NamedTuple):
    """The names of the present nodes and of the pools that a change concerns."""

    nodes: frozenset[str]
    pools: frozenset[str]


class Change(NamedTuple):
    """A change that was applied."""

    text: Message
    affected: Affected | None = None  # None: the change may concern any workload
    support: DriverSupport | None = None  # of the new driver, by NVIDIA


def with_driver(state: EditableInventory, change: DriverChange) -> tuple[EditableInventory, Affected]:
    """Return the state with another driver.

    Labels and device attributes that report a driver or its CUDA version are rewritten; a selected node
    without such labels gets them. Raises ChangeError if the change selects nothing.
    """
    names = state.rules.label_names
    affected = _selected(state, change.selector, names)
    objects = tuple(_node_with(manifest, change.driver, names, affected.nodes) for manifest in state.objects)
    pools = tuple(
        _pool_with(pool, change.driver, names) if pool.name in affected.pools else pool
        for pool in state.pools
    )
    profiles = tuple(
        _profile_with(profile, change.driver, names) if profile.name in affected.pools else profile
        for profile in state.rules.profiles
    )
    return EditableInventory(objects, replace(state.rules, profiles=profiles), pools), affected


def without_pool(state: EditableInventory, name: str) -> tuple[EditableInventory, Affected]:
    """Return the state without the nodes of a pool, and without the objects that declare it.

    name: of the pool, or LABEL=VALUE. Raises ChangeError if there is no such pool.
    """
    affected = _affected_by_label(state, name) if "=" in name else _affected_by_pool(state, name)
    if not any(affected):
        known = sorted(state.pool_names)
        raise ChangeError(_NO_POOL, name=name, hint=suggestion(name, known), known=_joined_names(known))

    def stays(manifest: Mapping[str, Any]) -> bool:
        kind, manifest_name = _kind(manifest), _name(manifest)
        if kind == NODE:
            return manifest_name not in affected.nodes
        if kind == _SLICE:
            return _node_of_slice(manifest) not in affected.nodes
        return not (kind in _POOL_KINDS and manifest_name in affected.pools)

    objects = tuple(filter(stays, state.objects))
    pools = tuple(pool for pool in state.pools if pool.name not in affected.pools)
    profiles = tuple(profile for profile in state.rules.profiles if profile.name not in affected.pools)
    return EditableInventory(objects, replace(state.rules, profiles=profiles), pools), affected


def with_nodes(state: EditableInventory, objects: Iterable[object]) -> tuple[EditableInventory, Affected]:
    """Return the state with more nodes and declared pools; equal kinds and names are replaced.

    Raises InventoryError.
    """
    more = EditableInventory.of(objects, RuleSet())
    new = {(_kind(manifest), _name(manifest)) for manifest in more.objects}
    kept = tuple(manifest for manifest in state.objects if (_kind(manifest), _name(manifest)) not in new)
    declared = {pool.name for pool in more.pools}
    pools = (*(pool for pool in state.pools if pool.name not in declared), *more.pools)
    nodes = frozenset(_name(node) for node in more.nodes)
    return EditableInventory((*kept, *more.objects), state.rules, pools), Affected(nodes, frozenset(declared))


def with_profiles(
    state: EditableInventory, profiles: Sequence[NodeProfile]
) -> tuple[EditableInventory, Affected]:
    """Return the state with more node profiles; equal names are replaced."""
    names = frozenset(profile.name for profile in profiles)
    kept = tuple(profile for profile in state.rules.profiles if profile.name not in names)
    rules = replace(state.rules, profiles=(*kept, *profiles))
    return replace(state, rules=rules), Affected(frozenset(), names)


# Selection


def _selected(state: EditableInventory, selector: str, names: Collection[LabelNames]) -> Affected:
    """Return the nodes and pools of a selector. Raises ChangeError if it selects none or is ambiguous."""
    if not selector:
        affected = _affected_by_gpu(state, "", names)
        if not any(affected):
            raise ChangeError(_NO_GPUS)
        return affected
    if "=" in selector:
        affected = _affected_by_label(state, selector)
        if not any(affected):
            known = [f"{key}={value}" for node in state.nodes for key, value in _labels(node).items()]
            raise ChangeError(_NO_LABEL, name=selector, hint=suggestion(selector, sorted(set(known))))
        return affected
    of_pool, of_gpu = _affected_by_pool(state, selector), _affected_by_gpu(state, selector, names)
    if any(of_pool) and any(of_gpu) and of_pool != of_gpu:
        node = next((node for node in state.nodes if _name(node) in of_gpu.nodes), {})
        facts = {"pool": _pool_label(state, selector), "gpu": names_of_product(names)[0]}
        product = next((_labels(node)[key] for key in names_of_product(names) if key in _labels(node)), "…")
        raise ChangeError(_AMBIGUOUS, name=selector, product=product, **facts)
    affected = of_pool if any(of_pool) else of_gpu
    if not any(affected):
        known = sorted(state.pool_names | _gpu_names(state, names))
        raise ChangeError(
            _NO_NODES, name=selector, hint=suggestion(selector, known), known=_joined_names(known)
        )
    return affected


def _joined_names(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "-"


def names_of_product(names: Collection[LabelNames]) -> list[str]:
    """Return the labels that report the product of a GPU."""
    return list(dict.fromkeys(key for label_set in names for key in label_set.product))


def _affected_by_label(state: EditableInventory, selector: str) -> Affected:
    key, _, value = selector.partition("=")
    nodes = frozenset(_name(node) for node in state.nodes if _labels(node).get(key) == value)
    return Affected(nodes, frozenset(pool.name for pool in state.all_pools if (key, value) in pool.labels))


def _affected_by_pool(state: EditableInventory, name: str) -> Affected:
    nodes = frozenset(_name(node) for node in state.nodes if _is_in_pool(_labels(node), name))
    pools = [pool for pool in state.all_pools if pool.name == name or _is_in_pool(dict(pool.labels), name)]
    return Affected(nodes, frozenset(pool.name for pool in pools))


def _is_in_pool(labels: Mapping[str, str], pool: str) -> bool:
    return any(labels.get(key) == pool for key in pool_labels())


def _pool_label(state: EditableInventory, pool: str) -> str:
    keys = (key for node in state.nodes for key in pool_labels() if _labels(node).get(key) == pool)
    return next(keys, pool_labels()[0])


def _affected_by_gpu(state: EditableInventory, gpu: str, names: Collection[LabelNames]) -> Affected:
    """Return the nodes and pools with a GPU of this name; for an empty name, with any GPU of NVIDIA."""
    nodes = frozenset(_name(node) for node in state.nodes if _has_name(_node_gpu(node, names), gpu))
    pools = [pool for pool in state.all_pools if _has_name(_pool_gpu(pool), gpu)]
    return Affected(nodes, frozenset(pool.name for pool in pools))


def _has_name(spellings: set[str] | None, gpu: str) -> bool:
    """Return whether a GPU has a name. spellings: its names; None if there is no GPU."""
    return spellings is not None and (not gpu or gpu.casefold() in spellings)


def _node_gpu(node: Mapping[str, Any], names: Collection[LabelNames]) -> set[str] | None:
    """Return the names of a node's GPU in lower case; None if nothing shows that the node has a GPU."""
    labels, spellings = _labels(node), set[str]()
    known = [_capabilities(labels, label_set) for label_set in names]
    for capabilities in known:
        spellings |= _gpu_spellings(capabilities)
    amounts = {**_mapping(node, "status", "capacity"), **_mapping(node, "status", "allocatable")}
    offers = any(
        str(name).partition("/")[0] in gpu_resource_domains() and str(amount) != "0"
        for name, amount in amounts.items()
    )
    is_gpu = (
        offers
        or any(key in labels for key in gpu_labels())
        or any(capabilities.driver for capabilities in known)
    )
    return spellings if spellings or is_gpu else None


def _pool_gpu(pool: NodePool) -> set[str] | None:
    spellings = _gpu_spellings(pool.capabilities)
    gpus = any(name.partition("/")[0] in gpu_resource_domains() for name, _ in pool.resources or ())
    return spellings if spellings or gpus or pool.capabilities.driver else None


def _gpu_spellings(capabilities: NodeCapabilities) -> set[str]:
    """Return the product as labels write it and the name of its GPU model, in lower case."""
    if not capabilities.product:
        return set()
    product = without_slice(capabilities.product)
    model = gpu_model(capabilities.facts, product)
    return {product.casefold(), *({model.product.casefold()} if model else ())}


def _gpu_names(state: EditableInventory, names: Collection[LabelNames]) -> set[str]:
    """Return the names of the models of all GPUs, as messages write them."""
    products = [
        _capabilities(_labels(node), label_set).product for node in state.nodes for label_set in names
    ]
    products += [pool.capabilities.product for pool in state.all_pools]
    models = ((product, gpu_model(state.facts, product)) for product in products if product)
    return {model.product if model else product for product, model in models}


def _capabilities(labels: Mapping[str, str], names: LabelNames) -> NodeCapabilities:
    return cloud_capabilities(labels, NodeReader("", labels).capabilities(names))


# Drivers


def _node_with(
    manifest: Mapping[str, Any], driver: Driver, names: Iterable[LabelNames], nodes: Collection[str]
) -> Mapping[str, Any]:
    """Return an object; with another driver if it is among these nodes, or a ResourceSlice of theirs."""
    if _kind(manifest) == _SLICE and _node_of_slice(manifest) in nodes:
        return _slice_with(manifest, driver)
    if _kind(manifest) != NODE or _name(manifest) not in nodes:
        return manifest
    labels = labels_with(_labels(manifest), driver, names, add=True)
    return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}


def _pool_with(pool: NodePool, driver: Driver, names: Iterable[LabelNames]) -> NodePool:
    capabilities = replace(pool.capabilities, driver=str(driver.version), cuda=driver.cuda)
    labels = labels_with(dict(pool.labels), driver, names, add=False)
    return pool._replace(capabilities=capabilities, labels=tuple(labels.items()))


def _profile_with(profile: NodeProfile, driver: Driver, names: Iterable[LabelNames]) -> NodeProfile:
    pool = _pool_with(profile.pool, driver, names)
    return replace(profile, capabilities=pool.capabilities, labels=pool.labels)


def labels_with(
    labels: Mapping[str, str], driver: Driver, names: Iterable[LabelNames], *, add: bool
) -> dict[str, str]:
    """Return labels that report a driver. add: add such labels if there are none."""
    changed = dict(labels)
    for label_set in names:
        for families, numbers, text in (
            (label_set.driver, str(driver.version).split("."), str(driver.version)),
            (label_set.cuda, [str(part) for part in driver.cuda], str(driver.cuda)),
        ):
            present = [family for family in families if any(key in labels for key in family.keys)]
            for family in present or (list(families[:1]) if add else []):
                changed |= _family_labels(family, numbers, text)
    return changed


def _family_labels(family: LabelFamily, numbers: Sequence[str], text: str) -> dict[str, str]:
    if family.whole:
        return {family.key: text}
    return {key: (numbers[at] if at < len(numbers) else "") for at, key in enumerate(family.keys)}


def _slice_with(manifest: Mapping[str, Any], driver: Driver) -> dict[str, Any]:
    """Return a ResourceSlice in which devices that report a driver report this one."""
    spec = manifest["spec"]
    prefix = f"{spec.get('driver')}/"
    versions = {_DRA_DRIVER: _semver(driver.version.numbers), _DRA_CUDA: _semver(driver.cuda)}

    def with_versions(attributes: Any) -> Any:
        if not isinstance(attributes, Mapping):
            return attributes
        return {
            name: {"version": versions[short]} if (short := name.removeprefix(prefix)) in versions else value
            for name, value in attributes.items()
        }

    def with_attributes(device: Any) -> Any:
        if not isinstance(device, Mapping):
            return device
        changed = dict(device)
        if "attributes" in device:
            changed["attributes"] = with_versions(device["attributes"])
        basic = device.get("basic")  # in v1beta1
        if not isinstance(basic, Mapping):
            return changed
        return {**changed, "basic": {**basic, "attributes": with_versions(basic.get("attributes"))}}

    devices = spec.get("devices")
    changed = [with_attributes(device) for device in devices] if isinstance(devices, list) else devices
    return {**manifest, "spec": {**spec, "devices": changed}}


def _semver(numbers: Sequence[int]) -> str:
    """Return a version of three numbers, as attributes of devices have it: 595.71.5 for 595.71.05."""
    return ".".join(map(str, (*numbers, 0, 0)[:3]))


# Objects


def _pool_of(profile: NodeProfile) -> NodePool:
    """Return the pool of a profile; its labels include those by which the profile matches present nodes."""
    pool = profile.pool
    return pool._replace(labels=tuple(dict((*profile.match, *profile.labels)).items()))


def _kind(manifest: Mapping[str, Any]) -> str:
    return str(manifest.get("kind", NODE))


def _name(manifest: Mapping[str, Any]) -> str:
    return str(_mapping(manifest, "metadata").get("name", ""))


def _labels(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: value
        for key, value in _mapping(manifest, "metadata", "labels").items()
        if isinstance(value, str)
    }


def _node_of_slice(manifest: Mapping[str, Any]) -> str:
    return str(_mapping(manifest, "spec").get("nodeName", ""))


def _mapping(manifest: Mapping[str, Any], *steps: str) -> Mapping[str, Any]:
    value: Any = manifest
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


_NO_VERSION = Message("expected a driver branch such as 595, or a version such as 580.95.05, got {version!r}")
_NO_BRANCH = Message("unknown driver branch {branch}; known branches: {known}")
_SHOWN_VERSIONS = 12  # newest branches in a message


class Driver(NamedTuple):
    """A driver, and the CUDA version of its API.

    by: the newest known branch, if that of the driver is newer: the CUDA version is the lowest possible one.
    """

    version: DriverVersion
    cuda: CudaVersion
    by: int | None = None


def parse_driver(text: str, facts: Facts = BUILT_IN) -> Driver:
    """Return the driver of a version; for a branch, its newest release that came with a CUDA toolkit.

    A branch above the newest known one has at least its CUDA version. Raises ChangeError for another unknown
    branch, and for other texts.
    """
    version = DriverVersion.parse(text)
    if version is None:
        raise ChangeError(_NO_VERSION, version=text)
    least = least_cuda(facts, version.branch)
    if least is None:
        known = ", ".join(map(str, certain_branches(facts)[-_SHOWN_VERSIONS:]))
        raise ChangeError(_NO_BRANCH, branch=version.branch, known=known)
    if len(version.numbers) == 1:
        version = newest_release(facts, version.branch) or version
    return Driver(version, least.cuda, least.by if least.by != version.branch else None)


class ChangeError(MessageError):
    """A change cannot be applied: its selector selects nothing or is ambiguous. The user's fault."""

    def __init__(self, text: Message, **facts: object) -> None:
        super().__init__(text.having(**facts))
