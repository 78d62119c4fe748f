"""Changes of nodes: of the objects of an inventory, the pools that it declares, and node profiles.

All functions are pure: they return new objects and change none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from rules import RuleSet, inventory_of
from rules.cuda.tables import certain_branches, cuda_of_branch, gpu_model, newest_release
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.model.rule import NodeProfile
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import (
    LabelFamily,
    LabelNames,
    gpu_labels,
    gpu_resource_domains,
    pool_labels,
)
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader, without_slice
from rules.nodes.node_pool import NodePool
from rules.nodes.node_row import NODE, objects_of
from rules.nodes.pools import POOL_KINDS, cloud_capabilities
from rules.schema.errors import suggestion
from rules.text.i18n import Language, Message

_POOL_KINDS: Final = frozenset(each.kind for each in POOL_KINDS)
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
_NO_GPUS: Final = Message("no node has a GPU")


class DriverChange(NamedTuple):
    """Another driver on some nodes: those of a pool or with a GPU of this name, with a label, or all."""

    selector: str
    driver: Driver


@dataclass(frozen=True, slots=True)
class NodeState:
    """The nodes that are there or may come. objects: those of an inventory. rules: for their profiles."""

    objects: tuple[Mapping[str, Any], ...]
    rules: RuleSet
    pools: tuple[NodePool, ...] = field(default=())

    @classmethod
    def of(cls, objects: Iterable[object], rules: RuleSet) -> NodeState:
        """Return the state of these objects and rules. Raises InventoryError."""
        flat = tuple(each for one in objects for each, _ in objects_of(one, "document"))
        return cls(flat, rules, inventory_of(list(flat)).declared.pools)

    def inventory(self) -> Inventory:
        """Return the inventory of the objects, with the declared pools as they are here."""
        found = inventory_of(list(self.objects))
        return found.with_pools(found.declared._replace(pools=self.pools))

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The objects that are nodes."""
        return [each for each in self.objects if _kind(each) == NODE]

    @property
    def pool_names(self) -> set[str]:
        """The names of all pools: by labels of nodes, of declared pools, and of profiles."""
        labels = [_labels(each) for each in self.nodes] + [dict(each.labels) for each in self.all_pools]
        named = {one[key] for one in labels for key in pool_labels() if key in one}
        return named | {each.name for each in self.all_pools}

    @property
    def all_pools(self) -> list[NodePool]:
        """The pools that objects declare, and those of profiles."""
        return [*self.pools, *(_pool_of(each) for each in self.rules.profiles if each.enabled)]


class Affected(NamedTuple):
    """What a change concerns: the names of nodes, and of pools whose nodes may come."""

    nodes: frozenset[str]
    pools: frozenset[str]


class Change(NamedTuple):
    """A change that was applied, and the nodes that it concerns. None: it may concern any workload."""

    text: Message
    affected: Affected | None = None


def label_names(rules: RuleSet) -> tuple[LabelNames, ...]:
    """Return the label names that the enabled compatibility rules read; without rules, the built-in ones."""
    found = dict.fromkeys(each.sharing.labels for each in rules.compatibility if each.enabled)
    return tuple(found) or (LabelNames(),)


def with_driver(state: NodeState, change: DriverChange) -> tuple[NodeState, Affected]:
    """Return the state with another driver, as drivers and labels of GPU Feature Discovery report it.

    The labels that report a driver or a CUDA version are rewritten; a node with GPUs that has none gets them.
    Raises ChangeError if the change selects nothing.
    """
    names = label_names(state.rules)
    affected = _selected(state, change.selector, names)
    objects = tuple(_node_with(each, change.driver, names, affected.nodes) for each in state.objects)
    pools = tuple(
        _pool_with(each, change.driver, names) if each.name in affected.pools else each
        for each in state.pools
    )
    profiles = tuple(
        _profile_with(each, change.driver, names) if each.name in affected.pools else each
        for each in state.rules.profiles
    )
    return NodeState(objects, replace(state.rules, profiles=profiles), pools), affected


def without_pool(state: NodeState, name: str) -> tuple[NodeState, Affected]:
    """Return the state without the nodes of a pool, and without the objects that declare it.

    name: of the pool, or LABEL=VALUE. Raises ChangeError if there is no such pool.
    """
    affected = _of_label(state, name) if "=" in name else _of_pool(state, name)
    if not any(affected):
        known = sorted(state.pool_names)
        raise ChangeError(_NO_POOL, name=name, hint=suggestion(name, known), known=_listed(known))

    def stays(each: Mapping[str, Any]) -> bool:
        kind, named = _kind(each), _name(each)
        if kind == NODE:
            return named not in affected.nodes
        if kind == _SLICE:
            return _node_of_slice(each) not in affected.nodes
        return not (kind in _POOL_KINDS and named in affected.pools)

    objects = tuple(filter(stays, state.objects))
    pools = tuple(each for each in state.pools if each.name not in affected.pools)
    profiles = tuple(each for each in state.rules.profiles if each.name not in affected.pools)
    return NodeState(objects, replace(state.rules, profiles=profiles), pools), affected


def with_nodes(state: NodeState, objects: Iterable[object]) -> tuple[NodeState, Affected]:
    """Return the state with more nodes and declared pools; of the same name, the new one. InventoryError."""
    more = NodeState.of(objects, RuleSet())
    new = {(_kind(each), _name(each)) for each in more.objects}
    kept = tuple(each for each in state.objects if (_kind(each), _name(each)) not in new)
    declared = {each.name for each in more.pools}
    pools = (*(each for each in state.pools if each.name not in declared), *more.pools)
    nodes = frozenset(_name(each) for each in more.nodes)
    return NodeState((*kept, *more.objects), state.rules, pools), Affected(nodes, frozenset(declared))


def with_profiles(state: NodeState, profiles: Sequence[NodeProfile]) -> tuple[NodeState, Affected]:
    """Return the state with more node profiles; of the same name, the new one."""
    names = frozenset(each.name for each in profiles)
    kept = tuple(each for each in state.rules.profiles if each.name not in names)
    rules = replace(state.rules, profiles=(*kept, *profiles))
    return replace(state, rules=rules), Affected(frozenset(), names)


# Selection


def _selected(state: NodeState, selector: str, names: Collection[LabelNames]) -> Affected:
    """Return what a selector selects. Raises ChangeError if that is nothing, or ambiguous."""
    if not selector:
        found = _with_gpu(state, "", names)
        if not any(found):
            raise ChangeError(_NO_GPUS)
        return found
    if "=" in selector:
        found = _of_label(state, selector)
        if not any(found):
            known = [f"{key}={value}" for each in state.nodes for key, value in _labels(each).items()]
            raise ChangeError(_NO_LABEL, name=selector, hint=suggestion(selector, sorted(set(known))))
        return found
    of_pool, of_gpu = _of_pool(state, selector), _with_gpu(state, selector, names)
    if any(of_pool) and any(of_gpu) and of_pool != of_gpu:
        node = next((each for each in state.nodes if _name(each) in of_gpu.nodes), {})
        facts = {"pool": _pool_label(state, selector), "gpu": names_of_product(names)[0]}
        product = next((_labels(node)[key] for key in names_of_product(names) if key in _labels(node)), "…")
        raise ChangeError(_AMBIGUOUS, name=selector, product=product, **facts)
    found = of_pool if any(of_pool) else of_gpu
    if not any(found):
        known = sorted(state.pool_names | _gpu_names(state, names))
        raise ChangeError(_NO_NODES, name=selector, hint=suggestion(selector, known), known=_listed(known))
    return found


def _listed(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "-"


def names_of_product(names: Collection[LabelNames]) -> list[str]:
    """Return the labels that report the product of a GPU."""
    return list(dict.fromkeys(key for each in names for key in each.product))


def _of_label(state: NodeState, selector: str) -> Affected:
    key, _, value = selector.partition("=")
    nodes = frozenset(_name(each) for each in state.nodes if _labels(each).get(key) == value)
    return Affected(nodes, frozenset(each.name for each in state.all_pools if (key, value) in each.labels))


def _of_pool(state: NodeState, name: str) -> Affected:
    nodes = frozenset(_name(each) for each in state.nodes if _is_in(_labels(each), name))
    pools = [each for each in state.all_pools if each.name == name or _is_in(dict(each.labels), name)]
    return Affected(nodes, frozenset(each.name for each in pools))


def _is_in(labels: Mapping[str, str], pool: str) -> bool:
    return any(labels.get(key) == pool for key in pool_labels())


def _pool_label(state: NodeState, pool: str) -> str:
    keys = (key for each in state.nodes for key in pool_labels() if _labels(each).get(key) == pool)
    return next(keys, pool_labels()[0])


def _with_gpu(state: NodeState, gpu: str, names: Collection[LabelNames]) -> Affected:
    """Return the nodes with a GPU of a name; without one, those with any GPU of NVIDIA."""
    nodes = frozenset(_name(each) for each in state.nodes if _has(_node_gpu(each, names), gpu))
    pools = [each for each in state.all_pools if _has(_pool_gpu(each), gpu)]
    return Affected(nodes, frozenset(each.name for each in pools))


def _has(found: set[str] | None, gpu: str) -> bool:
    """Return whether names of a GPU contain one. found: None if there is no GPU."""
    return found is not None and (not gpu or gpu.casefold() in found)


def _node_gpu(node: Mapping[str, Any], names: Collection[LabelNames]) -> set[str] | None:
    """Return the names of the GPU of a node in lower case; None if nothing shows that it has one."""
    labels, found = _labels(node), set[str]()
    known = [_capabilities(labels, each) for each in names]
    for each in known:
        found |= _gpu_spellings(each)
    amounts = {**_mapping(node, "status", "capacity"), **_mapping(node, "status", "allocatable")}
    offers = any(
        str(name).partition("/")[0] in gpu_resource_domains() and str(amount) != "0"
        for name, amount in amounts.items()
    )
    is_gpu = offers or any(key in labels for key in gpu_labels()) or any(each.driver for each in known)
    return found if found or is_gpu else None


def _pool_gpu(pool: NodePool) -> set[str] | None:
    found = _gpu_spellings(pool.capabilities)
    gpus = any(name.partition("/")[0] in gpu_resource_domains() for name, _ in pool.resources or ())
    return found if found or gpus or pool.capabilities.driver else None


def _gpu_spellings(capabilities: NodeCapabilities) -> set[str]:
    """Return a product as labels have it, and the name of its model, in lower case."""
    if not capabilities.product:
        return set()
    product = without_slice(capabilities.product)
    model = gpu_model(product)
    return {product.casefold(), *({model.product.casefold()} if model else ())}


def _gpu_names(state: NodeState, names: Collection[LabelNames]) -> set[str]:
    """Return the names of the models of all GPUs, as messages write them."""
    products = [_capabilities(_labels(each), one).product for each in state.nodes for one in names]
    products += [each.capabilities.product for each in state.all_pools]
    models = ((product, gpu_model(product)) for product in products if product)
    return {model.product if model else product for product, model in models}


def _capabilities(labels: Mapping[str, str], names: LabelNames) -> NodeCapabilities:
    return cloud_capabilities(labels, NodeReader("", labels).capabilities(names))


# Drivers


def _node_with(
    each: Mapping[str, Any], driver: Driver, names: Iterable[LabelNames], nodes: Collection[str]
) -> Mapping[str, Any]:
    """Return an object with another driver if it is one of these nodes, or has the devices of one."""
    if _kind(each) == _SLICE and _node_of_slice(each) in nodes:
        return _slice_with(each, driver)
    if _kind(each) != NODE or _name(each) not in nodes:
        return each
    labels = _labels_with(_labels(each), driver, names, add=True)
    return {**each, "metadata": {**each["metadata"], "labels": labels}}


def _pool_with(pool: NodePool, driver: Driver, names: Iterable[LabelNames]) -> NodePool:
    capabilities = replace(pool.capabilities, driver=str(driver.version), cuda=driver.cuda)
    labels = _labels_with(dict(pool.labels), driver, names, add=False)
    return pool._replace(capabilities=capabilities, labels=tuple(labels.items()))


def _profile_with(profile: NodeProfile, driver: Driver, names: Iterable[LabelNames]) -> NodeProfile:
    pool = _pool_with(profile.pool, driver, names)
    return replace(profile, capabilities=pool.capabilities, labels=pool.labels)


def _labels_with(
    labels: Mapping[str, str], driver: Driver, names: Iterable[LabelNames], *, add: bool
) -> dict[str, str]:
    """Return labels that report a driver. add: also if none reports one now."""
    found = dict(labels)
    for each in names:
        for families, numbers, text in (
            (each.driver, str(driver.version).split("."), str(driver.version)),
            (each.cuda, [str(part) for part in driver.cuda], str(driver.cuda)),
        ):
            present = [family for family in families if any(key in labels for key in family.keys)]
            for family in present or (list(families[:1]) if add else []):
                found |= _family_labels(family, numbers, text)
    return found


def _family_labels(family: LabelFamily, numbers: Sequence[str], text: str) -> dict[str, str]:
    if family.whole:
        return {family.key: text}
    return {key: (numbers[at] if at < len(numbers) else "") for at, key in enumerate(family.keys)}


def _slice_with(each: Mapping[str, Any], driver: Driver) -> dict[str, Any]:
    """Return a ResourceSlice whose devices report a driver, if they report one now."""
    spec = each["spec"]
    prefix = f"{spec.get('driver')}/"
    versions = {_DRA_DRIVER: _semver(driver.version.numbers), _DRA_CUDA: _semver(driver.cuda)}

    def attributes(found: Any) -> Any:
        if not isinstance(found, Mapping):
            return found
        return {
            name: {"version": versions[short]} if (short := name.removeprefix(prefix)) in versions else value
            for name, value in found.items()
        }

    def device(found: Any) -> Any:
        if not isinstance(found, Mapping):
            return found
        changed = {**found, "attributes": attributes(found["attributes"])} if "attributes" in found else found
        basic = found.get("basic")  # in v1beta1
        if not isinstance(basic, Mapping):
            return changed
        return {**changed, "basic": {**basic, "attributes": attributes(basic.get("attributes"))}}

    devices = spec.get("devices")
    changed = [device(one) for one in devices] if isinstance(devices, list) else devices
    return {**each, "spec": {**spec, "devices": changed}}


def _semver(numbers: Sequence[int]) -> str:
    """Return a version of three numbers, as attributes of devices have it: 595.71.5 for 595.71.05."""
    return ".".join(map(str, (*numbers, 0, 0)[:3]))


# Objects


def _pool_of(profile: NodeProfile) -> NodePool:
    """Return the nodes of a profile, with the labels of the present ones, too."""
    pool = profile.pool
    return pool._replace(labels=tuple(dict((*profile.match, *profile.labels)).items()))


def _kind(each: Mapping[str, Any]) -> str:
    return str(each.get("kind", NODE))


def _name(each: Mapping[str, Any]) -> str:
    return str(_mapping(each, "metadata").get("name", ""))


def _labels(each: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: value for key, value in _mapping(each, "metadata", "labels").items() if isinstance(value, str)
    }


def _node_of_slice(each: Mapping[str, Any]) -> str:
    return str(_mapping(each, "spec").get("nodeName", ""))


def _mapping(each: Mapping[str, Any], *steps: str) -> Mapping[str, Any]:
    found: Any = each
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


_NO_VERSION = Message("expected a driver branch such as 595, or a version such as 580.95.05, got {version!r}")
_NO_BRANCH = Message("unknown driver branch {branch}; known branches: {known}")
_SHOWN_VERSIONS = 12  # newest branches in a message


class Driver(NamedTuple):
    """A driver, and the CUDA version of its API."""

    version: DriverVersion
    cuda: CudaVersion


def parse_driver(text: str) -> Driver:
    """Return the driver of a version; of a branch alone, its newest release that came with a toolkit.

    Raises ChangeError for anything else, and for a branch of which no CUDA version is known.
    """
    version = DriverVersion.parse(text)
    if version is None:
        raise ChangeError(_NO_VERSION, version=text)
    fact = cuda_of_branch(version.branch)
    if fact is None or not fact.certain:
        known = ", ".join(map(str, certain_branches()[-_SHOWN_VERSIONS:]))
        raise ChangeError(_NO_BRANCH, branch=version.branch, known=known)
    if len(version.numbers) == 1:
        version = newest_release(version.branch) or version
    return Driver(version, fact.value)


class ChangeError(ValueError):
    """A change cannot be applied: nothing has that name, or it is ambiguous. The user's fault."""

    def __init__(self, text: Message, **facts: object) -> None:
        self._text = text.having(**facts)
        super().__init__(self._text.en)

    def message(self, language: Language) -> str:
        """Return the message: what is wrong, and what to do."""
        return self._text.in_language(language)
